#pragma once

#include <memory>

#include "lamina/arch/spec.h"
#include "lamina/nn/module.h"
#include "lamina/nn/parameter_factory.h"
#include "lamina/nn/rotary_position.h"

namespace lamina::nn {

/// What layers share about positions: the model's "position.…" parameters (as arch::outer_weights lists them) and the
/// rotations. Layers keep a reference to it.
class PositionTables final : public Module {
 public:
  PositionTables(const arch::ArchSpec& spec, const ParameterFactory& make);

  /// "position.weight": learned rows [length + offset, d_model] or the shared T5 table [buckets, n_heads].
  const Tensor& weight() const { return weight_; }
  /// "position.u" and "position.v" [n_heads, head_dim], where layers of relative attention share them.
  const Tensor& u() const { return u_; }
  const Tensor& v() const { return v_; }

  /// The rotation with these settings, made at the first call.
  RotaryPosition& rotary(const arch::Rope& rope);
  /// Some rotation turns otherwise at another length.
  bool depend_on_length() const;
  /// Some rotation of a sequence of `a` tokens is not that of one of `b` tokens.
  bool change_between(int64_t a, int64_t b) const;

 private:
  Tensor weight_;
  Tensor u_;
  Tensor v_;
  std::vector<std::unique_ptr<RotaryPosition>> rotary_;
};

}  // namespace lamina::nn
