#pragma once

#include <memory>

#include "lamina/arch/spec.h"
#include "lamina/nn/module.h"
#include "lamina/nn/parameter_factory.h"
#include "lamina/nn/rotary_position.h"

namespace lamina::nn {

/// Position parameters that all layers share ("position.…", listed by arch::outer_weights), and the RoPE tables. Layers
/// keep a reference to it.
class PositionTables final : public Module {
 public:
  PositionTables(const arch::ArchSpec& spec, const ParameterFactory& make);

  /// "position.weight": learned positions [length + offset, d_model] or the shared T5 bias table [buckets, n_heads].
  const Tensor& weight() const { return weight_; }
  /// "position.u" and "position.v" [n_heads, head_dim]: biases shared by the layers of relative attention.
  const Tensor& u() const { return u_; }
  const Tensor& v() const { return v_; }

  /// RoPE tables for these settings, created on first use.
  RotaryPosition& rotary(const arch::Rope& rope);
  /// Whether any RoPE has frequencies that depend on the sequence length.
  bool depend_on_length() const;
  /// Whether any RoPE has different frequencies for the sequence lengths `a` and `b`.
  bool change_between(int64_t a, int64_t b) const;

 private:
  Tensor weight_;
  Tensor u_;
  Tensor v_;
  std::vector<std::unique_ptr<RotaryPosition>> rotary_;
};

}  // namespace lamina::nn
