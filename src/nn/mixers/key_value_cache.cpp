#include "lamina/nn/mixers/key_value_cache.h"

#include "lamina/nn/mixers/attention.h"
#include "lamina/ops/attention/cache_store.h"
#include "lamina/ops/elementwise/concat.h"

namespace lamina::nn {

Tensor places_of(const ForwardContext& pass, const Device& device) {
  std::vector<int64_t> places;
  for (int64_t row = 0; row < pass.batch; ++row) places.push_back(pass.offset_of(row));
  return Tensor::from(places, {pass.batch}, device);
}

std::unique_ptr<KeyValueCache> KeyValueCache::make(const Shape& k, const Shape& v, int64_t window, DType dtype,
                                                   const Device& device) {
  // Half a window of slack, so that the window moves only once per window / 2 tokens.
  const int64_t room = window + std::max(kDecodeQueries, window / 2);
  const bool slides = window > 0 && room < k[2];
  const auto fitted = [&](Shape shape) {
    if (slides) shape[2] = room;
    return CachedTokens::make(shape, dtype, device);
  };
  std::unique_ptr<KeyValueCache> made(new KeyValueCache(fitted(k), fitted(v)));
  if (slides) {
    made->window_ = window;
    made->firsts_ = std::make_shared<std::vector<int64_t>>(static_cast<size_t>(k[0]), 0);
  }
  return made;
}

void KeyValueCache::write(const Tensor& k, const Tensor& v, const ForwardContext& pass) {
  if (!slides()) {
    ops::cache_store(k_.numbers, v_.numbers, k, v, places_of(pass, k.device()), scales());
    return;
  }
  for (int64_t row = 0; row < pass.batch; ++row) {
    write_row(k.slice(0, row, 1), v.slice(0, row, 1), row, pass.offset_of(row), pass.seq, pass.count_of(row));
  }
}

void KeyValueCache::write_row(const Tensor& k, const Tensor& v, int64_t row, int64_t offset, int64_t seq,
                              int64_t count) {
  if (offset == 0) reset(row);
  // attention_decode reads all seq tokens, so short calls write their padding, too.
  const int64_t fresh = seq <= kDecodeQueries ? seq : count;
  int64_t skipped = 0;
  if (offset - first(row) + fresh > k_.room()) {
    const int64_t needed = fresh <= kDecodeQueries ? offset - window_ + 1 : offset + fresh - window_;
    slide(row, std::max(needed, first(row)), offset);
    skipped = std::max<int64_t>(first(row) - offset, 0);
  }
  if (fresh == skipped) return;
  const Tensor place = Tensor::from(std::vector<int64_t>{offset + skipped - first(row)}, {1}, k.device());
  const CachedTokens own_k = k_.rows(row, 1);
  const CachedTokens own_v = v_.rows(row, 1);
  ops::cache_store(own_k.numbers, own_v.numbers, k.slice(1, skipped, fresh - skipped),
                   v.slice(1, skipped, fresh - skipped), place, {own_k.scales, own_v.scales});
}

void KeyValueCache::slide(int64_t row, int64_t first_kept, int64_t end) {
  const int64_t from = first_kept - first(row);
  const int64_t count = std::max<int64_t>(end - first_kept, 0);
  for (const CachedTokens& tokens : {k_, v_}) tokens.rows(row, 1).move_to_front(from, count);
  (*firsts_)[static_cast<size_t>(row0_ + row)] = first_kept;
}

void KeyValueCache::reset(int64_t row) {
  if (slides()) (*firsts_)[static_cast<size_t>(row0_ + row)] = 0;
}

int64_t KeyValueCache::shortest(int64_t row) const { return first(row) == 0 ? 0 : first(row) + window_ - 1; }

Tensor KeyValueCache::read_before(const CachedTokens& tokens, int64_t row, int64_t count, int64_t offset,
                                  DType dtype) const {
  const int64_t length = seen_before(offset);
  std::vector<Tensor> found;
  for (int64_t i = row; i < row + count; ++i) {
    found.push_back(tokens.rows(i, 1).read(offset - length - first(i), length, dtype));
  }
  return ops::concat(found, 0);
}

void KeyValueCache::reorder(std::span<const int64_t> sources) {
  k_.reorder(sources);
  v_.reorder(sources);
  if (!slides()) return;
  std::vector<int64_t> moved;
  for (const int64_t source : sources) moved.push_back(first(source));
  std::copy(moved.begin(), moved.end(), firsts_->begin() + row0_);
}

std::unique_ptr<LayerCache> KeyValueCache::rows(int64_t begin, int64_t count) const {
  std::unique_ptr<KeyValueCache> part(new KeyValueCache(k_.rows(begin, count), v_.rows(begin, count)));
  part->window_ = window_;
  part->firsts_ = firsts_;
  part->row0_ = row0_ + begin;
  return part;
}

}  // namespace lamina::nn
