#pragma once

#include "lamina/arch/spec.h"
#include "lamina/nn/forward_start.h"
#include "lamina/nn/projection.h"

namespace lamina::nn {

/// Pools hidden states to one vector per sequence, and computes a classifier's logits from it.
///   "pooling.weight" [d_model, d_model], "pooling.bias"; "classifier.weight" [classes, d_model], "classifier.bias"
/// Register it with add_child("", …).
class PooledHead final : public Module {
 public:
  PooledHead(const arch::ArchSpec& spec, const ParameterFactory& make);

  /// x [batch, seq, d_model] or, without padding, [1, tokens, d_model] → [batch, d_model].
  Tensor pooled(const Tensor& x, const ForwardStart& start) const;
  /// Vectors [batch, d_model] → [batch, classes].
  Tensor class_logits(const Tensor& vectors) const;

 private:
  std::optional<arch::Pooling> pooling_;
  int64_t d_model_;
  std::optional<Linear> dense_;
  std::optional<Linear> classifier_;
};

}  // namespace lamina::nn
