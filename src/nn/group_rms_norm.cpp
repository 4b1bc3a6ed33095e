#include "lamina/nn/group_rms_norm.h"

#include <cmath>

#include "lamina/nn/init.h"
#include "lamina/ops/norm/rms_norm.h"

namespace lamina::nn {

GroupRMSNorm::GroupRMSNorm(int64_t hidden_size, int64_t group_size, const Device& device,
                           const GroupRMSNormOptions& options)
    : group_size_(group_size), options_(options) {
  LAMINA_CHECK(hidden_size > 0 && group_size > 0 && hidden_size % group_size == 0, "GroupRMSNorm: group_size ",
               group_size, " does not divide hidden_size ", hidden_size, "; choose a positive divisor");
  LAMINA_CHECK(std::isfinite(options.eps) && options.eps >= 0, "GroupRMSNorm: eps is ", options.eps,
               "; expected a finite number >= 0");
  weight_ = Tensor::empty({hidden_size}, options.dtype, device);
  add_parameter("weight", weight_);
  reset_parameters();
}

Tensor GroupRMSNorm::forward(const Tensor& x) const {
  return ops::rms_norm(x, weight_.to(x.device()), {.eps = options_.eps, .group_size = group_size_});
}

void GroupRMSNorm::reset_parameters() {
  init_uniform(weight_, options_.init_low, options_.init_high, options_.init_seed);
}

}  // namespace lamina::nn
