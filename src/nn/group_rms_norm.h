#pragma once

#include "lamina/nn/module.h"

namespace lamina::nn {

/// Options of GroupRMSNorm.
struct GroupRMSNormOptions {
  double eps = 1e-5;  ///< added to the mean square
  /// The weight is initialised uniformly in [init_low, init_high), as by nn.init.uniform_.
  double init_low = -1.0;
  double init_high = 1.0;    ///< see init_low
  uint64_t init_seed = 42;   ///< see torch.manual_seed
  DType dtype = DType::f32;  ///< type of the weight
};

/// y = x / rms(x) · weight, with the root mean square computed over each group of `group_size` consecutive elements of
/// the last dimension; group_size = hidden_size is plain RMSNorm.
///   weight  [hidden_size]          parameter; its type and device may differ from x's
///   x, y    [batch, seq, hidden]   y has x's type and device; computed in f32
class GroupRMSNorm final : public Module {
 public:
  /// Throws Error unless group_size divides hidden_size. Initialises the weight.
  GroupRMSNorm(int64_t hidden_size, int64_t group_size, const Device& device, const GroupRMSNormOptions& options = {});

  Tensor forward(const Tensor& x) const;  ///< The norm of x [batch, seq, hidden_size].
  void reset_parameters() override;
  const Tensor& weight() const { return weight_; }  ///< [hidden_size]

 private:
  int64_t group_size_;
  GroupRMSNormOptions options_;
  Tensor weight_;
};

}  // namespace lamina::nn
