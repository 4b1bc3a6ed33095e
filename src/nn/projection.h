#pragma once

#include <string>
#include <vector>

#include "lamina/nn/module.h"
#include "lamina/nn/parameter_factory.h"
#include "lamina/nn/stream.h"
#include "lamina/nn/weight_format.h"
#include "lamina/ops/linear/gated_linear.h"
#include "lamina/ops/linear/linear.h"

namespace lamina::nn {

/// y = act(x · weightᵀ + bias)
///   weight [out, in], bias [out] where there is one: "weight", "bias"
class Linear final : public Module {
 public:
  enum class Ends : uint8_t { inside, in_residual };  ///< decides the initial deviation
  Linear(int64_t out, int64_t in, bool bias, const ParameterFactory& make, Ends ends = Ends::inside);

  Tensor forward(const Tensor& x, ops::Activation activation = ops::Activation::none) const {
    return rounded_.defined() ? ops::quantized_linear(x, rounded_, bias_, activation)
                              : ops::linear(x, weight_, bias_, activation);
  }
  /// The same of the stream's norm.
  Tensor forward_normed(Stream& stream, const NormLayer& norm,
                        ops::Activation activation = ops::Activation::none) const {
    return rounded_.defined() ? forward(stream.normed(norm), activation)
                              : stream.normed_linear(norm, weight_, bias_, activation);
  }
  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }
  /// The weight is as it was given.
  bool is_plain() const { return !rounded_.defined(); }
  void store_weights(const WeightFormats& formats, const std::string& prefix) override;
  /// For owners that use weight() itself: it stays what it is.
  void keep_weight() { keeps_weight_ = true; }

 private:
  bool keeps_weight_ = false;
  Tensor weight_;
  ops::QuantizedWeight rounded_;  ///< instead of weight_ where defined
  Tensor bias_;
};

/// One of the projections that a JoinedLinear holds.
struct ProjectionPart {
  std::string name;  ///< "q"; its weight is "q.weight" in the state dictionary
  int64_t out = 0;
  bool bias = false;
};

/// Several projections of the same input, computed as one product over a joined weight [Σ out, in] (Module's joined
/// parameters), or, where a checkpoint was adopted in place, as one product each. Registered with add_child("", …), so
/// that the parts' names stand directly under the owner's.
class JoinedLinear final : public Module {
 public:
  /// `name` is the joined parameter's for optimizers: "qkv" gives "qkv.weight" and "qkv.bias".
  JoinedLinear(const std::string& name, std::vector<ProjectionPart> parts, int64_t in, const ParameterFactory& make);

  /// x [..., in] → [..., Σ out].
  Tensor forward(const Tensor& x) const;
  /// gated_activation of that, for two parts: gate and up.
  Tensor forward_gated(const Tensor& x, ops::Gate gate, const ops::GateOptions& options) const;
  /// Both of the stream's norm.
  Tensor forward_normed(Stream& stream, const NormLayer& norm) const;
  Tensor forward_normed_gated(Stream& stream, const NormLayer& norm, ops::Gate gate,
                              const ops::GateOptions& options) const;
  /// forward(x), cut into the parts: [..., out] each; views of one tensor while the weight is joined.
  std::vector<Tensor> forward_parts(const Tensor& x) const;
  /// What forward gave, as views of the parts.
  std::vector<Tensor> split(const Tensor& y) const;
  /// One product gives all parts.
  bool is_joined() const { return weight_.joined() || rounded_.defined(); }
  /// That product is over a weight as it was given: weight().
  bool is_plain() const { return weight_.joined() && !rounded_.defined(); }
  const Tensor& weight() const { return weight_.whole; }
  /// The bias of all parts, zeros where a part has none; undefined where none has.
  Tensor joined_bias() const;
  /// The format of the first part is that of all; on a GPU parts become one.
  void store_weights(const WeightFormats& formats, const std::string& prefix) override;

 private:
  Tensor part_forward(const Tensor& x, size_t part) const;

  std::vector<ProjectionPart> parts_;
  JoinedTensor weight_;
  ops::QuantizedWeight rounded_;             ///< of all parts, instead of weight_ where defined
  JoinedTensor bias_;                        ///< where every part has a bias
  std::vector<JoinedTensor> single_biases_;  ///< where only some have: of one part each, without layout for the others
};

}  // namespace lamina::nn
