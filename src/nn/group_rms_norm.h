#pragma once

#include "lamina/nn/module.h"

namespace lamina::nn {

struct GroupRMSNormOptions {
  double eps = 1e-5;
  /// The weight is initialised uniformly in [init_low, init_high), like nn.init.uniform_.
  double init_low = -1.0;
  double init_high = 1.0;
  uint64_t init_seed = 42;
  DType dtype = DType::f32;
};

/// y = x / rms(x) · weight, with the root mean square computed over each group of `group_size` consecutive elements of
/// the last dimension; group_size = hidden_size is plain RMSNorm.
///   weight  [hidden_size]          parameter; its type and device may differ from x's
///   x, y    [batch, seq, hidden]   y has x's type and device; computed in f32
class GroupRMSNorm final : public Module {
 public:
  GroupRMSNorm(int64_t hidden_size, int64_t group_size, const Device& device, const GroupRMSNormOptions& options = {});

  Tensor forward(const Tensor& x) const;
  void reset_parameters() override;
  const Tensor& weight() const { return weight_; }

 private:
  int64_t group_size_;
  GroupRMSNormOptions options_;
  Tensor weight_;
};

}  // namespace lamina::nn
