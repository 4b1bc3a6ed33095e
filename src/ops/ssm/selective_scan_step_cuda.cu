// Two small kernels: propagation of states across segments, with one thread per element; and one position for decoding,
// where a group of lanes reads and writes the state of a channel once.
#include "lamina/ops/ssm/selective_scan.cuh"
#include "lamina/ops/ssm/selective_scan_kernel.h"

namespace lamina::ops::cuda {
namespace {

struct Carry {
  const float *a, *totals, *from;
  bool backwards;
  float *at, *out;
};

__global__ void carry_kernel(ScanShape shape, Carry args) {
  const int64_t item = blockIdx.x * int64_t{kScanThreads} + threadIdx.x;
  if (item >= shape.batch * shape.n * shape.channels) return;
  const int64_t channel = item % shape.channels;
  const int64_t i = item / shape.channels % shape.n;
  const int64_t batch = item / (shape.channels * shape.n);
  const int64_t outside = (batch * shape.channels + channel) * shape.n + i;
  const float a = args.a[i * shape.channels + channel];
  float state = args.from != nullptr ? args.from[outside] : 0.0F;
#pragma unroll 4
  for (int64_t k = 0; k < shape.segments; ++k) {
    const int64_t segment = batch * shape.segments + (args.backwards ? shape.segments - 1 - k : k);
    float& here = args.at[(segment * shape.n + i) * shape.channels + channel];
    const float added = here;
    here = state;
    state = fmaf(expf(a * args.totals[segment * shape.channels + channel]), state, added);
  }
  if (args.out != nullptr) args.out[outside] = state;
}

struct Step {
  const float *u, *delta, *z, *a, *b, *c, *d, *bias;
  bool with_softplus;
  float *state, *y;
  int64_t rows, channels, n;  // rows = batch · channels
  int group;
};

__global__ void step_kernel(Step s) {
  const int64_t row = (blockIdx.x * int64_t{kScanThreads} + threadIdx.x) / s.group;
  const int part = threadIdx.x % s.group;
  float sum = 0;
  if (row < s.rows) {
    const int64_t channel = row % s.channels;
    const int64_t mixed = row / s.channels * s.n;
    float step = s.delta[row] + (s.bias != nullptr ? s.bias[channel] : 0.0F);
    if (s.with_softplus) step = softplus(step);
    const float push = step * s.u[row];
    for (int64_t i = part; i < s.n; i += s.group) {
      float& h = s.state[row * s.n + i];
      h = fmaf(expf(step * s.a[channel * s.n + i]), h, push * s.b[mixed + i]);
      sum = fmaf(h, s.c[mixed + i], sum);
    }
  }
  sum = group_sum(sum, s.group);
  if (row >= s.rows || part != 0) return;
  if (s.d != nullptr) sum = fmaf(s.d[row % s.channels], s.u[row], sum);
  s.y[row] = s.z != nullptr ? sum * silu(s.z[row]) : sum;
}

}  // namespace

void propagate_states(const Device& device, const ScanShape& shape, const float* a, const float* totals,
                      const float* from, bool backwards, float* at, float* out) {
  const int64_t items = shape.batch * shape.n * shape.channels;
  if (items == 0) return;
  carry_kernel<<<lamina::cuda::blocks_for(items, kScanThreads), kScanThreads, 0, stream_of(device)>>>(
      shape, Carry{a, totals, from, backwards, at, out});
  check_launch("selective_scan");
}

void selective_scan_step(const SelectiveScanStep& args) {
  Step s{device_data<float>(args.u),
         device_data<float>(args.delta),
         device_data<float>(args.z),
         device_data<float>(args.a),
         device_data<float>(args.b),
         device_data<float>(args.c),
         device_data<float>(args.d),
         device_data<float>(args.delta_bias),
         args.delta_softplus,
         device_data<float>(args.state),
         device_data<float>(args.y),
         args.u.numel(),
         args.u.dim(1),
         args.a.dim(1),
         1};
  if (s.rows == 0) return;
  while (s.group < s.n && s.group < lamina::cuda::kWarp) s.group *= 2;
  const int blocks = lamina::cuda::blocks_for(s.rows * s.group, kScanThreads);
  step_kernel<<<blocks, kScanThreads, 0, stream_of(args.u.device())>>>(s);
  check_launch("selective_scan_step");
}

}  // namespace lamina::ops::cuda
