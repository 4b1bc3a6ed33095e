// One block per row; the row stays in cache while it is read several times. If there are few rows, a cluster of blocks
// per row finds the largest logit, because one block alone cannot use the memory bandwidth.
//
// Probabilities are integers in units of 2^-40, so their sums do not depend on the order. The thresholds of top_k and
// top_p solve the same problem: find the largest key such that enough tokens, or enough probability, have keys at least
// as large. A radix search finds it, with two bits per pass over the row. Finally each thread sums a range of
// consecutive ids, and the thread whose range contains the random number searches its range.
#include <algorithm>

#include "lamina/base/philox.h"
#include "lamina/ops/elementwise/increment_kernel.h"
#include "lamina/ops/linear/fused/row_step.cuh"
#include "lamina/ops/sampling/block_mass.cuh"
#include "lamina/ops/sampling/sample_kernel.h"

namespace lamina::ops::cuda {
namespace {

using namespace sampling;  // NOLINT: kernel helpers

constexpr int kSampleThreads = kMassThreads;
constexpr int64_t kFewSampled = 8;     // up to this many rows are sampled by clusters
constexpr Mass kRankOfNan = ~Mass{0};  // Argmax::rank of NaN

/// Maps floats to unsigned integers in the same order; both zeros map to the same integer.
__device__ uint32_t key_of(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

template <class T>
struct RowOfLogits {
  const T* logits;
  int64_t vocab;
  float most;
  float temperature;

  __device__ float at(int64_t id) const { return to_float(logits[id]); }
  __device__ float weight(float logit) const { return expf((logit - most) / temperature); }
  __device__ Mass mass(float logit) const { return static_cast<Mass>(weight(logit) * kMassUnit); }
};

/// The largest key k such that the tokens with keys ≥ k have a total worth(logit, key) of at least `enough`.
template <class T, class Worth>
__device__ uint32_t row_threshold(const RowOfLogits<T>& row, Mass enough, Mass* scratch, const Worth& worth) {
  return radix_threshold(enough, scratch, [&](auto&& item) {
    for (int64_t id = threadIdx.x; id < row.vocab; id += kSampleThreads) {
      const float logit = row.at(id);
      const uint32_t key = key_of(logit);
      item(key, [&] { return worth(logit, key); });
    }
  });
}

/// The tokens that the filters keep: those with keys above `bound`, and the first `on_bound` of those with keys equal
/// to it.
struct Filtered {
  uint32_t bound = 0;
  Mass on_bound = ~Mass{0};
  float least_weight = 0;
};

template <class T>
__device__ Filtered filtered(const RowOfLogits<T>& row, const SampleOptions& options, Mass* scratch) {
  Filtered kept;
  kept.least_weight = static_cast<float>(options.min_p);
  if (options.top_k > 0 && options.top_k < row.vocab) {
    kept.bound = row_threshold(row, static_cast<Mass>(options.top_k), scratch, [](float, uint32_t) { return Mass{1}; });
  }
  if (options.top_p >= 1) return kept;
  const uint32_t floor = kept.bound;
  Mass own = 0;
  for (int64_t id = threadIdx.x; id < row.vocab; id += kSampleThreads) {
    const float logit = row.at(id);
    if (key_of(logit) >= floor) own += row.mass(logit);
  }
  const Mass all = block_total(own, scratch);
  const Mass to_drop = min(static_cast<Mass>((1 - options.top_p) * static_cast<double>(all)), all - 1);
  const auto mass = [&](float logit, uint32_t key) { return key >= floor ? row.mass(logit) : Mass{0}; };
  kept.bound = max(row_threshold(row, all - to_drop, scratch, mass), floor);
  Mass below = 0;
  Mass equals = 0;
  for (int64_t id = threadIdx.x; id < row.vocab; id += kSampleThreads) {
    const float logit = row.at(id);
    const uint32_t key = key_of(logit);
    if (key >= floor && key < kept.bound) below += row.mass(logit);
    equals += key == kept.bound ? 1 : 0;
  }
  below = block_total(below, scratch);
  equals = block_total(equals, scratch);
  const uint32_t bits = (kept.bound & 0x80000000U) != 0 ? kept.bound & 0x7fffffffU : ~kept.bound;
  const Mass each = row.mass(__uint_as_float(bits));
  kept.on_bound = equals - (each == 0 ? 0 : min((to_drop - below) / each, equals - 1));
  return kept;
}

/// The largest logit that a thread has seen. A thread sees ascending ids, so among ties the lowest id wins.
struct Argmax {
  float most = -INFINITY;
  int id = -1;
  bool has_nan = false;

  __device__ void add(float logit, int its_id) {
    has_nan = has_nan || isnan(logit);
    if (id >= 0 && !(logit > most)) return;
    most = logit;
    id = its_id;
  }
  /// The logit and the id as one integer: a larger logit ranks higher, then a lower id. 0 if nothing was seen,
  /// kRankOfNan for NaN.
  __device__ Mass rank() const {
    if (has_nan) return kRankOfNan;
    return id < 0 ? 0 : (Mass{key_of(most)} << 32U) | (0xffffffffU - static_cast<uint32_t>(id));
  }
  __device__ static int64_t id_of(Mass rank) { return 0xffffffffU - static_cast<uint32_t>(rank); }
};

/// The highest Argmax::rank in a block's part of the row, returned in every thread. The row is divided among `shares`
/// blocks.
template <class T>
__device__ Mass highest_rank(const RowOfLogits<T>& row, bool packed, int share, int shares, Mass* scratch) {
  Argmax met;
  const int begin = share * kSampleThreads + static_cast<int>(threadIdx.x);
  const int hop = shares * kSampleThreads;
  if (packed) {
    constexpr int kAhead = 8;  // packs per thread in flight
    const int packs = static_cast<int>(row.vocab) / Pack<T>::kSize;
    for (int first = begin; first < packs; first += kAhead * hop) {
      Pack<T> held[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const int p = first + k * hop;
        if (p < packs) held[k] = load_pack(row.logits + p * Pack<T>::kSize);
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const int p = first + k * hop;
        if (p >= packs) break;
#pragma unroll
        for (int j = 0; j < Pack<T>::kSize; ++j) met.add(to_float(held[k].values[j]), p * Pack<T>::kSize + j);
      }
    }
  } else {
    for (int id = begin; id < row.vocab; id += hop) met.add(row.at(id), id);
  }
  return block_largest(met.rank(), scratch);
}

/// The highest rank of the cluster's blocks; valid in the first block.
__device__ Mass highest_of_cluster(Mass rank, int share, Mass (&ranks)[kStepBlocks]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  Cluster::wait();
  if (threadIdx.x == 0) {
    asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(Cluster::address_in(0, ranks + share)), "l"(rank) : "memory");
  }
  Cluster::meet();
#endif
  return warp_largest(ranks[threadIdx.x % kStepBlocks]);
}

/// Returns, in every thread, the first token whose cumulative probability exceeds the random number, or `otherwise` if
/// no token has a probability, as with infinite logits.
template <class T>
__device__ int64_t drawn_token(const RowOfLogits<T>& row, const Filtered& kept, uint64_t word, int64_t otherwise,
                               Mass* scratch) {
  __shared__ long long chosen;
  if (threadIdx.x == 0) chosen = otherwise;
  const int64_t each = (row.vocab + kSampleThreads - 1) / kSampleThreads;
  const int64_t begin = min(threadIdx.x * each, row.vocab);
  const int64_t end = min(begin + each, row.vocab);
  Mass equals = 0;
  if (kept.on_bound != ~Mass{0}) {
    for (int64_t id = begin; id < end; ++id) equals += key_of(row.at(id)) == kept.bound ? 1 : 0;
    equals = total_before(equals, scratch);
  }
  const auto visit_kept = [&](auto&& visit) {
    Mass met = equals;
    for (int64_t id = begin; id < end; ++id) {
      const float logit = row.at(id);
      const uint32_t key = key_of(logit);
      if (key < kept.bound || (key == kept.bound && met++ >= kept.on_bound)) continue;
      if (row.weight(logit) >= kept.least_weight && visit(id, row.mass(logit))) return;
    }
  };
  Mass own = 0;
  visit_kept([&](int64_t, Mass mass) {
    own += mass;
    return false;
  });
  Mass before = total_before(own, scratch);
  const Mass all = block_total(own, scratch);
  const Mass target = __umul64hi(word, all);
  if (own > 0 && before <= target && target < before + own) {
    visit_kept([&](int64_t id, Mass mass) {
      before += mass;
      if (before <= target) return false;
      chosen = id;
      return true;
    });
  }
  __syncthreads();
  return chosen;
}

template <class T>
struct Samples {
  const T* logits;  ///< [rows, vocab]
  int64_t vocab;
  bool packed;
  int shares;  ///< blocks per row: one, or a cluster
  const int64_t* streams;
  int64_t* drawn;
  int64_t* ids;
  int64_t* clock;
  int64_t counters;  ///< number of elements of the clock
  SampleOptions options;
  FaultSlot* faults;
};

template <class T>
__global__ __launch_bounds__(kSampleThreads) void sample_kernel(const __grid_constant__ Samples<T> p) {
  __shared__ Mass scratch[3 * kWarp];
  __shared__ Mass ranks[kStepBlocks];
  const int r = static_cast<int>(blockIdx.x) / p.shares;
  const int share = static_cast<int>(blockIdx.x) % p.shares;
  if (p.shares > 1) Cluster::arrive();
  grid_dependency_wait();
  RowOfLogits<T> row{p.logits + r * p.vocab, p.vocab, 0, static_cast<float>(p.options.temperature)};
  Mass rank = highest_rank(row, p.packed, share, p.shares, scratch);
  if (p.shares > 1) rank = highest_of_cluster(rank, share, ranks);
  if (share != 0) return;
  int64_t id = Argmax::id_of(rank);
  if (rank == kRankOfNan && threadIdx.x == 0) report(p.faults, Fault::logit, r);
  if (rank != kRankOfNan && p.options.temperature > 0) {
    row.most = row.at(id);
    const Filtered kept = filtered(row, p.options, scratch);
    const RandomKey key{p.options.seed, static_cast<uint64_t>(p.streams[r])};
    const auto bits = philox(key, static_cast<uint64_t>(p.drawn[r]));
    id = drawn_token(row, kept, (uint64_t{bits[0]} << 32U) | bits[1], id, scratch);
  }
  if (r == 0) {
    for (int64_t n = threadIdx.x; n < p.counters; n += kSampleThreads) ++p.clock[n];
  }
  if (threadIdx.x != 0) return;
  p.ids[r] = id;
  ++p.drawn[r];
}

}  // namespace

void sample(const SampleArgs& args) {
  const Device& device = args.logits.device();
  const int64_t rows = args.logits.dim(0);
  const int64_t vocab = args.logits.dim(1);
  if (rows == 0) {
    if (args.clock.defined()) increment_(args.clock);
    return;
  }
  LAMINA_CHECK(vocab <= (int64_t{1} << 23), "sample: a vocabulary of ", vocab, " on a cuda device; expected at most ",
               int64_t{1} << 23, "; sample on the cpu");
  visit_floating("sample", args.logits.dtype(), [&](auto tag) {
    using T = DeviceType<typename decltype(tag)::type>;
    const auto* logits = static_cast<const T*>(args.logits.raw());
    const Samples<T> p{.logits = logits,
                       .vocab = vocab,
                       .packed = is_pack_aligned(logits, vocab),
                       .shares = rows <= kFewSampled && has_dependent_launch(device) ? kStepBlocks : 1,
                       .streams = args.streams.data<int64_t>(),
                       .drawn = args.drawn.data<int64_t>(),
                       .ids = args.ids.data<int64_t>(),
                       .clock = device_data<int64_t>(args.clock),
                       .counters = args.clock.defined() ? args.clock.numel() : 0,
                       .options = args.options,
                       .faults = fault_slot(device)};
    launch_dependent_clusters(sample_kernel<T>, p.shares, dim3(static_cast<unsigned>(rows * p.shares)),
                              dim3(kSampleThreads), 0, device, p);
    check_launch("sample");
  });
}

}  // namespace lamina::ops::cuda
