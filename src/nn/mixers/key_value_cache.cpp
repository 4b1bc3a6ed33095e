#include "lamina/nn/mixers/key_value_cache.h"

#include "lamina/nn/mixers/attention.h"
#include "lamina/ops/attention/cache_store.h"
#include "lamina/ops/elementwise/concat.h"

namespace lamina::nn {
namespace {

void put_at(const Tensor& cache, const Tensor& fresh, int64_t offset) {
  cache.slice(2, offset, fresh.dim(1)).copy_(fresh.detach().transpose(1, 2));
}

}  // namespace

void KeyValueCache::put(const Tensor& cache, const Tensor& fresh, const Pass& pass) {
  if (pass.offsets.empty()) return put_at(cache, fresh, pass.offset);
  for (int64_t row = 0; row < pass.batch; ++row) {
    put_at(cache.slice(0, row, 1), fresh.slice(0, row, 1), pass.offset_of(row));
  }
}

std::unique_ptr<KeyValueCache> KeyValueCache::make(const Shape& k, const Shape& v, int64_t window, DType dtype,
                                                   const Device& device) {
  // Half a window more than is needed: one move of the window for that many tokens.
  const int64_t room = window + std::max(kDecodeQueries, window / 2);
  const bool slides = window > 0 && room < k[2];
  const auto fitted = [&](Shape shape) {
    if (slides) shape[2] = room;
    return Tensor::empty(shape, dtype, device);
  };
  std::unique_ptr<KeyValueCache> made(new KeyValueCache(fitted(k), fitted(v)));
  if (slides) {
    made->window_ = window;
    made->firsts_ = std::make_shared<std::vector<int64_t>>(static_cast<size_t>(k[0]), 0);
  }
  return made;
}

void KeyValueCache::write(const Tensor& k, const Tensor& v, const Pass& pass) {
  if (!slides()) {
    put(k_, k, pass);
    put(v_, v, pass);
    return;
  }
  for (int64_t row = 0; row < pass.batch; ++row) {
    write_row(k.slice(0, row, 1), v.slice(0, row, 1), row, pass.offset_of(row), pass.seq, pass.count_of(row));
  }
}

void KeyValueCache::write_row(const Tensor& k, const Tensor& v, int64_t row, int64_t offset, int64_t seq,
                              int64_t count) {
  if (offset == 0) reset(row);
  // Padding is written only where it is read along: by attention_decode.
  const int64_t fresh = seq <= kDecodeQueries ? seq : count;
  int64_t skipped = 0;
  if (offset - first(row) + fresh > k_.dim(2)) {
    const int64_t needed = fresh <= kDecodeQueries ? offset - window_ + 1 : offset + fresh - window_;
    slide(row, std::max(needed, first(row)), offset);
    skipped = std::max<int64_t>(first(row) - offset, 0);
  }
  if (fresh == skipped) return;
  const int64_t to = offset + skipped - first(row);
  put_at(k_.slice(0, row, 1), k.slice(1, skipped, fresh - skipped), to);
  put_at(v_.slice(0, row, 1), v.slice(1, skipped, fresh - skipped), to);
}

void KeyValueCache::prepare_step(std::span<const int64_t> lengths) {
  if (!slides()) return;
  std::vector<int64_t> places;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    if (lengths[i] - first(row) + 1 > k_.dim(2)) slide(row, lengths[i] - window_ + 1, lengths[i]);
    places.push_back(lengths[i] - first(row));
  }
  if (!clock_) clock_ = std::make_unique<DeviceClock>(k_.dim(0), k_.device());
  if (places != clock_places_) clock_->set(places);
  for (int64_t& place : places) ++place;
  clock_places_ = std::move(places);
}

Tensor KeyValueCache::write_step(const Tensor& k, const Tensor& v, const DeviceClock& clock) {
  const DeviceClock& own = slides() ? *clock_ : clock;
  ops::cache_store(k_, v_, k, v, own.places());
  if (!slides()) return clock.lengths();
  clock_->advance();
  return clock_->places();  // counted on: those before this token, and it
}

void KeyValueCache::slide(int64_t row, int64_t first_kept, int64_t end) {
  const int64_t from = first_kept - first(row);
  const int64_t count = std::max<int64_t>(end - first_kept, 0);
  for (const Tensor& cache : {k_, v_}) {
    const Tensor held = cache.slice(0, row, 1);
    if (count > 0) held.slice(2, 0, count).copy_(held.slice(2, from, count).clone());
  }
  (*firsts_)[static_cast<size_t>(row0_ + row)] = first_kept;
}

void KeyValueCache::reset(int64_t row) {
  if (slides()) (*firsts_)[static_cast<size_t>(row0_ + row)] = 0;
}

int64_t KeyValueCache::shortest(int64_t row) const { return first(row) == 0 ? 0 : first(row) + window_ - 1; }

Tensor KeyValueCache::read_before(const Tensor& cache, int64_t row, int64_t count, int64_t offset, DType dtype) const {
  const int64_t length = seen_before(offset);
  std::vector<Tensor> found;
  for (int64_t i = row; i < row + count; ++i) {
    found.push_back(cache.slice(0, i, 1).slice(2, offset - length - first(i), length).transpose(1, 2));
  }
  return ops::concat(found, 0).to(dtype);
}

Tensor KeyValueCache::read(const Tensor& cache, int64_t row, int64_t count, int64_t length, DType dtype) {
  return cache.slice(0, row, count).slice(2, 0, length).transpose(1, 2).to(dtype);
}

void KeyValueCache::reorder(std::span<const int64_t> sources) {
  reorder_rows(k_, sources);
  reorder_rows(v_, sources);
  if (!slides()) return;
  std::vector<int64_t> moved;
  for (const int64_t source : sources) moved.push_back(first(source));
  std::copy(moved.begin(), moved.end(), firsts_->begin() + row0_);
}

std::unique_ptr<LayerCache> KeyValueCache::rows(int64_t begin, int64_t count) const {
  std::unique_ptr<KeyValueCache> part(new KeyValueCache(k_.slice(0, begin, count), v_.slice(0, begin, count)));
  part->window_ = window_;
  part->firsts_ = firsts_;
  part->row0_ = row0_ + begin;
  return part;
}

}  // namespace lamina::nn
