#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "lamina/tensor/tensor.h"
#include "support/array.h"
#include "support/reverse.h"

namespace lamina::testing {

/// One argument of an operator under test.
struct Input {
  Shape shape;
  /// Drawn uniformly from [low, high] unless `values` are given.
  double low = -1.0;
  double high = 1.0;
  std::vector<double> values;
  /// Floating-point inputs have the type under test unless it is fixed here; integer inputs must fix theirs.
  std::optional<DType> dtype;
  bool differentiable = true;
  /// Passes an undefined tensor: the argument is left out.
  bool absent = false;
};

inline Input integers(const Shape& shape, std::vector<double> values, DType dtype = DType::i64) {
  return {.shape = shape, .values = std::move(values), .dtype = dtype, .differentiable = false};
}

inline Input absent() { return {.absent = true}; }

/// One operator with one set of options, as tests, benchmark and support table need it. `Case` is a struct with
///   static constexpr const char* name;                    as in src/ops/op_list.def
///   struct Params;                                        shapes and options
///   static std::vector<Params> sweep();                   odd, 1, empty, larger than a tile
///   static std::vector<Params> bench();                   shapes worth timing (may be empty)
///   static std::string describe(const Params&);
///   static std::vector<Input> inputs(const Params&);
///   static std::vector<Tensor> run(const Params&, const std::vector<Tensor>&);
///   template <class S> static Arrays<S> oracle(const Params&, const Arrays<S>&);   plain loops from the formula
/// Integer inputs reach the oracle as numbers of type S. Optional members: `static constexpr bool kBackward = false`
/// for operators without a gradient; `static std::vector<DType> dtypes()` if not all four floating-point types apply;
/// `static constexpr const char* form` to name a second case of the same operator; `static std::vector<Params>
/// gpu_sweep()` for extra sizes that matter only to GPU kernels.
class OpVariant {
 public:
  virtual ~OpVariant() = default;
  virtual std::string describe() const = 0;
  virtual std::vector<Input> inputs() const = 0;
  virtual std::vector<Tensor> run(const std::vector<Tensor>& inputs) const = 0;
  virtual Arrays<double> oracle(const Arrays<double>& inputs) const = 0;
  virtual Arrays<float> oracle(const Arrays<float>& inputs) const = 0;
  virtual Arrays<Rev<double>> oracle(const Arrays<Rev<double>>& inputs) const = 0;
  virtual Arrays<Rev<float>> oracle(const Arrays<Rev<float>>& inputs) const = 0;
};

struct OpCase {
  std::string name;
  std::string form;
  std::vector<DType> dtypes;
  bool backward = true;
  std::vector<std::unique_ptr<OpVariant>> sweep;
  std::vector<std::unique_ptr<OpVariant>> gpu_sweep;
  std::vector<std::unique_ptr<OpVariant>> bench;
};

/// All cases linked into this program, in order of registration.
std::vector<OpCase>& op_cases();

/// False in builds with sanitizers: they watch memory and threads, and plain loops have nothing new to show there.
#ifdef LAMINA_NO_ORACLES
inline constexpr bool kHasOracles = false;
#else
inline constexpr bool kHasOracles = true;
#endif

template <class Case>
class OpVariantOf final : public OpVariant {
 public:
  explicit OpVariantOf(typename Case::Params params) : params_(std::move(params)) {}
  std::string describe() const override { return Case::describe(params_); }
  std::vector<Input> inputs() const override { return Case::inputs(params_); }
  std::vector<Tensor> run(const std::vector<Tensor>& inputs) const override { return Case::run(params_, inputs); }
  Arrays<double> oracle(const Arrays<double>& inputs) const override { return oracle_of(inputs); }
  Arrays<float> oracle(const Arrays<float>& inputs) const override { return oracle_of(inputs); }
  Arrays<Rev<double>> oracle(const Arrays<Rev<double>>& inputs) const override { return oracle_of(inputs); }
  Arrays<Rev<float>> oracle(const Arrays<Rev<float>>& inputs) const override { return oracle_of(inputs); }

  static constexpr bool kDifferentiable = [] {
    if constexpr (requires { Case::kBackward; }) return Case::kBackward;
    return true;
  }();

 private:
  template <class S>
  Arrays<S> oracle_of([[maybe_unused]] const Arrays<S>& inputs) const {
    if constexpr (kHasOracles && (kDifferentiable || std::is_floating_point_v<S>)) {
      return Case::oracle(params_, inputs);
    }
    return {};
  }

  typename Case::Params params_;
};

template <class Case>
bool register_op_case() {
  OpCase result;
  result.name = Case::name;
  result.backward = OpVariantOf<Case>::kDifferentiable;
  result.dtypes = {DType::f32, DType::f64, DType::bf16, DType::f16};
  if constexpr (requires { Case::form; }) result.form = Case::form;
  if constexpr (requires { Case::dtypes(); }) result.dtypes = Case::dtypes();
  for (auto& params : Case::sweep()) result.sweep.push_back(std::make_unique<OpVariantOf<Case>>(params));
  if constexpr (requires { Case::gpu_sweep(); }) {
    for (auto& params : Case::gpu_sweep()) result.gpu_sweep.push_back(std::make_unique<OpVariantOf<Case>>(params));
  }
  for (auto& params : Case::bench()) result.bench.push_back(std::make_unique<OpVariantOf<Case>>(params));
  op_cases().push_back(std::move(result));
  return true;
}

}  // namespace lamina::testing

#define LAMINA_OP_CASE(Case) \
  [[maybe_unused]] static const bool registered_##Case = ::lamina::testing::register_op_case<Case>()
