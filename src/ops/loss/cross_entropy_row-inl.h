// The loss of one row of logits and its gradient on a CPU. Shared by cross_entropy and linear_cross_entropy.
#if defined(LAMINA_OPS_LOSS_CROSS_ENTROPY_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_LOSS_CROSS_ENTROPY_ROW_INL_H_
#undef LAMINA_OPS_LOSS_CROSS_ENTROPY_ROW_INL_H_
#else
#define LAMINA_OPS_LOSS_CROSS_ENTROPY_ROW_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/loss/cross_entropy.h"
#include "lamina/ops/loss/row_exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

/// The factor with which one position's loss enters the result: 1/count for the mean, else 1.
template <class A>
A share_of(const CrossEntropyOptions& options, int64_t count) {
  if (count == 0) return A{0};
  return options.reduction == Reduction::mean ? A{1} / static_cast<A>(count) : A{1};
}

/// The incoming gradient of row i. `grad` is a scalar, has one element per row (Reduction::none), or is undefined (1).
template <class A>
A arriving(const CrossEntropyOptions& options, const Tensor& grad, int64_t i) {
  if (!grad.defined()) return A{1};
  return grad.data<A>()[options.reduction == Reduction::none ? i : 0];
}

template <class A>
void add_losses(const CrossEntropyOptions& options, const Tensor& losses, int64_t count, const Tensor& loss) {
  if (!loss.defined()) return;
  double sum = 0;
  for (int64_t i = 0; i < losses.numel(); ++i) sum += static_cast<double>(losses.data<A>()[i]);
  loss.data<A>()[0] =
      count == 0 ? A{0} : static_cast<A>(options.reduction == Reduction::mean ? sum / static_cast<double>(count) : sum);
}

inline bool changes_logits(const CrossEntropyOptions& options) {
  return options.soft_cap != 0.0 || options.logit_scale != 1.0;
}

/// u = soft_cap(logit_scale · logits), element by element; u may be logits itself.
template <class T>
void transform_row(const CrossEntropyOptions& options, const T* logits, int64_t n, Accumulate<T>* u) {
  using A = Accumulate<T>;
  const ComputeTag<T> d;
  const auto scale = hn::Set(d, static_cast<A>(options.logit_scale));
  const auto cap = hn::Set(d, static_cast<A>(options.soft_cap));
  const bool capped = options.soft_cap != 0.0;
  for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR {
    auto value = hn::Mul(load_n(d, logits + i, count), scale);
    if (capped) value = hn::Mul(cap, tanh_pair(d, hn::Div(value, cap)).value);
    store_n(d, value, u + i, count);
  });
}

template <class A>
struct RowSums {
  A lse;
  A total;  // Σ u
};

/// Maximum, Σ exp(u − maximum) and, if with_total, Σ u of a row in one pass over memory (online softmax). The row is
/// processed in pieces that stay in L1; the sum is rescaled if a piece raises the maximum.
template <class A>
RowSums<A> sum_row(const A* u, int64_t n, bool with_total) {
  constexpr int64_t kPiece = 2048;
  const hn::ScalableTag<A> d;
  A most = -std::numeric_limits<A>::infinity();
  A sum = 0;
  A total = 0;
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t count = std::min(kPiece, n - begin);
    const A highest = row_max(u + begin, count);
    if (highest > most) {
      sum *= std::exp(most - highest);
      most = highest;
    }
    sum += row_exp_sum(u + begin, count, most);
    if (!with_total) continue;
    auto piece = hn::Zero(d);
    for_vectors(d, count,
                [&](int64_t i, size_t lanes) HWY_ATTR { piece = hn::Add(piece, load_n(d, u + begin + i, lanes)); });
    total += hn::GetLane(hn::SumOfLanes(d, piece));
  }
  return {most + std::log(sum), total};
}

template <class A>
A row_loss(const CrossEntropyOptions& options, A at_target, int64_t n, const RowSums<A>& sums) {
  const A smoothing = static_cast<A>(options.label_smoothing);
  A loss = sums.lse - (A{1} - smoothing) * at_target;
  if (smoothing != A{0}) loss -= smoothing * sums.total / static_cast<A>(n);
  return loss + static_cast<A>(options.z_loss) * sums.lse * sums.lse;
}

/// out = `weight` times the gradient of one row's loss with respect to its logits; `out` may alias `u`.
template <class T>
void row_gradient(const CrossEntropyOptions& options, const Accumulate<T>* u, int64_t n, int64_t target,
                  Accumulate<T> lse, Accumulate<T> weight, T* out) {
  using A = Accumulate<T>;
  const ComputeTag<T> d;
  const A smoothing = static_cast<A>(options.label_smoothing);
  const A even = smoothing / static_cast<A>(n);
  const A factor = A{1} + A{2} * static_cast<A>(options.z_loss) * lse;
  const A outer = weight * static_cast<A>(options.logit_scale);
  const bool capped = options.soft_cap != 0.0;
  const A inverse_cap = capped ? A{1} / static_cast<A>(options.soft_cap) : A{0};
  const A at_target = u[target];
  const auto shift = hn::Set(d, lse);
  const auto rise = hn::Set(d, factor);
  const auto spread = hn::Set(d, even);
  const auto scale = hn::Set(d, outer);
  const auto narrow = hn::Set(d, inverse_cap);
  for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR {
    const auto value = load_n(d, u + i, count);
    auto grad = hn::Mul(hn::MulSub(exp_flushed(d, hn::Sub(value, shift)), rise, spread), scale);
    if (capped) {
      const auto slope = hn::Mul(value, narrow);
      grad = hn::Mul(grad, hn::NegMulAdd(slope, slope, hn::Set(d, A{1})));
    }
    store_n(d, grad, out + i, count);
  });
  const A slope = at_target * inverse_cap;
  const A pull = std::exp(at_target - lse) * factor - even - (A{1} - smoothing);
  out[target] = convert<T>(pull * outer * (A{1} - slope * slope));
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
