// Merges attention over a block of keys (MergeAttention): one warp per query and head, whose lanes hold the elements of
// the head. One pass over y and the block's output.
#include "lamina/ops/attention/merge_attention_kernel.h"
#include "lamina/ops/elementwise/elements.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kWarps = 4;

struct MergeParams {
  float* y;
  float* log_sum_exp;
  const float* row_max;
  const float* row_inv_sum;  // null: row_max holds log Σ exp(score)
  int64_t rows;              // batch · queries · heads
  int64_t seq;
  int64_t heads;
  int64_t width;
  int64_t count;
  int64_t first;
};

template <class T>
__global__ void __launch_bounds__(kWarps * 32) merge_kernel(MergeParams p, const T* block) {
  const int lane = threadIdx.x % 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= p.rows) return;
  const int64_t h = row % p.heads;
  const int64_t i = row / p.heads % p.count;
  const int64_t b = row / p.heads / p.count;
  const int64_t statistic = (b * p.heads + h) * p.count + i;
  const float inverse = p.row_inv_sum == nullptr ? 1.0F : p.row_inv_sum[statistic];
  if (inverse == 0.0F) return;  // no key of the block is visible
  const float added = p.row_max[statistic] - logf(inverse);
  float* sum_at = p.log_sum_exp + (b * p.heads + h) * p.seq + p.first + i;
  const float sum = *sum_at;
  const float larger = fmaxf(sum, added);
  const float total = larger + logf(expf(sum - larger) + expf(added - larger));
  const float keep = expf(sum - total);
  const float take = expf(added - total);
  __syncwarp();  // all lanes have read log_sum_exp
  if (lane == 0) *sum_at = total;
  float* to = p.y + ((b * p.seq + p.first + i) * p.heads + h) * p.width;
  const T* from = block + row * p.width;
  for (int64_t d = lane; d < p.width; d += 32) to[d] = to[d] * keep + to_float(from[d]) * take;
}

}  // namespace

void merge_attention(const MergeAttention& args) {
  const Tensor& y = args.y;
  const int64_t count = args.block_y.dim(1);
  const int64_t rows = y.dim(0) * count * y.dim(2);
  if (rows == 0) return;
  const MergeParams params{y.data<float>(),
                           args.log_sum_exp.data<float>(),
                           args.row_max.data<float>(),
                           args.saved_log_sum_exp ? nullptr : args.row_inv_sum.data<float>(),
                           rows,
                           y.dim(1),
                           y.dim(2),
                           y.dim(3),
                           count,
                           args.first};
  visit_floating("context_attention", args.block_y.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    const auto blocks = static_cast<unsigned>((rows + kWarps - 1) / kWarps);
    merge_kernel<<<blocks, kWarps * 32, 0, stream_of(y.device())>>>(params, device_data<E>(args.block_y));
    check_launch("context_attention");
  });
}

}  // namespace lamina::ops::cuda
