// Two launches for all rows. The first reads every logit once: a warp takes a segment of 1024 ids and stores its
// largest adjusted logit and two sums of exponentials, one of the model's logits and one of the adjusted logits. The
// second has one block per row and works on the segments. Greedy rows need nothing else. Sampling without filters
// chooses a segment and reads only that one again. Filters (sample_rows_filter.cuh) read the row again.
#include <algorithm>

#include "lamina/base/philox.h"
#include "lamina/ops/sampling/sample_rows_filter.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace sampling;  // NOLINT: kernel helpers

constexpr const char* kRowsName = "sample_rows";
constexpr int kSurveyThreads = 256;
constexpr int kEach = kSegment / kWarp;  // ids per lane
constexpr int kCountThreads = 256;

/// The n-th id of a lane within a segment. A lane has packs of kPack consecutive ids.
template <int kPack>
__device__ int id_in_segment(int lane, int n) {
  return (n / kPack * kWarp + lane) * kPack + n % kPack;
}

template <class T, int kPack>
__global__ void __launch_bounds__(kSurveyThreads) survey_kernel(const __grid_constant__ Params p) {
  grid_dependency_wait();
  const int segment = static_cast<int>(blockIdx.x * (kSurveyThreads / kWarp) + threadIdx.x / kWarp);
  if (segment >= p.segments) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Row<T> row(p, blockIdx.y);
  const T* logits = row.logits() + static_cast<int64_t>(segment) * kSegment;
  const int count = p.vocab - segment * kSegment;
  float z[kEach];
#pragma unroll
  for (int n = 0; n < kEach; n += kPack) {
    const int at = id_in_segment<kPack>(lane, n);
    if constexpr (kPack > 1) {
      Pack<T> pack;
      if (at < count) pack = load_pack(logits + at);  // a pack never ends outside the row
#pragma unroll
      for (int i = 0; i < kPack; ++i) z[n + i] = at + i < count ? to_float(pack.values[i]) : -INFINITY;
    } else {
      z[n] = at < count ? to_float(logits[at]) : -INFINITY;
    }
  }
  Segment found{0, -INFINITY, 0, -INFINITY, 0};
  bool nan = false;
#pragma unroll
  for (int n = 0; n < kEach; ++n) {
    nan = nan || isnan(z[n]);
    found.raw_max = fmaxf(found.raw_max, z[n]);
  }
  found.raw_max = warp_max(found.raw_max);
  if (p.logprobs != nullptr && found.raw_max > -INFINITY) {
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kEach; ++n) sum += fast_exp2((z[n] - found.raw_max) * kLog2E);
    found.raw_sum = warp_sum(sum);
  }
  const bool adjusts = p.adjusts();
  Mass rank = 0;
  float most = -INFINITY;
#pragma unroll
  for (int n = 0; n < kEach; ++n) {
    const int at = id_in_segment<kPack>(lane, n);
    const int id = segment * kSegment + at;
    const bool allowed = at < count && (!adjusts || row.allows(id));
    if (adjusts && allowed) z[n] = row.adjusted(id, z[n]);
    nan = nan || (adjusts && allowed && isnan(z[n]));
    if (!allowed) z[n] = -INFINITY;
    if (allowed) rank = max(rank, rank_of(z[n], id));
    most = fmaxf(most, z[n]);
  }
  found.rank = __any_sync(kAllLanes, nan) ? kNanRank : warp_largest(rank);
  found.max = warp_max(most);
  if (row.temperature > 0) {
    if (!adjusts && row.temperature == 1 && p.logprobs != nullptr) {
      found.sum = found.raw_sum;
    } else if (found.max > -INFINITY) {
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kEach; ++n) sum += fast_exp2((z[n] - found.max) * row.per_log2);
      found.sum = warp_sum(sum);
    }
  }
  if (lane == 0) p.surveys[static_cast<int64_t>(blockIdx.y) * p.segments + segment] = found;
}

/// log Σ exp(logit) over the model's logits of a row, from its segments.
__device__ float log_total(const Params& p, const Segment* surveys, float* scratch) {
  float most = -INFINITY;
  for (int s = static_cast<int>(threadIdx.x); s < p.segments; s += kChooseThreads)
    most = fmaxf(most, surveys[s].raw_max);
  most = block_max(most, scratch);
  float sum = 0;
  for (int s = static_cast<int>(threadIdx.x); s < p.segments; s += kChooseThreads) {
    sum += surveys[s].raw_sum * fast_exp2((surveys[s].raw_max - most) * kLog2E);
  }
  return most + logf(block_sum(sum, scratch));
}

/// Samples without filters: first the segment, then the token.
template <class T>
__device__ int drawn_unfiltered(const Row<T>& row, const Segment* surveys, uint64_t word, Mass* scratch) {
  __shared__ int chosen;
  __shared__ int fallback;
  __shared__ Mass left;
  const Params& p = row.p;
  const int thread = static_cast<int>(threadIdx.x);
  const auto mass_of = [&](int s) {
    const float weight = surveys[s].sum * row.weight(surveys[s].max);
    return surveys[s].sum > 0 ? static_cast<Mass>(weight * kMassUnit) : Mass{0};
  };
  if (thread == 0) chosen = fallback = -1;
  const int each = (p.segments + kChooseThreads - 1) / kChooseThreads;
  const int begin = min(thread * each, p.segments);
  const int end = min(begin + each, p.segments);
  Mass own = 0;
  for (int s = begin; s < end; ++s) own += mass_of(s);
  Mass before = total_before(own, scratch);
  const Mass all = block_total(own, scratch);
  if (all == 0) return -1;
  const Mass target = __umul64hi(word, all);
  if (before <= target && target < before + own) {
    for (int s = begin; s < end; ++s) {
      const Mass mass = mass_of(s);
      if (target < before + mass) {
        chosen = s;
        left = target - before;
        break;
      }
      before += mass;
    }
  }
  __syncthreads();
  const int segment = chosen;
  const Mass rest = left;
  __syncthreads();
  if (thread == 0) chosen = -1;
  const int id = segment * kSegment + thread;
  static_assert(kSegment == kChooseThreads, "one thread per id");
  const bool there = segment >= 0 && id < p.vocab && row.allows(id);
  const Mass mass = there ? row.mass(row.adjusted(id, row.raw(id))) : 0;
  const Mass running = total_before(mass, scratch);
  if (mass > 0 && running <= rest && rest < running + mass) chosen = id;
  if (mass > 0) atomicMax(&fallback, id);  // used if rounding errors leave a remainder
  __syncthreads();
  return chosen >= 0 ? chosen : fallback;
}

/// Writes the `top` likeliest tokens. Each step finds the token with the highest rank below that of the last one found.
template <class T>
__device__ void write_top(const Row<T>& row, const Segment* surveys, float total, Mass* scratch) {
  const Params& p = row.p;
  Mass below = kNanRank;
  for (int n = 0; n < p.top; ++n) {
    // Choose the segment with the highest-ranked token below `below`. Segments whose maximum is smaller than the best
    // token found so far are not read.
    Mass best = 0;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    for (int s = warp; s < p.segments; s += kWarp) {
      if ((Mass{order_key(surveys[s].raw_max)} << 32U | 0xffffffffU) < best) continue;
      for (int at = lane; at < kSegment; at += kWarp) {
        const int id = s * kSegment + at;
        if (id >= p.vocab) break;
        const Mass rank = rank_of(row.raw(id), id);
        if (rank < below) best = max(best, rank);
      }
      best = warp_largest(best);
    }
    below = block_largest(best, scratch);
    if (threadIdx.x == 0) {
      const int id = id_of(below);
      p.top_ids[row.row * p.top + n] = id;
      p.logprobs[row.row * (1 + p.top) + 1 + n] = row.raw(id) - total;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kChooseThreads) choose_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ Mass scratch[3 * kWarp];
  __shared__ float float_scratch[32];
  grid_dependency_wait();
  Row<T> row(p, blockIdx.x);
  const Segment* surveys = p.surveys + row.row * p.segments;
  Mass rank = 0;
  for (int s = static_cast<int>(threadIdx.x); s < p.segments; s += kChooseThreads) rank = max(rank, surveys[s].rank);
  rank = block_largest(rank, scratch);
  int id = rank == 0 || rank == kNanRank ? -1 : id_of(rank);
  if (rank == kNanRank && threadIdx.x == 0) report(p.faults, Fault::logit, row.row);
  if (id >= 0 && row.temperature > 0) {
    row.most = row.adjusted(id, row.raw(id));
    const RandomKey key{p.seed != nullptr ? static_cast<uint64_t>(p.seed[row.row]) : 0, 0};
    const auto bits = philox(key, p.drawn != nullptr ? static_cast<uint64_t>(p.drawn[row.row]) : 0);
    const uint64_t word = (uint64_t{bits[0]} << 32U) | bits[1];
    const int drawn = row.filters() ? RowFilter<T>(row, *reinterpret_cast<FilterShared*>(memory), scratch).draw(word)
                                    : drawn_unfiltered(row, surveys, word, scratch);
    if (drawn >= 0) id = drawn;
  }
  if (threadIdx.x == 0) p.ids[row.row] = id;
  if (p.logprobs == nullptr) return;
  const float total = log_total(p, surveys, float_scratch);
  if (threadIdx.x == 0) p.logprobs[row.row * (1 + p.top)] = id < 0 ? -INFINITY : row.raw(id) - total;
  if (p.top > 0) write_top(row, surveys, total, scratch);
}

__global__ void count_kernel(int32_t* counts, int64_t slots, int64_t vocab, const int32_t* rows, const int64_t* ids,
                             int64_t count, FaultSlot* faults) {
  grid_dependency_wait();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count || rows[i] < 0) return;
  if (rows[i] >= slots || ids[i] < 0 || ids[i] >= vocab) {
    report(faults, Fault::token_id, ids[i]);
    return;
  }
  atomicAdd(counts + rows[i] * vocab + ids[i], 1);
}

Params params_of(const SampleRows& args) {
  const RowSampling& o = args.options;
  Params p{};
  p.logits = args.logits.raw();
  p.stride = args.logits.dim(1);
  p.vocab = static_cast<int>(args.vocab_size);
  p.segments = (p.vocab + kSegment - 1) / kSegment;
  p.top = static_cast<int>(args.top_logprobs);
  p.temperature = device_data<float>(o.temperature);
  p.top_p = device_data<float>(o.top_p);
  p.min_p = device_data<float>(o.min_p);
  p.typical_p = device_data<float>(o.typical_p);
  p.repetition = device_data<float>(o.repetition);
  p.presence = device_data<float>(o.presence);
  p.frequency = device_data<float>(o.frequency);
  p.top_k = device_data<int32_t>(o.top_k);
  p.seed = device_data<int64_t>(o.seed);
  p.drawn = device_data<int64_t>(o.drawn);
  p.counts = device_data<int32_t>(o.counts);
  p.bias = device_data<float>(o.bias);
  p.mask = device_data<int32_t>(o.mask);
  p.mask_stride = o.mask.defined() ? o.mask.dim(1) : 0;
  p.ids = args.ids.data<int64_t>();
  p.logprobs = device_data<float>(args.logprobs);
  p.top_ids = p.top > 0 ? args.top_ids.data<int64_t>() : nullptr;
  p.faults = fault_slot(args.logits.device());
  return p;
}

}  // namespace

void sample_rows(const SampleRows& args) {
  const Device& device = args.logits.device();
  const int64_t rows = args.logits.dim(0);
  LAMINA_CHECK(args.vocab_size <= (int64_t{1} << 23) && rows < 65536, kRowsName, ": ", rows, " rows of ",
               args.vocab_size, " ids on a cuda device; expected at most 65535 rows and ", int64_t{1} << 23,
               " ids; sample on the cpu");
  Params p = params_of(args);
  const Tensor surveys =
      Tensor::empty(Shape{rows * p.segments * static_cast<int64_t>(sizeof(Segment))}, DType::u8, device);
  p.surveys = static_cast<Segment*>(surveys.raw());
  visit_floating(kRowsName, args.logits.dtype(), [&](auto tag) {
    using T = DeviceType<typename decltype(tag)::type>;
    constexpr int kPack = Pack<T>::kSize;
    constexpr int kWarps = kSurveyThreads / kWarp;
    // If rows are aligned, every pack that begins below the vocabulary size ends inside the row.
    const bool packed = is_pack_aligned(static_cast<const T*>(p.logits), p.stride);
    const dim3 grid(static_cast<unsigned>((p.segments + kWarps - 1) / kWarps), static_cast<unsigned>(rows));
    launch_dependent(packed ? survey_kernel<T, kPack> : survey_kernel<T, 1>, grid, dim3(kSurveyThreads), 0, device, p);
    check_launch(kRowsName);
    launch_dependent(choose_kernel<T>, dim3(static_cast<unsigned>(rows)), dim3(kChooseThreads), sizeof(FilterShared),
                     device, p);
    check_launch(kRowsName);
  });
}

void count_tokens(const CountTokens& args) {
  const Device& device = args.counts.device();
  launch_dependent(count_kernel, dim3(static_cast<unsigned>(blocks_for(args.ids.numel(), kCountThreads))),
                   dim3(kCountThreads), 0, device, args.counts.data<int32_t>(), args.counts.dim(0), args.counts.dim(1),
                   args.rows.data<int32_t>(), args.ids.data<int64_t>(), args.ids.numel(), fault_slot(device));
  check_launch("count_tokens");
}

}  // namespace lamina::ops::cuda
