#include "lamina/nn/mixers/latent_cache.h"

namespace lamina::nn {
namespace {

void put(const Tensor& cache, const Tensor& fresh, int64_t offset) {
  cache.slice(2, offset, fresh.dim(1)).copy_(fresh.detach().transpose(1, 2));
}

}  // namespace

void LatentCache::write(const Tensor& fresh, const Pass& pass) {
  if (pass.offsets.empty()) return put(latents_, fresh, pass.offset);
  for (int64_t row = 0; row < pass.batch; ++row) {
    put(latents_.slice(0, row, 1), fresh.slice(0, row, 1), pass.offset_of(row));
  }
}

}  // namespace lamina::nn
