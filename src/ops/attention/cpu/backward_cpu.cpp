// A task handles one block of keys of one KV head, with all queries of all heads that share this KV head. Kᵀ and Vᵀ are
// built once per task, dk and dv accumulate in private memory, and a tile costs five matrix products.
//
// Many tasks add to the same dq, always in the order of their key blocks. So dq is bit-identical for any number of
// threads and needs no second buffer. Tasks also start in that order, so a waiting task always waits for a running one.
// Concurrent tasks mostly belong to different heads and rarely wait. If there are too few heads, several tasks of one
// head run concurrently, one tile apart. Each goes through the queries from last to first, so with a sliding window it
// comes last to the queries that it shares with the previous task.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/attention/cpu/backward_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <atomic>
#include <cmath>

#include "lamina/ops/attention/cpu/backward_task-inl.h"
#include "lamina/ops/kernel_dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

/// Computes delta = Σ_d dy · y per query and head, and the gradient of the sinks per range of queries.
template <class T, class A = Accumulate<T>>
void dot_outputs(const AttentionBackward& args, const AttentionSizes& sizes, A* delta) {
  constexpr int64_t kGrain = 64;
  const int64_t rows = sizes.batch * sizes.seq_q;
  const int64_t ranges = (rows + kGrain - 1) / kGrain;
  const T* dy = args.dy.data<T>();
  const T* y = args.forward.y.data<T>();
  const A* sinks = args.dsinks.defined() ? args.forward.extras.sinks.data<A>() : nullptr;
  const A* row_max = args.forward.row_max.data<A>();
  const A* row_inv_sum = args.forward.row_inv_sum.data<A>();
  std::vector<A> partial(sinks != nullptr ? static_cast<size_t>(ranges * sizes.n_heads) : 0, A{0});
  args.dy.device().threads().ranges(rows, kGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
    const ComputeTag<T> d;
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t head = 0; head < sizes.n_heads; ++head) {
        const int64_t at = (row * sizes.n_heads + head) * sizes.d_v;
        auto sum = hn::Zero(d);
        for_vectors(d, sizes.d_v, [&](int64_t i, size_t n) HWY_ATTR {
          sum = hn::MulAdd(load_n(d, dy + at + i, n), load_n(d, y + at + i, n), sum);
        });
        const int64_t index = (row / sizes.seq_q * sizes.n_heads + head) * sizes.seq_q + row % sizes.seq_q;
        delta[index] = hn::GetLane(hn::SumOfLanes(d, sum));
        if (sinks == nullptr) continue;
        const A weight = std::exp(sinks[head] - row_max[index]) * row_inv_sum[index];
        partial[static_cast<size_t>(begin / kGrain * sizes.n_heads + head)] -= weight * delta[index];
      }
    }
  });
  if (sinks == nullptr) return;
  A* dsinks = args.dsinks.data<A>();
  std::fill(dsinks, dsinks + sizes.n_heads, A{0});
  for (size_t i = 0; i < partial.size(); ++i) dsinks[i % static_cast<size_t>(sizes.n_heads)] += partial[i];
}

/// Sums the T5 bucket gradients of all tasks, in the order of the tasks.
template <class A>
void sum_buckets(const BackwardShared<A>& shared, int64_t tasks, const Tensor& dt5) {
  const int64_t group = shared.sizes.group;
  A* to = dt5.data<A>();
  std::fill(to, to + dt5.numel(), A{0});
  const A* from = shared.dt5;
  for (int64_t task = 0; task < tasks; ++task) {
    const int64_t kv_head = task / shared.key_blocks % shared.sizes.n_kv_heads;
    for (int64_t h = 0; h < group; ++h) {
      for (int64_t bucket = 0; bucket < shared.buckets; ++bucket) {
        to[bucket * shared.sizes.n_heads + kv_head * group + h] += *from++;
      }
    }
  }
}

/// Number of key tiles per task. With more tiles the queries are loaded less often. Used only if there are many tasks
/// and the tiles fit the L2 cache.
int64_t key_tiles_per_task(const AttentionSizes& sizes) {
  const int64_t tasks = sizes.batch * sizes.n_kv_heads * (sizes.seq_k / (kMostKeyTiles * kTile));
  return tasks >= 64 && sizes.d_qk + sizes.d_v <= 256 ? kMostKeyTiles : 2;
}

/// Maps a start position to a task. Tasks are numbered KV head by KV head, but `side_by_side` KV heads run
/// concurrently, each with its key blocks in order.
int64_t task_at(int64_t turn, int64_t heads, int64_t key_blocks, int64_t side_by_side) {
  const int64_t first = turn / (side_by_side * key_blocks) * side_by_side;
  const int64_t within = turn - first * key_blocks;
  const int64_t width = std::min(side_by_side, heads - first);
  return (first + within % width) * key_blocks + within / width;
}

template <class T>
void backward(const AttentionBackward& args) {
  using A = Accumulate<T>;
  const AttentionForward& in = args.forward;
  const Device& device = in.q.device();
  const AttentionSizes sizes = attention_sizes(in);
  const AttentionMask mask = attention_mask(in);
  const int64_t key_tiles = key_tiles_per_task(sizes);
  const int64_t key_blocks = (sizes.seq_k + key_tiles * kTile - 1) / (key_tiles * kTile);
  const int64_t tasks = sizes.batch * sizes.n_kv_heads * key_blocks;
  const int64_t buckets = args.dt5_bias.defined() ? args.dt5_bias.dim(0) : 0;
  Tensor dq = std::is_same_v<T, A> ? args.dq : Tensor::empty(args.dq.shape(), dtype_of<A>(), device);
  const Tensor delta = Tensor::empty(in.row_max.shape(), dtype_of<A>(), device);
  const Tensor dt5 = Tensor::empty({tasks, sizes.group, buckets}, dtype_of<A>(), device);
  BackwardShared<A> shared{sizes,
                           mask,
                           distance_bias(in.options, in.extras, sizes.n_heads, sizes.seq_q, sizes.seq_k),
                           OrderedAccumulation(mask, sizes, kTile, key_tiles * kTile),
                           key_tiles,
                           key_blocks,
                           dq.data<A>(),
                           delta.data<A>(),
                           in.row_max.data<A>(),
                           in.row_inv_sum.data<A>(),
                           buckets > 0 ? dt5.data<A>() : nullptr,
                           buckets};
  dot_outputs<T>(args, sizes, delta.data<A>());
  dq.fill_(0.0);
  std::atomic<int64_t> next{0};
  const int64_t side_by_side = 2 * device.threads().count();
  device.threads().tasks(tasks, [&](int64_t /*any*/) {
    const int64_t turn = next.fetch_add(1);
    try {
      BackwardTask<T>(args, shared).run(task_at(turn, sizes.batch * sizes.n_kv_heads, key_blocks, side_by_side));
    } catch (const OrderedAccumulation::Abandoned&) {
      return;  // the task that failed reports the error
    } catch (...) {
      shared.turns.abandon();
      throw;
    }
  });
  if (buckets > 0) sum_buckets(shared, tasks, args.dt5_bias);
  if constexpr (!std::is_same_v<T, A>) Tensor(args.dq).copy_(dq);
}

void attention_backward(const AttentionBackward& args) {
  visit_floating(args.forward.q.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(attention_backward);
namespace cpu {
void attention_backward(const AttentionBackward& args) {
  require_kernel(args.dy.device(), "attention_backward", "cpu");
  HWY_DYNAMIC_DISPATCH(attention_backward)(args);
}
}  // namespace cpu
}  // namespace lamina::ops
#endif
