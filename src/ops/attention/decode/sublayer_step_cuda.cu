// The whole attention sublayer of one token in one launch. A cluster of eight blocks owns a KV head with its queries.
// Each block handles some rows of their QKV projection and some rows of the output projection, restricted to that
// head's columns. It prefetches these weights to shared memory before it waits for the previous kernel. Then every
// block normalizes the residual stream itself and multiplies its rows; q, k and v are broadcast within the cluster, and
// each block rotates them. If there are few keys, every block attends to all of them, which is cheaper than an
// exchange. If there are many, each block attends to a share, and the results are exchanged once more. The attention
// output times the block's rows is a partial output of the sublayer; the consumer sums the parts in order.
#include "lamina/ops/attention/decode/sublayer_step.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::device_data;

template <class T>
__global__ void __launch_bounds__(kStepThreads, 2)
    attention_sublayer_kernel(const __grid_constant__ AttentionSublayerParams p) {
  extern __shared__ __align__(16) float shared_floats[];
  __shared__ float scratch[32];
  __shared__ ClusterMailbox arrivals;
  const Cluster cluster;
  if (threadIdx.x == 0) arrivals.expect(p.rows());
  __syncwarp();
  Cluster::arrive();
  const int d = p.d;
  const int width = p.heads_width();
  const SublayerMemory<T> memory(p, shared_floats);

  const int mine = cluster.rank * p.row_each;
  const RowProduct<1> project{min(p.row_each, p.rows() - mine), p.row_chunks(), p.row_lane_bits};
  const auto global_row = [&](int n) {  // rows of q, k and v
    const int local = mine + n;
    if (local < width) return cluster.id * width + local;
    const int part = local < width + d ? 0 : 1;
    return (p.n_heads + part * p.n_kv_heads + cluster.id) * d + local - width - part * d;
  };
  if (p.in.weights_just_written) lamina::cuda::grid_dependency_wait();
  project.stage(memory.staged,
                [&](int n, int /*tile*/) { return p.qkv + static_cast<int64_t>(global_row(n)) * p.row_chunks(); });
  lamina::cuda::cp_async_commit();
  const int out = cluster.rank * p.out_each;
  const RowProduct<1> merge{min(p.out_each, p.in.width - out), width / 8, p.out_lane_bits};
  merge.stage(memory.staged_out, [&](int n, int /*tile*/) {
    return p.out + (static_cast<int64_t>(out + n) * p.n_heads * d + cluster.id * width) / 8;
  });
  lamina::cuda::cp_async_commit();
  const LaneRole role(p);
  const int thread = role.thread;
  const HeadElements elements(d, thread);
  const int half = p.rotary_dim / 2;
  const bool second = p.interleaved ? thread % 2 != 0 : thread >= half;
  int angle = thread;
  if (p.table_row < p.rotary_dim) angle = p.interleaved ? thread / 2 : second ? thread - half : thread;
  float* part = p.parts + cluster.id * p.in.width + out;
  prefetch_keys<T>(p, cluster);
  Cluster::wait();
  lamina::cuda::grid_dependency_wait();
  const int64_t given = p.given_place();
  const int64_t position = p.given_position();
  int place = 0;
  bool split = false;
  KeySplit share(0, 0, false);
  float cosine = 1;
  float sine = 0;
  const float r = load_normalized_row(p.in, memory.row, scratch, [&] {
    const bool possible = given >= 0 && given < p.capacity;
    if (!possible && thread == 0) {
      lamina::cuda::report(p.faults, lamina::cuda::Fault::cache_place, given);
    }
    place = possible ? static_cast<int>(given) : -1;
    const int few = 2 * role.groups * kKeysAtOnce;  // up to this many keys, every block attends to all of them
    split = place >= few;
    share = KeySplit(min(place + 1, split ? p.capacity : few), cluster.rank, split);
    fetch_keys<T>(p, role, memory, cluster.id, share.begin, share.end, place);
    if (thread < p.rotary_dim) {
      const bool known = position >= 0 && position < p.table_rows;
      if (!known) lamina::cuda::report(p.faults, lamina::cuda::Fault::position, position);
      const int64_t at = (known ? position * p.table_row : 0) + angle;
      cosine = __ldg(p.cos + at);
      sine = __ldg(p.sin + at);
    }
  });
  lamina::cuda::cp_async_wait<2>();
  project.multiply(memory.staged, memory.row, [&](int n, const float(&sums)[1], int to) {
    const float value = sums[0] * r + (p.qkv_bias != nullptr ? __ldg(p.qkv_bias + global_row(n)) : 0.0F);
#pragma unroll 1
    for (; to < kStepBlocks; to += project.put_turns()) arrivals.send(memory.found + mine + n, to, value);
  });
  if (thread < d) {
    memory.angles[thread] = cosine;
    memory.angles[d + thread] = second ? sine : -sine;
  }
  __syncthreads();
  arrivals.wait();
  T* new_row = reinterpret_cast<T*>(memory.rotated + width);  // the new key and value in the cache's format
  rotate_heads(p, elements, memory, new_row);
  lamina::cuda::cp_async_wait<0>();
  __syncthreads();
  if (place >= share.begin && place < share.end && (split || cluster.rank == 0) && thread < 2 * d / kColumns) {
    const int of = thread * kColumns < d ? 0 : 1;
    reinterpret_cast<RawColumns<T>*>(static_cast<T*>(of == 0 ? p.k : p.v) +
                                     p.key_index(cluster.id, place) * d)[thread - of * d / kColumns] =
        reinterpret_cast<const RawColumns<T>*>(new_row)[thread];
  }
  float q[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) q[c] = role.inside ? memory.rotated[role.head * d + role.column + c] : 0.0F;
  LaneSums attended;
#pragma unroll 1
  // The loop bounds are uniform over the block.
  for (int first = share.begin; first < share.end; first += role.groups * kKeysAtOnce) {
    if (first != share.begin) {
      fetch_keys<T>(p, role, memory, cluster.id, first, share.end, place);
      lamina::cuda::cp_async_wait<0>();
    }
    attended.add_keys<T>(p, role, memory, q, new_row, first, share.end, place);
  }
  attended.store<T>(p, role, memory);
  __syncthreads();
  merge_heads<T>(p, role, elements, memory, cluster, split);
  __syncthreads();
  merge.multiply(memory.staged_out, memory.result, [&](int n, const float(&sums)[1], int to) {
    if (to != 0) return;
    const bool biased = p.out_bias != nullptr && cluster.id == 0;
    part[n] = sums[0] + (biased ? __ldg(p.out_bias + out + n) : 0.0F);
  });
}

}  // namespace

void attention_sublayer_step(const AttentionSublayerStep& args, Tensor& parts) {
  const char* op = "attention_sublayer_step";
  const Device& device = args.stream.x.device();
  const AttentionProjections& weights = args.weights;
  const bool taken = supports_sublayer_step(args.stream, {weights.qkv.plain, weights.qkv_bias, weights.out.plain,
                                                          weights.out_bias, args.k_cache, args.v_cache});
  constexpr int64_t kMostKeys = 2048;  // with more, the shares of eight blocks per KV head would be too long
  const int64_t group = weights.out.dim(1) / args.k_cache.dim(3) / args.k_cache.dim(1);
  if (!taken || group > kStepWarps || args.capacity() > kMostKeys) return;
  AttentionSublayerParams p{};
  static_cast<StepHeads&>(p) = step_heads(args);
  p.in = step_input(args.stream);
  p.qkv = packs_of(weights.qkv.plain);
  p.qkv_bias = device_data<float>(weights.qkv_bias);
  for (p.lanes = 8; p.lanes * kColumns < p.d;) p.lanes *= 2;
  p.row_each = ceil_div(p.rows(), kStepBlocks);
  p.out_each = ceil_div(p.in.width, kStepBlocks);
  p.row_lane_bits = lane_bits_for(p.row_each, p.row_chunks());
  p.out_lane_bits = lane_bits_for(p.out_each, p.heads_width() / 8);
  lamina::cuda::visit_floating(op, args.k_cache.dtype(), [&](auto tag) {
    using T = DeviceType<typename decltype(tag)::type>;
    const size_t shared = p.shared<T>();
    if (shared > most_step_bytes(device)) return;
    parts = Tensor::empty({p.n_kv_heads, p.in.width}, DType::f32, device);
    p.parts = parts.data<float>();
    launch_step(attention_sublayer_kernel<T>, p.n_kv_heads, shared, device, p, op);
  });
}

}  // namespace lamina::ops::cuda
