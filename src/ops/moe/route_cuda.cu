// A warp routes one token, whose scores are in shared memory. Experts are ordered by descending score, then by
// ascending index. The top k are found one at a time: each is the first in that order after the previous one, so no
// expert needs to be marked or moved. If scores and logits have the same order, logits are compared.
#include "lamina/ops/moe/expert_indices.h"
#include "lamina/ops/moe/route_kernel.h"
#include "lamina/ops/moe/router_rows.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::check_launch;
using lamina::cuda::device_data;
using lamina::cuda::DeviceType;
using lamina::cuda::from_float;
using lamina::cuda::stream_of;
using lamina::cuda::to_float;

constexpr const char* kOp = "route_top_k";
constexpr int kNone = 0x7fffffff;

struct Options {
  int k, groups, chosen_groups, group_best;
  RouterScore score;
  bool normalize;
  float scale, near;

  explicit Options(const RouteOptions& o)
      : k(static_cast<int>(o.k)),
        groups(static_cast<int>(o.groups)),
        chosen_groups(static_cast<int>(o.chosen_groups)),
        group_best(static_cast<int>(o.group_best)),
        score(o.score),
        normalize(o.normalize),
        scale(static_cast<float>(o.scale)),
        near(static_cast<float>(o.near)) {}
  /// Shared memory per token in 4-byte words, for the arrays of Row.
  int64_t words(int64_t experts) const { return 2 * experts + k + 2 * groups; }
};

/// The value by which experts are ordered: NaN ranks last.
__device__ float rank_of(float value) { return value == value ? value : -INFINITY; }

struct Pick {
  float value = -INFINITY;
  int index = kNone;

  __device__ bool before(const Pick& other) const {
    if (index == kNone || other.index == kNone) return index != kNone;
    return value > other.value || (value == other.value && index < other.index);
  }
};

/// The first entry of `values` after `last` in that order, among the entries first, first + step, … that are `open`. A
/// default Pick comes before all entries.
template <class Open>
__device__ Pick next_pick(const float* values, int first, int n, int step, const Pick& last, const Open& open) {
  Pick best;
  for (int i = first; i < n; i += step) {
    const Pick here{rank_of(values[i]), i};
    if (open(i) && (last.index == kNone || last.before(here)) && here.before(best)) best = here;
  }
  return best;
}

/// next_pick() over all entries, by a whole warp; all lanes get the result.
template <class Open>
__device__ Pick next_pick_of_warp(const float* values, int n, const Pick& last, const Open& open) {
  Pick best = next_pick(values, lane_of(), n, kWarp, last, open);
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const Pick other{__shfl_xor_sync(lamina::cuda::kAllLanes, best.value, step),
                     __shfl_xor_sync(lamina::cuda::kAllLanes, best.index, step)};
    if (other.before(best)) best = other;
  }
  return best;
}

/// A token's arrays in shared memory.
struct Row {
  float *scores, *choice;
  int* picked;
  float *quality, *open;

  __device__ Row(float* memory, const Options& o, int experts) {
    scores = memory + warp_of() * (2 * experts + o.k + 2 * o.groups);
    choice = scores + experts;
    quality = choice + experts;
    open = quality + o.groups;
    picked = reinterpret_cast<int*>(open + o.groups);
  }
};

/// Marks the best groups as open: those with the largest sum of their `group_best` highest scores.
__device__ void open_groups(const Row& row, const Options& o, int experts) {
  const int size = experts / o.groups;
  for (int g = lane_of(); g < o.groups; g += kWarp) {
    Pick last;
    float sum = 0;
    for (int i = 0; i < o.group_best; ++i) {
      last = next_pick(row.choice + g * size, 0, size, 1, last, [](int) { return true; });
      sum += last.value;
    }
    row.quality[g] = sum;
    row.open[g] = 0;
  }
  __syncwarp();
  Pick last;
  for (int i = 0; i < o.chosen_groups; ++i) {
    last = next_pick_of_warp(row.quality, o.groups, last, [](int) { return true; });
    if (lane_of() == 0) row.open[last.index] = 1;
  }
  __syncwarp();
}

template <class T>
__device__ void score_row(const T* logits, int experts, RouterScore score, float* scores) {
  load_row(logits, experts, scores);
  if (score == RouterScore::softmax) softmax_in_place(scores, experts);
  if (score == RouterScore::sigmoid) sigmoid_in_place(scores, experts);
}

/// True if logit z is near `choice`, the largest of the remaining logits. 0/0 counts as near.
__device__ bool is_near(float choice, float z, float near) { return !((choice - z) / fmaxf(fabsf(z), choice) > near); }

/// softmax_of_near: calls visit(choice, 1 / Σ exp(z − z*)) on all lanes for each choice in order. row.scores holds the
/// logits. Logits of earlier choices are set to −inf, so their exponentials are 0.
template <class F>
__device__ void visit_near(const Row& row, const Options& o, int experts, const F& visit) {
  for (int j = 0; j < o.k; ++j) {
    const float choice = row.scores[row.picked[j]];
    float sum = 0;
    for (int e = lane_of(); e < experts; e += kWarp) {
      if (is_near(choice, row.scores[e], o.near)) sum += expf(row.scores[e] - choice);
    }
    visit(j, 1.0F / lamina::cuda::warp_sum(sum));
    __syncwarp();
    if (lane_of() == 0) row.scores[row.picked[j]] = -INFINITY;
    __syncwarp();
  }
}

/// Writes the scores of the chosen experts, in order, to row.choice.
__device__ void gather_chosen(const Row& row, const Options& o, int experts) {
  __syncwarp();
  if (o.score == RouterScore::softmax_of_near) {
    visit_near(row, o, experts, [&](int j, float weight) {
      if (lane_of() == 0) row.choice[j] = weight;
    });
    return;
  }
  for (int j = lane_of(); j < o.k; j += kWarp) row.choice[j] = row.scores[row.picked[j]];
  __syncwarp();
  if (o.score == RouterScore::softmax_of_chosen) softmax_in_place(row.choice, o.k);
}

template <class T>
__global__ void forward_kernel(Options o, const T* logits, const float* bias, int64_t tokens, int experts, T* weights,
                               int64_t* indices) {
  extern __shared__ float memory[];
  const int64_t token = blockIdx.x * int64_t{blockDim.x / kWarp} + warp_of();
  if (token >= tokens) return;
  const Row row(memory, o, experts);
  score_row(logits + token * experts, experts, o.score, row.scores);
  const bool by_logits = bias == nullptr && o.groups == 1;
  for (int e = lane_of(); e < experts; e += kWarp) {
    row.choice[e] =
        by_logits ? to_float(logits[token * experts + e]) : row.scores[e] + (bias != nullptr ? bias[e] : 0.0F);
  }
  __syncwarp();
  if (o.groups > 1) open_groups(row, o, experts);
  const int size = experts / o.groups;
  Pick last;
  for (int j = 0; j < o.k; ++j) {
    last =
        next_pick_of_warp(row.choice, experts, last, [&](int e) { return o.groups == 1 || row.open[e / size] != 0; });
    if (lane_of() == 0) row.picked[j] = last.index;
  }
  gather_chosen(row, o, experts);
  float sum = 0;
  for (int j = lane_of(); j < o.k; j += kWarp) sum += row.choice[j];
  sum = lamina::cuda::warp_sum(sum);
  const float factor = o.scale / (o.normalize ? sum : 1.0F);
  for (int j = lane_of(); j < o.k; j += kWarp) {
    weights[token * o.k + j] = from_float<T>(row.choice[j] * factor);
    indices[token * o.k + j] = row.picked[j];
  }
}

/// Computes the gradient of one token's logits, for softmax_of_near. row.scores holds the logits and is overwritten.
template <class T>
__device__ void near_backward(const Row& row, const Options& o, int experts, const T* dweights, T* out) {
  for (int e = lane_of(); e < experts; e += kWarp) row.choice[e] = 0;
  __syncwarp();
  visit_near(row, o, experts, [&](int j, float weight) {
    const int own = row.picked[j];
    const float choice = row.scores[own];
    const float pull = o.scale * to_float(dweights[j]) * weight;
    for (int e = lane_of(); e < experts; e += kWarp) {
      if (!is_near(choice, row.scores[e], o.near)) continue;
      row.choice[e] += pull * ((e == own ? 1.0F : 0.0F) - weight * expf(row.scores[e] - choice));
    }
  });
  for (int e = lane_of(); e < experts; e += kWarp) out[e] = from_float<T>(row.choice[e]);
}

template <class T>
__global__ void backward_kernel(Options o, const T* logits, const int64_t* indices, const T* dweights, int64_t tokens,
                                int experts, T* dlogits) {
  extern __shared__ float memory[];
  const int64_t token = blockIdx.x * int64_t{blockDim.x / kWarp} + warp_of();
  if (token >= tokens) return;
  const Row row(memory, o, experts);
  score_row(logits + token * experts, experts, o.score, row.scores);
  for (int j = lane_of(); j < o.k; j += kWarp) row.picked[j] = static_cast<int>(indices[token * o.k + j]);
  const T* dw = dweights + token * o.k;
  if (o.score == RouterScore::softmax_of_near) {
    near_backward(row, o, experts, dw, dlogits + token * experts);
    return;
  }
  gather_chosen(row, o, experts);
  float sum = 0;
  float dot = 0;
  for (int j = lane_of(); j < o.k; j += kWarp) {
    sum += row.choice[j];
    dot = fmaf(to_float(dw[j]), row.choice[j], dot);
  }
  sum = lamina::cuda::warp_sum(sum);
  dot = lamina::cuda::warp_sum(dot);
  // The gradient of the j-th chosen score, from the gradients of the weights.
  const auto score_gradient = [&](int j) {
    const float g = to_float(dw[j]);
    return o.normalize ? o.scale * (g - dot / sum) / sum : o.scale * g;
  };
  float across = 0;
  for (int j = lane_of(); j < o.k; j += kWarp) across = fmaf(score_gradient(j), row.choice[j], across);
  across = lamina::cuda::warp_sum(across);
  T* out = dlogits + token * experts;
  // First the value that softmax gives every expert goes to shared memory; then the chosen experts get their own value.
  for (int e = lane_of(); e < experts; e += kWarp) {
    row.scores[e] = o.score == RouterScore::softmax ? -across * row.scores[e] : 0.0F;
  }
  __syncwarp();
  for (int j = lane_of(); j < o.k; j += kWarp) {
    const float g = score_gradient(j);
    row.scores[row.picked[j]] =
        row.choice[j] * (o.score == RouterScore::sigmoid ? g * (1.0F - row.choice[j]) : g - across);
  }
  __syncwarp();
  for (int e = lane_of(); e < experts; e += kWarp) out[e] = from_float<T>(row.scores[e]);
}

}  // namespace

void route_forward(const RouteForward& args) {
  const int64_t tokens = args.logits.dim(0);
  const int64_t experts = args.logits.dim(1);
  const Options options(args.options);
  if (tokens > 0) {
    const RouterBlock block(kOp, experts, options.words(experts));
    lamina::cuda::visit_floating(kOp, args.logits.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      forward_kernel<DeviceType<T>>
          <<<block.blocks(tokens), block.threads(), block.bytes, stream_of(args.logits.device())>>>(
              options, device_data<T>(args.logits), device_data<float>(args.bias), tokens, static_cast<int>(experts),
              device_data<T>(args.weights), args.indices.data<int64_t>());
      check_launch(kOp);
    });
  }
  count_experts(kOp, args.indices, args.counts);
}

void route_backward(const RouteBackward& args) {
  const int64_t tokens = args.logits.dim(0);
  const int64_t experts = args.logits.dim(1);
  if (tokens == 0) return;
  const Options options(args.options);
  const RouterBlock block(kOp, experts, options.words(experts));
  lamina::cuda::visit_floating(kOp, args.logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    backward_kernel<DeviceType<T>>
        <<<block.blocks(tokens), block.threads(), block.bytes, stream_of(args.logits.device())>>>(
            options, device_data<T>(args.logits), args.indices.data<int64_t>(), device_data<T>(args.dweights), tokens,
            static_cast<int>(experts), device_data<T>(args.dlogits));
    check_launch(kOp);
  });
}

}  // namespace lamina::ops::cuda
