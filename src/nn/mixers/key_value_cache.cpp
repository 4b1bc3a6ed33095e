#include "lamina/nn/mixers/key_value_cache.h"

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

void KeyValueCache::write(const Tensor& k, const Tensor& v, const Pass& pass) {
  put(k_, k, pass);
  put(v_, v, pass);
}

Tensor KeyValueCache::read(const Tensor& cache, int64_t row, int64_t count, int64_t length, DType dtype) {
  return cache.slice(0, row, count).slice(2, 0, length).transpose(1, 2).to(dtype);
}

void KeyValueCache::reorder(std::span<const int64_t> sources) {
  reorder_rows(k_, sources);
  reorder_rows(v_, sources);
}

std::unique_ptr<LayerCache> KeyValueCache::rows(int64_t begin, int64_t count) const {
  return std::make_unique<KeyValueCache>(k_.slice(0, begin, count), v_.slice(0, begin, count));
}

}  // namespace lamina::nn
