#include "lamina/ops/loss/cross_entropy.h"

#include "support/op_run.h"

namespace lamina::testing {
namespace {

using ops::CrossEntropyOptions;
using ops::Reduction;

/// The formula in cross_entropy.h, computed per position.
template <class S>
Array<S> loss_oracle(const CrossEntropyOptions& o, const Array<S>& logits, int64_t classes, const Shape& positions,
                     const Array<S>& targets) {
  using std::exp;
  using std::log;
  using std::tanh;
  Array<S> losses(positions);
  int64_t counted = 0;
  S total = 0;
  for (int64_t i = 0; i < targets.numel(); ++i) {
    const auto target = static_cast<int64_t>(value_of(targets[i]));
    losses[i] = 0;
    if (target == o.ignore_index) continue;
    std::vector<S> u;
    for (int64_t j = 0; j < classes; ++j) {
      S z = logits[i * classes + j] * S(o.logit_scale);
      if (o.soft_cap != 0) z = S(o.soft_cap) * tanh(z / S(o.soft_cap));
      u.push_back(z);
    }
    double most = value_of(u[0]);
    for (const S& z : u) most = std::max(most, value_of(z));
    S sum = 0;
    S mean = 0;
    for (const S& z : u) {
      sum += exp(z - S(most));
      mean += z;
    }
    mean /= S(classes);
    const S lse = S(most) + log(sum);
    losses[i] = S(1 - o.label_smoothing) * (lse - u[static_cast<size_t>(target)]) +
                S(o.label_smoothing) * (lse - mean) + S(o.z_loss) * lse * lse;
    total += losses[i];
    ++counted;
  }
  if (o.reduction == Reduction::none) return losses;
  Array<S> loss{Shape{}};
  loss[0] = o.reduction == Reduction::sum || counted == 0 ? total : total / S(counted);
  return loss;
}

std::vector<double> make_targets(int64_t count, int64_t classes, int64_t ignore_index, int64_t ignore_every) {
  std::vector<double> targets;
  for (int64_t i = 0; i < count; ++i) {
    const bool ignored = ignore_every != 0 && i % ignore_every == 0;
    targets.push_back(static_cast<double>(ignored ? ignore_index : (i * 7 + 3) % classes));
  }
  return targets;
}

struct LossParams {
  Shape positions;
  int64_t width;  // width of x; 1 for plain cross entropy
  int64_t classes;
  CrossEntropyOptions options;
  int64_t ignore_every = 0;
  bool bias = false;
};

std::string describe_loss(const LossParams& p) {
  const CrossEntropyOptions& o = p.options;
  return str(p.positions, " width ", p.width, " classes ", p.classes, " smoothing ", o.label_smoothing, " z ", o.z_loss,
             " cap ", o.soft_cap, " scale ", o.logit_scale, " reduction ", static_cast<int>(o.reduction),
             " ignore every ", p.ignore_every, p.bias ? " bias" : "");
}

std::vector<LossParams> loss_sweep(int64_t width) {
  const auto none = Reduction::none;
  const auto sum = Reduction::sum;
  return {{{3}, width, 5, {}},
          {{1}, width, 1, {}},
          {{2, 4}, width, 17, {.label_smoothing = 0.1}},
          {{0}, width, 4, {}},
          {{0}, width, 4, {.reduction = none}},
          {{6}, width, 33, {.z_loss = 0.01}, 3},
          {{5}, width, 20, {.soft_cap = 3.0, .reduction = sum}, 0, true},
          {{5}, width, 20, {.logit_scale = 0.3, .reduction = none}, 2, true},
          {{4}, width, 9, {}, 1},
          {{4}, width, 9, {.reduction = none}, 1},
          {{7}, width, 40, {-1, 0.2, 0.02, 2.0, 1.7}, 4, true},
          {{7}, width, 40, {-1, 0.2, 0.02, 2.0, 1.7, none}, 4, true},
          {{70}, width, 37, {.label_smoothing = 1.0}},
          {{3}, width, 301, {.soft_cap = 5.0}, 2},
          {{2}, width, 2300, {}},
          {{3}, width, 16411, {.label_smoothing = 0.1, .z_loss = 0.01}, 3},  // several GPU blocks per row
          {{2}, width, 40003, {.z_loss = 0.01, .logit_scale = 1.5}}};
}

struct CrossEntropyCase {
  static constexpr const char* name = "cross_entropy";
  using Params = LossParams;
  static std::vector<Params> sweep() { return loss_sweep(1); }
  static std::vector<Params> bench() { return {{{2048}, 1, 50304, {}}, {{16384}, 1, 65, {}}}; }
  static std::string describe(const Params& p) { return describe_loss(p); }
  static std::vector<Input> inputs(const Params& p) {
    Shape shape = p.positions;
    shape.push_back(p.classes);
    return {
        {.shape = shape, .low = -3, .high = 3},
        integers(p.positions, make_targets(p.positions.numel(), p.classes, p.options.ignore_index, p.ignore_every))};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::cross_entropy(in[0], in[1], p.options)};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    return {loss_oracle(p.options, in[0], p.classes, p.positions, in[1])};
  }
};
LAMINA_OP_CASE(CrossEntropyCase);

/// Rounds a logit to `kKept`, the type between product and loss. The f64 oracle does not round.
template <DType kKept, class S>
S kept(const S& logit) {
  if constexpr (std::is_same_v<S, float>) return static_cast<float>(round_to(logit, kKept));
  S rounded = logit;
  if constexpr (std::is_same_v<S, Rev<float>>) rounded.value = kept<kKept>(logit.value);
  return rounded;
}

/// A naive 16-bit implementation stores its logits in that type. This determines the accuracy of its f32 loss.
template <DType kKept>
struct LinearCrossEntropyOf {
  static constexpr const char* name = "linear_cross_entropy";
  using Params = LossParams;
  static std::vector<Params> sweep() {
    auto all = loss_sweep(6);
    all.push_back({{3}, 0, 5, {}});
    all.push_back({{2, 40}, 3, 11, {}, 5});  // several chunks
    return all;
  }
  static std::vector<Params> bench() { return {{{2048}, 768, 50304, {}}, {{16384}, 384, 65, {}}}; }
  static std::string describe(const Params& p) { return describe_loss(p); }
  static std::vector<Input> inputs(const Params& p) {
    Shape shape = p.positions;
    shape.push_back(p.width);
    return {{.shape = shape},
            {.shape = {p.classes, p.width}},
            integers(p.positions, make_targets(p.positions.numel(), p.classes, p.options.ignore_index, p.ignore_every)),
            p.bias ? Input{.shape = {p.classes}} : absent()};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::linear_cross_entropy(in[0], in[1], in[2], p.options, in[3])};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    const int64_t rows = p.positions.numel();
    Array<S> logits({rows, p.classes});
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < p.classes; ++j) {
        S sum = 0;
        for (int64_t l = 0; l < p.width; ++l) sum += in[0][i * p.width + l] * in[1][j * p.width + l];
        sum = kept<kKept>(sum);
        logits[i * p.classes + j] = p.bias ? sum + in[3][j] : sum;
      }
    }
    return {loss_oracle(p.options, logits, p.classes, p.positions, in[2])};
  }
};

struct LinearCrossEntropyCase : LinearCrossEntropyOf<DType::f64> {
  static std::vector<DType> dtypes() { return {DType::f32, DType::f64}; }
};
LAMINA_OP_CASE(LinearCrossEntropyCase);

struct LinearCrossEntropyInBf16Case : LinearCrossEntropyOf<DType::bf16> {
  static constexpr const char* form = "in_bf16";
  static std::vector<DType> dtypes() { return {DType::bf16}; }
  static std::vector<Params> bench() { return {}; }
};
LAMINA_OP_CASE(LinearCrossEntropyInBf16Case);

struct LinearCrossEntropyInF16Case : LinearCrossEntropyOf<DType::f16> {
  static constexpr const char* form = "in_f16";
  static std::vector<DType> dtypes() { return {DType::f16}; }
  static std::vector<Params> bench() { return {}; }
};
LAMINA_OP_CASE(LinearCrossEntropyInF16Case);

}  // namespace
}  // namespace lamina::testing
