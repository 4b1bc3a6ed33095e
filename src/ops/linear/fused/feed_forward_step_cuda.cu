// A whole feed-forward sublayer for one token in one launch. A cluster of eight blocks owns a slice of the hidden
// units. Each block computes some of these units. For the second product it computes some output rows, restricted to
// the columns of the slice.
//
// Each block prefetches its weights to shared memory before it waits for the previous kernel. So only this remains on
// the critical path between two launches: the residual stream, its norm, two short products from shared memory and one
// exchange of units within the cluster. Each cluster yields a partial output; the consumer sums the parts in order.
#include "lamina/ops/activation/gated_activation.cuh"
#include "lamina/ops/linear/fused/row_step.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers

struct FeedForwardStepParams {
  StepInput in;
  const uint4* first;        ///< [d_ff or 2·d_ff, width]
  const float* first_bias;   ///< [d_ff or 2·d_ff], or null
  const uint4* second;       ///< [width, d_ff]
  const float* second_bias;  ///< [width], or null
  float* parts;              ///< [clusters, width]
  int d_ff;
  int slice;     ///< hidden units per cluster, a multiple of 8
  int each;      ///< hidden units per block
  int next;      ///< number of weight rows from one unit to the next
  int up;        ///< number of weight rows from a unit's gate to its up
  int out_each;  ///< rows of the second weight that a block multiplies
  int first_lane_bits, second_lane_bits;
  Activation activation;
  Gate gate;
  GateUnit unit;

  __host__ __device__ int row_chunks() const { return in.width / 8; }
  size_t shared(int tiles) const {
    return sizeof(float) * static_cast<size_t>(in.width + slice) +
           sizeof(uint4) * static_cast<size_t>(each * tiles * row_chunks() + out_each * (slice / 8));
  }
};

/// kTiles is 2 for gated units (a gate and an up per unit), else 1.
template <int kTiles>
__global__ void __launch_bounds__(kStepThreads)
    feed_forward_step_kernel(const __grid_constant__ FeedForwardStepParams p) {
  extern __shared__ __align__(16) float shared_floats[];
  __shared__ float scratch[32];
  __shared__ ClusterMailbox arrivals;
  const Cluster cluster;
  const int begin = cluster.id * p.slice;
  const int count = min(p.slice, p.d_ff - begin);  // hidden units of this cluster
  if (threadIdx.x == 0) arrivals.expect(count);
  __syncwarp();
  Cluster::arrive();
  float* row = shared_floats;       // [width]: the normalized residual stream
  float* units = row + p.in.width;  // [slice]: the hidden units of this cluster
  auto* staged = reinterpret_cast<uint4*>(units + p.slice);
  const int mine = cluster.rank * p.each;
  const RowProduct<kTiles> widen{min(p.each, count - mine), p.row_chunks(), p.first_lane_bits};
  const auto first_row = [&](int unit) { return (begin + mine + unit) * p.next; };
  if (p.in.weights_just_written) lamina::cuda::grid_dependency_wait();
  widen.stage(staged, [&](int unit, int tile) {
    return p.first + static_cast<int64_t>(first_row(unit) + tile * p.up) * p.row_chunks();
  });
  lamina::cuda::cp_async_commit();
  const int out = cluster.rank * p.out_each;
  const RowProduct<1> narrow{min(p.out_each, p.in.width - out), count / 8, p.second_lane_bits};
  uint4* staged_second = staged + p.each * kTiles * p.row_chunks();
  narrow.stage(staged_second,
               [&](int n, int /*tile*/) { return p.second + (static_cast<int64_t>(out + n) * p.d_ff + begin) / 8; });
  lamina::cuda::cp_async_commit();
  float* part = p.parts + cluster.id * p.in.width + out;
  Cluster::wait();
  lamina::cuda::grid_dependency_wait();
  const float r = load_normalized_row(p.in, row, scratch, [] {});
  lamina::cuda::cp_async_wait<1>();
  widen.multiply(staged, row, [&](int unit, float(&sums)[kTiles], int to) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      sums[t] *= r;
      if (p.first_bias != nullptr) sums[t] += __ldg(p.first_bias + first_row(unit) + t * p.up);
    }
    float result;
    if constexpr (kTiles == 2) {
      result = gate_value(p.unit, AnyGate<float>{p.gate}, {sums[0], sums[1]});
    } else {
      result = activation_value(p.activation, sums[0]);
    }
#pragma unroll 1
    for (; to < kStepBlocks; to += widen.put_turns()) arrivals.send(units + mine + unit, to, result);
  });
  arrivals.wait();
  lamina::cuda::cp_async_wait<0>();
  narrow.multiply(staged_second, units, [&](int n, const float(&sums)[1], int to) {
    if (to != 0) return;
    const bool biased = p.second_bias != nullptr && cluster.id == 0;
    part[n] = sums[0] + (biased ? __ldg(p.second_bias + out + n) : 0.0F);
  });
}

/// Divides the units among clusters and blocks. Uses few clusters, because every block of the next kernel reads all
/// parts. Uses more if a block would otherwise need so much shared memory that a block of the attention kernel does not
/// fit on the same SM.
bool divide_units(FeedForwardStepParams& p, int tiles, size_t most_bytes) {
  constexpr size_t kSharedWithAttention = 112 * 1024;
  for (const int clusters : {8, 16}) {
    p.slice = ceil_div(ceil_div(p.d_ff, clusters), 8) * 8;
    p.each = ceil_div(p.slice, kStepBlocks);
    p.first_lane_bits = lane_bits_for(p.each * tiles, p.row_chunks());
    p.second_lane_bits = lane_bits_for(p.out_each, p.slice / 8);
    if (p.shared(tiles) <= std::min(kSharedWithAttention, most_bytes)) return true;
  }
  return p.shared(tiles) <= most_bytes;
}

}  // namespace

void feed_forward_step(const FeedForwardStep& args, Tensor& parts) {
  const Device& device = args.stream.x.device();
  const Tensor& up = args.weights.up;
  const Tensor& down = args.weights.down;
  if (!supports_sublayer_step(args.stream, {up, down, args.weights.up_bias, args.weights.down_bias})) return;
  const auto units = static_cast<int>(down.dim(1));
  if (units % 8 != 0) return;
  FeedForwardStepParams p{.in = step_input(args.stream),
                          .first = packs_of(up),
                          .first_bias = device_data<float>(args.weights.up_bias),
                          .second = packs_of(down),
                          .second_bias = device_data<float>(args.weights.down_bias),
                          .parts = nullptr,
                          .d_ff = units,
                          .slice = 0,
                          .each = 0,
                          .next = args.gated && args.options.interleaved ? 2 : 1,
                          .up = args.options.interleaved ? 1 : units,
                          .out_each = ceil_div(static_cast<int>(down.dim(0)), kStepBlocks),
                          .first_lane_bits = 0,
                          .second_lane_bits = 0,
                          .activation = args.activation,
                          .gate = args.gate,
                          .unit = GateUnit(args.options)};
  const int tiles = args.gated ? 2 : 1;
  if (!divide_units(p, tiles, most_step_bytes(device))) return;
  const int clusters = ceil_div(units, p.slice);
  parts = Tensor::empty({clusters, p.in.width}, DType::f32, device);
  p.parts = parts.data<float>();
  launch_step(args.gated ? feed_forward_step_kernel<2> : feed_forward_step_kernel<1>, clusters, p.shared(tiles), device,
              p, "feed_forward_step");
}

}  // namespace lamina::ops::cuda
