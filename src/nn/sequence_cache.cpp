#include "lamina/nn/sequence_cache.h"

#include <algorithm>
#include <bit>

namespace lamina::nn {
namespace {

constexpr int64_t kLeastPageSize = 16;

/// All tensors of a layer's paged cache. Their first dimension is the page.
std::vector<Tensor> page_tensors(const LayerMemory& layer) {
  std::vector<Tensor> tensors;
  for (const Tensor& tensor : {layer.pages.k, layer.pages.v, layer.pages.scales.k, layer.pages.scales.v}) {
    if (tensor.defined()) tensors.push_back(tensor);
  }
  return tensors;
}

/// All tensors of a layer's recurrent states. Their first dimension is the slot.
std::vector<Tensor> state_tensors(const LayerMemory& layer) {
  std::vector<Tensor> tensors;
  for (const Tensor& tensor : {layer.conv, layer.scan}) {
    if (tensor.defined()) tensors.push_back(tensor);
  }
  return tensors;
}

Shape in_slots(int64_t slots, const Shape& one) {
  Shape shape{slots};
  for (const int64_t extent : one) shape.push_back(extent);
  return shape;
}

ops::PagedCache make_pages(const CacheLayout& layout, int64_t pages, int64_t page_size, DType dtype,
                           const Device& device) {
  LAMINA_CHECK(
      dtype != DType::u8 || layout.allows_8_bits,
      "cache: the keys of this model contain position biases, which 8 bits cannot represent; keep the cache in "
      "f32 or bf16");
  ops::PagedCache made;
  made.k = Tensor::empty({pages, layout.n_kv_heads, page_size, layout.d_qk}, dtype, device);
  if (layout.d_v > 0) made.v = Tensor::empty({pages, layout.n_kv_heads, page_size, layout.d_v}, dtype, device);
  if (dtype == DType::u8) {
    const Shape scales{pages, layout.n_kv_heads, page_size};
    made.scales.k = Tensor::empty(scales, DType::f32, device);
    if (layout.d_v > 0) made.scales.v = Tensor::empty(scales, DType::f32, device);
  }
  return made;
}

}  // namespace

std::vector<int64_t> cache_windows(const std::vector<CacheLayout>& layers) {
  std::vector<int64_t> windows;
  for (const CacheLayout& layout : layers) {
    if (layout.n_kv_heads == 0) continue;
    if (std::find(windows.begin(), windows.end(), layout.window) == windows.end()) windows.push_back(layout.window);
  }
  return windows;
}

SequenceCache::SequenceCache(const std::vector<CacheLayout>& layers, const SequenceCacheOptions& options, DType weights,
                             const Device& device)
    : windows_(cache_windows(layers)),
      pages_(options.pages),
      page_size_(options.page_size),
      state_slots_(options.state_slots) {
  const DType dtype = options.dtype.value_or(weights);
  LAMINA_CHECK((is_floating(dtype) || dtype == DType::u8) && (dtype == DType::f64) == (weights == DType::f64),
               "cache: a cache of ", dtype, " for weights of ", weights,
               "; expected f64 for f64 weights, otherwise f32, bf16, f16 or u8 (8 bits)");
  LAMINA_CHECK(page_size_ >= kLeastPageSize && std::has_single_bit(static_cast<uint64_t>(page_size_)),
               "cache: pages of ", page_size_, " tokens; expected a power of two from ", kLeastPageSize, " on");
  if (pages_.size() == 1) pages_.assign(windows_.size(), pages_[0]);
  LAMINA_CHECK(pages_.size() == windows_.size(), "cache: page counts of ", pages_.size(), " groups; the model has ",
               windows_.size(), "; give one for each, or one for all");
  for (const int64_t count : pages_) {
    LAMINA_CHECK(count > 0, "cache: ", count, " pages; expected at least one");
  }
  const DType state_type = weights == DType::f64 ? DType::f64 : DType::f32;
  for (const CacheLayout& layout : layers) {
    LayerMemory& layer = layers_.emplace_back();
    if (layout.n_kv_heads > 0) {
      layer.group = group_of(layout.window);
      layer.pages = make_pages(layout, pages(layer.group), page_size_, dtype, device);
    }
    has_states_ = has_states_ || layout.conv || layout.scan;
    const int64_t slots = state_slots_ + 1;  // one more, for unused_slot()
    if (layout.conv) layer.conv = Tensor::zeros(in_slots(slots, *layout.conv), state_type, device);
    if (layout.scan) layer.scan = Tensor::zeros(in_slots(slots, *layout.scan), state_type, device);
  }
  LAMINA_CHECK(!has_states_ || state_slots_ > 0, "cache: ", state_slots_,
               " state slots for a model with recurrent states; expected one for each sequence");
}

int64_t SequenceCache::group_of(int64_t window) {
  return std::find(windows_.begin(), windows_.end(), window) - windows_.begin();
}

int64_t SequenceCache::bytes_per_page(int64_t group) const {
  int64_t total = 0;
  for (const LayerMemory& layer : layers_) {
    if (layer.group != group) continue;
    for (const Tensor& tensor : page_tensors(layer)) total += tensor.nbytes() / tensor.dim(0);
  }
  return total;
}

int64_t SequenceCache::bytes_per_state() const {
  int64_t total = 0;
  for (const LayerMemory& layer : layers_) {
    for (const Tensor& tensor : state_tensors(layer)) total += tensor.nbytes() / tensor.dim(0);
  }
  return total;
}

int64_t SequenceCache::bytes() const {
  int64_t total = bytes_per_state() * (state_slots_ + 1);
  for (int64_t group = 0; group < groups(); ++group) total += bytes_per_page(group) * pages(group);
  return total;
}

void SequenceCache::check_slot(const char* what, int64_t slot) const {
  LAMINA_CHECK(slot >= 0 && slot < state_slots_, "cache: ", what, " state slot ", slot, "; expected one in [0, ",
               state_slots_, ")");
}

void SequenceCache::copy_state(int64_t from_slot, int64_t to_slot) {
  check_slot("copying from", from_slot);
  check_slot("copying to", to_slot);
  if (from_slot == to_slot) return;
  for (const LayerMemory& layer : layers_) {
    for (const Tensor& tensor : state_tensors(layer)) {
      tensor.slice(0, to_slot, 1).copy_(tensor.slice(0, from_slot, 1));
    }
  }
}

void SequenceCache::clear_state(int64_t slot) {
  check_slot("clearing", slot);
  for (const LayerMemory& layer : layers_) {
    for (const Tensor& tensor : state_tensors(layer)) tensor.slice(0, slot, 1).fill_(0.0);
  }
}

void SequenceCache::copy_page(int64_t group, int64_t from, int64_t to) {
  LAMINA_CHECK(group >= 0 && group < groups(), "cache: copying a page of group ", group, "; expected one in [0, ",
               groups(), ")");
  for (const int64_t page : {from, to}) {
    LAMINA_CHECK(page >= 0 && page < pages(group), "cache: copying page ", from, " to ", to, "; expected pages in [0, ",
                 pages(group), ")");
  }
  if (from == to) return;
  for (const LayerMemory& layer : layers_) {
    if (layer.group != group) continue;
    for (const Tensor& tensor : page_tensors(layer)) tensor.slice(0, to, 1).copy_(tensor.slice(0, from, 1));
  }
}

}  // namespace lamina::nn
