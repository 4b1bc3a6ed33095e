#include "lamina/nn/norm.h"

#include "lamina/nn/weight_format.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/norm/layer_norm.h"
#include "lamina/ops/norm/rms_norm.h"

namespace lamina::nn {
namespace {

bool is_rms(const arch::Norm& norm) {
  return std::holds_alternative<arch::RmsNorm>(norm) || std::holds_alternative<arch::RmsNormNoParams>(norm);
}

double offset_of(const arch::Norm& norm) {
  if (const auto* rms = std::get_if<arch::RmsNorm>(&norm)) return rms->offset;
  if (const auto* layer = std::get_if<arch::LayerNorm>(&norm)) return layer->offset;
  return 0.0;
}

double eps_of(const arch::Norm& norm) {
  return std::visit([](const auto& option) { return option.eps; }, norm);
}

ops::RmsNormOptions rms_options(const arch::Norm& norm, int64_t head_width) {
  ops::RmsNormOptions options{.eps = eps_of(norm), .group_size = head_width, .weight_offset = offset_of(norm)};
  const auto* rms = std::get_if<arch::RmsNorm>(&norm);
  if (rms != nullptr && rms->group_size) options.group_size = *rms->group_size;
  return options;
}

}  // namespace

NormLayer::NormLayer(const arch::Norm& norm, int64_t width, const ParameterFactory& make, int64_t heads)
    : norm_(norm), width_(width), heads_(heads) {
  const auto* layer = std::get_if<arch::LayerNorm>(&norm);
  if (layer != nullptr || std::holds_alternative<arch::RmsNorm>(norm)) {
    weight_ = make.constant({width}, 1.0 - offset_of(norm));
    add_parameter("weight", weight_);
  }
  if (layer != nullptr && layer->bias) {
    bias_ = make.constant({width}, 0.0);
    add_parameter("bias", bias_);
  }
}

Tensor NormLayer::layer_scale(double offset) const {
  if (!weight_.defined() || offset == 0.0) return weight_;
  return ops::add(weight_, Tensor::full({1}, offset, weight_.dtype(), weight_.device()));
}

void NormLayer::store_weights(const WeightFormats& /*formats*/, const std::string& /*prefix*/) {
  store_vector(weight_);
  store_vector(bias_);
}

/// LayerNorm over each head, then each head's own scale and bias.
Tensor NormLayer::per_head(const Tensor& x, double eps) const {
  Shape split = x.shape();
  split[-1] = heads_;
  split.push_back(width_ / heads_);
  Tensor y = ops::layer_norm(x.reshape(split), {}, {}, eps).reshape(x.shape());
  const Tensor scale = layer_scale(offset_of(norm_));
  if (scale.defined()) y = ops::mul(y, scale.to(y.dtype()));
  return bias_.defined() ? ops::add(y, bias_.to(y.dtype())) : y;
}

Tensor NormLayer::forward(const Tensor& x) const {
  if (is_rms(norm_)) return ops::rms_norm(x, weight_, rms_options(norm_, heads_ > 1 ? width_ / heads_ : 0));
  if (heads_ > 1) return per_head(x, eps_of(norm_));
  return ops::layer_norm(x, layer_scale(offset_of(norm_)), bias_, eps_of(norm_));
}

ops::RowNorm NormLayer::row_norm() const {
  if (is_rms(norm_)) return {ops::RowNorm::Kind::rms, weight_, {}, rms_options(norm_, 0)};
  return {ops::RowNorm::Kind::layer, layer_scale(offset_of(norm_)), bias_, {.eps = eps_of(norm_)}};
}

ops::ResidualNorm NormLayer::forward_add(const Tensor& x, const Tensor& residual) const {
  if (is_rms(norm_)) return ops::add_rms_norm(x, residual, weight_, rms_options(norm_, 0));
  return ops::add_layer_norm(x, residual, layer_scale(offset_of(norm_)), bias_, eps_of(norm_));
}

}  // namespace lamina::nn
