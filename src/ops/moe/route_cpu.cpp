// Each thread routes a range of tokens. A token's scores are computed with SIMD into a small buffer. The top k are
// found in one pass with a sorted list, which mostly needs one comparison per expert. If scores and logits have the
// same order, logits are compared, because rounding of the scores could create ties.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/moe/route_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/moe/route_kernel.h"
#include "lamina/ops/moe/router_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

/// Updates a list of the k largest values (best first, ties to the lower index) with `values`, whose indices start at
/// `first`. `best` and `index` hold `have` entries. Returns the new number of entries.
template <class A>
int64_t keep_best(const A* values, int64_t n, int64_t first, int64_t k, int64_t have, A* best, int64_t* index) {
  for (int64_t i = 0; i < n; ++i) {
    const A value = values[i] == values[i] ? values[i] : -std::numeric_limits<A>::infinity();
    if (have == k && !(value > best[k - 1])) continue;
    int64_t at = have < k ? have++ : k - 1;
    for (; at > 0 && value > best[at - 1]; --at) {
      best[at] = best[at - 1];
      index[at] = index[at - 1];
    }
    best[at] = value;
    index[at] = first + i;
  }
  return have;
}

/// Buffers for one range of tokens.
template <class A>
struct Scratch {
  std::vector<A> scores, choice, best, group_score, group_best;
  std::vector<int64_t> group_index, group_choice;

  static int64_t in_group(const RouteOptions& options) { return options.groups == 1 ? 0 : options.group_best; }
  Scratch(const RouteOptions& options, int64_t experts)
      : scores(static_cast<size_t>(experts)),
        choice(static_cast<size_t>(experts)),
        best(static_cast<size_t>(std::max(options.k, in_group(options)))),
        group_score(static_cast<size_t>(options.groups)),
        group_best(static_cast<size_t>(options.groups)),
        group_index(static_cast<size_t>(in_group(options))),
        group_choice(static_cast<size_t>(options.groups)) {}
};

template <class A>
void choose(const RouteOptions& options, int64_t experts, Scratch<A>& s, int64_t* index) {
  if (options.groups == 1) {
    keep_best(s.choice.data(), experts, 0, options.k, 0, s.best.data(), index);
    return;
  }
  const int64_t size = experts / options.groups;
  for (int64_t g = 0; g < options.groups; ++g) {
    keep_best(s.choice.data() + g * size, size, 0, options.group_best, 0, s.best.data(), s.group_index.data());
    A sum = 0;
    for (int64_t i = 0; i < options.group_best; ++i) sum += s.best[static_cast<size_t>(i)];
    s.group_score[static_cast<size_t>(g)] = sum;
  }
  keep_best(s.group_score.data(), options.groups, 0, options.chosen_groups, 0, s.group_best.data(),
            s.group_choice.data());
  // Visit groups in ascending order, so that ties go to the lower expert.
  std::sort(s.group_choice.begin(), s.group_choice.begin() + options.chosen_groups);
  int64_t have = 0;
  for (int64_t i = 0; i < options.chosen_groups; ++i) {
    const int64_t first = s.group_choice[static_cast<size_t>(i)] * size;
    have = keep_best(s.choice.data() + first, size, first, options.k, have, s.best.data(), index);
  }
}

/// True if logit z is near `choice`, the largest of the remaining logits. 0/0 counts as near.
template <class A>
bool is_near(A choice, A z, A near) {
  return !((choice - z) / std::max(std::abs(z), choice) > near);
}

/// softmax_of_near: calls visit(choice, 1 / Σ exp(z − z*)) for each choice in order. s.scores holds the logits. Logits
/// of earlier choices are set to −inf, so their exponentials are 0.
template <class A, class F>
void visit_near(const RouteOptions& options, const int64_t* index, Scratch<A>& s, const F& visit) {
  const auto near = static_cast<A>(options.near);
  for (int64_t j = 0; j < options.k; ++j) {
    A& choice = s.scores[static_cast<size_t>(index[j])];
    A sum = 0;
    for (const A z : s.scores) sum += is_near(choice, z, near) ? std::exp(z - choice) : A{0};
    visit(j, A{1} / sum);
    choice = -std::numeric_limits<A>::infinity();
  }
}

/// Computes the gradient of the logits into s.choice, for softmax_of_near. s.scores holds the logits and is
/// overwritten.
template <class A>
void near_backward(const RouteOptions& options, const int64_t* index, const std::vector<A>& grad, Scratch<A>& s) {
  std::fill(s.choice.begin(), s.choice.end(), A{0});
  const auto near = static_cast<A>(options.near);
  visit_near(options, index, s, [&](int64_t j, A weight) {
    const auto own = static_cast<size_t>(index[j]);
    const A pull = static_cast<A>(options.scale) * grad[static_cast<size_t>(j)] * weight;
    for (size_t e = 0; e < s.scores.size(); ++e) {
      if (!is_near(s.scores[own], s.scores[e], near)) continue;
      s.choice[e] += pull * ((e == own ? A{1} : A{0}) - weight * std::exp(s.scores[e] - s.scores[own]));
    }
  });
}

/// Computes the scores of one token into s.scores. For softmax_of_chosen and softmax_of_near these are the logits.
template <class T>
void score_row(const T* logits, int64_t experts, RouterScore score, Scratch<Accumulate<T>>& s) {
  load_row<T>(logits, experts, s.scores.data());
  if (score == RouterScore::softmax) softmax_in_place(s.scores.data(), experts);
  if (score == RouterScore::sigmoid) sigmoid_in_place(s.scores.data(), experts);
}

/// Writes the scores of the chosen experts, in order, to `chosen`.
template <class A>
void gather_chosen(Scratch<A>& s, const RouteOptions& options, const int64_t* index, A* chosen) {
  if (options.score == RouterScore::softmax_of_near) {
    visit_near(options, index, s, [&](int64_t j, A weight) { chosen[j] = weight; });
    return;
  }
  for (int64_t j = 0; j < options.k; ++j) chosen[j] = s.scores[static_cast<size_t>(index[j])];
  if (options.score == RouterScore::softmax_of_chosen) softmax_in_place(chosen, options.k);
}

template <class T>
void forward(const RouteForward& args) {
  using A = Accumulate<T>;
  const RouteOptions& options = args.options;
  const int64_t tokens = args.logits.dim(0);
  const int64_t experts = args.logits.dim(1);
  const int64_t k = options.k;
  const T* logits = args.logits.data<T>();
  const A* bias = args.bias.defined() ? args.bias.data<A>() : nullptr;
  T* weights = args.weights.data<T>();
  int64_t* indices = args.indices.data<int64_t>();
  args.logits.device().threads().ranges(tokens, rows_per_range(experts), [&](int64_t begin, int64_t end) HWY_ATTR {
    Scratch<A> s(options, experts);
    std::vector<A> chosen(static_cast<size_t>(k));
    for (int64_t t = begin; t < end; ++t) {
      score_row<T>(logits + t * experts, experts, options.score, s);
      if (bias == nullptr && options.groups == 1) {
        load_row<T>(logits + t * experts, experts, s.choice.data());
      } else {
        s.choice = s.scores;
        if (bias != nullptr) {
          for (int64_t e = 0; e < experts; ++e) s.choice[static_cast<size_t>(e)] += bias[e];
        }
      }
      choose(options, experts, s, indices + t * k);
      gather_chosen(s, options, indices + t * k, chosen.data());
      A sum = 0;
      for (const A score : chosen) sum += score;
      const A factor = static_cast<A>(options.scale) / (options.normalize ? sum : A{1});
      for (int64_t j = 0; j < k; ++j) weights[t * k + j] = convert<T>(chosen[static_cast<size_t>(j)] * factor);
    }
  });
  int64_t* counts = args.counts.data<int64_t>();
  std::fill(counts, counts + experts, 0);
  for (int64_t i = 0; i < tokens * k; ++i) ++counts[indices[i]];
}

/// Turns `grad` from the gradient of the weights into that of the chosen scores, in place.
template <class A>
void unnormalize(const std::vector<A>& chosen, const RouteOptions& options, std::vector<A>& grad) {
  A sum = 0;
  A dot = 0;
  for (size_t j = 0; j < chosen.size(); ++j) {
    sum += chosen[j];
    dot += grad[j] * chosen[j];
  }
  const A scale = static_cast<A>(options.scale);
  for (A& g : grad) g = options.normalize ? scale * (g - dot / sum) / sum : scale * g;
}

template <class T>
void backward(const RouteBackward& args) {
  using A = Accumulate<T>;
  const RouteOptions& options = args.options;
  const int64_t experts = args.logits.dim(1);
  const int64_t k = options.k;
  const T* logits = args.logits.data<T>();
  const T* dweights = args.dweights.data<T>();
  const int64_t* indices = args.indices.data<int64_t>();
  T* dlogits = args.dlogits.data<T>();
  args.logits.device().threads().ranges(
      args.logits.dim(0), rows_per_range(experts), [&](int64_t begin, int64_t end) HWY_ATTR {
        const ComputeTag<T> d;
        Scratch<A> s(options, experts);
        std::vector<A> chosen(static_cast<size_t>(k));
        std::vector<A> grad(static_cast<size_t>(k));
        for (int64_t t = begin; t < end; ++t) {
          const int64_t* index = indices + t * k;
          T* out = dlogits + t * experts;
          score_row<T>(logits + t * experts, experts, options.score, s);
          for (int64_t j = 0; j < k; ++j) grad[static_cast<size_t>(j)] = convert<A>(dweights[t * k + j]);
          if (options.score == RouterScore::softmax_of_near) {
            near_backward(options, index, grad, s);
            for_vectors(d, experts, [&](int64_t i, size_t count) HWY_ATTR {
              store_n(d, load_n(d, s.choice.data() + i, count), out + i, count);
            });
            continue;
          }
          gather_chosen(s, options, index, chosen.data());
          unnormalize(chosen, options, grad);
          A dot = 0;
          for (size_t j = 0; j < chosen.size(); ++j) dot += grad[j] * chosen[j];
          const bool all = options.score == RouterScore::softmax;
          const auto pull = hn::Set(d, all ? -dot : A{0});
          for_vectors(d, experts, [&](int64_t i, size_t count) HWY_ATTR {
            store_n(d, hn::Mul(load_n(d, s.scores.data() + i, count), pull), s.choice.data() + i, count);
          });
          for (size_t j = 0; j < chosen.size(); ++j) {
            const A pulled = options.score == RouterScore::sigmoid ? grad[j] * (A{1} - chosen[j]) : grad[j] - dot;
            s.choice[static_cast<size_t>(index[j])] = chosen[j] * pulled;
          }
          for_vectors(d, experts, [&](int64_t i, size_t count) HWY_ATTR {
            store_n(d, load_n(d, s.choice.data() + i, count), out + i, count);
          });
        }
      });
}

void route_forward(const RouteForward& args) {
  visit_floating(args.logits.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}
void route_backward(const RouteBackward& args) {
  visit_floating(args.logits.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(route_forward);
HWY_EXPORT(route_backward);

namespace cpu {
void route_forward(const RouteForward& args) { HWY_DYNAMIC_DISPATCH(route_forward)(args); }
void route_backward(const RouteBackward& args) { HWY_DYNAMIC_DISPATCH(route_backward)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
