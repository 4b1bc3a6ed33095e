#pragma once

#include <string>
#include <vector>

#include "lamina/nn/module.h"
#include "lamina/nn/parameter_factory.h"
#include "lamina/nn/residual_stream.h"
#include "lamina/nn/weight_format.h"
#include "lamina/ops/linear/gated_linear.h"
#include "lamina/ops/linear/linear.h"
#include "lamina/ops/linear/linear_weight.h"

namespace lamina::nn {

/// y = act(x · weightᵀ + bias)
///   weight [out, in] as "weight", bias [out] as "bias" if there is one
class Linear final : public Module {
 public:
  /// Where the output goes. Projections into the residual stream have their own initial deviation.
  enum class Ends : uint8_t { inside, in_residual };
  Linear(int64_t out, int64_t in, bool bias, const ParameterFactory& make, Ends ends = Ends::inside);

  Tensor forward(const Tensor& x, ops::Activation activation = ops::Activation::none) const {
    return ops::project(x, used_weight(), bias_, activation);
  }
  /// forward(norm(residual stream)).
  Tensor forward_normed(ResidualStream& stream, const NormLayer& norm,
                        ops::Activation activation = ops::Activation::none) const {
    return stream.normed_linear(norm, used_weight(), bias_, activation);
  }
  const Tensor& weight() const { return weight_; }
  /// The weight that the GEMM uses, plain or quantized.
  ops::LinearWeight used_weight() const { return quantized_.defined() ? ops::LinearWeight(quantized_) : weight_; }
  const Tensor& bias() const { return bias_; }
  /// Whether the weight is not quantized.
  bool has_unquantized_weight() const { return !quantized_.defined(); }
  void store_weights(const WeightFormats& formats, const std::string& prefix) override;
  /// Keeps weight() unquantized in store_weights(), for owners that use it directly.
  void keep_weight() { keeps_weight_ = true; }

 private:
  bool keeps_weight_ = false;
  Tensor weight_;
  ops::QuantizedWeight quantized_;  ///< replaces weight_ if defined
  Tensor bias_;
};

/// One projection of a PackedLinear.
struct ProjectionPart {
  std::string name;  ///< "q"; its weight is "q.weight" in the state dict
  int64_t out = 0;
  bool bias = false;
};

/// Several projections of the same input. They are one GEMM with a packed weight [Σ out, in] or, if a checkpoint was
/// adopted in place, one GEMM each. Register it with add_child("", …), so that the parts' names appear directly under
/// the owner's.
class PackedLinear final : public Module {
 public:
  /// `name` is the packed parameter's name for optimizers: "qkv" gives "qkv.weight" and "qkv.bias".
  PackedLinear(const std::string& name, std::vector<ProjectionPart> parts, int64_t in, const ParameterFactory& make);

  /// x [..., in] → [..., Σ out].
  Tensor forward(const Tensor& x) const;
  /// gated_activation(forward(x)), if the two parts are gate and up.
  Tensor forward_gated(const Tensor& x, ops::Gate gate, const ops::GateOptions& options) const;
  /// forward() and forward_gated() of norm(residual stream).
  Tensor forward_normed(ResidualStream& stream, const NormLayer& norm) const;
  Tensor forward_normed_gated(ResidualStream& stream, const NormLayer& norm, ops::Gate gate,
                              const ops::GateOptions& options) const;
  /// forward(x) split into its parts [..., out]. They are views of one tensor if the weight is packed.
  std::vector<Tensor> forward_parts(const Tensor& x) const;
  /// Splits the output of forward() into views of the parts.
  std::vector<Tensor> split(const Tensor& y) const;
  /// Whether one GEMM computes all parts.
  bool is_packed() const { return weight_.is_packed() || quantized_.defined(); }
  /// Whether that GEMM uses the unquantized packed weight().
  bool has_unquantized_weight() const { return weight_.is_packed() && !quantized_.defined(); }
  const Tensor& weight() const { return weight_.whole; }
  /// The packed weight of that GEMM, plain or quantized.
  ops::LinearWeight used_weight() const { return quantized_.defined() ? ops::LinearWeight(quantized_) : weight_.whole; }
  /// Bias of all parts: zeros for parts without a bias, undefined if no part has one.
  Tensor packed_bias() const;
  /// Uses the format of the first part for all parts. On a GPU, packs the parts first.
  void store_weights(const WeightFormats& formats, const std::string& prefix) override;

 private:
  Tensor part_forward(const Tensor& x, size_t part) const;

  std::vector<ProjectionPart> parts_;
  PackedTensor weight_;
  ops::QuantizedWeight quantized_;           ///< quantized weight of all parts; replaces weight_ if defined
  PackedTensor bias_;                        ///< used if every part has a bias
  std::vector<PackedTensor> single_biases_;  ///< used if only some parts have a bias; empty layout for the others
};

}  // namespace lamina::nn
