#include "lamina/nn/projection.h"

#include <algorithm>

#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/elementwise/split.h"
#include "lamina/tensor/host_memory.h"

namespace lamina::nn {
namespace {

/// Packs separately loaded parts, so that one GEMM computes all of them. Parts in host memory stay separate: they may
/// be pages of a memory-mapped file, which should not be copied.
void pack_outside_host_memory(PackedTensor& tensor) {
  const std::vector<Tensor>& parts = tensor.parts;
  const bool packs = !parts.empty() && std::all_of(parts.begin(), parts.end(), [&](const Tensor& part) {
    return !part.is_meta() && !is_in_host_memory(part) && part.dtype() == parts[0].dtype();
  });
  if (!packs) return;
  tensor.whole = ops::concat(parts, 0);
  tensor.parts.clear();
}

}  // namespace

Linear::Linear(int64_t out, int64_t in, bool bias, const ParameterFactory& make, Ends ends) {
  weight_ = ends == Ends::in_residual ? make.residual("weight", {out, in}) : make.normal("weight", {out, in});
  add_parameter("weight", weight_);
  if (!bias || !make.holds("bias")) return;
  bias_ = make.constant({out}, 0.0);
  add_parameter("bias", bias_);
}

PackedLinear::PackedLinear(const std::string& name, std::vector<ProjectionPart> parts, int64_t in,
                           const ParameterFactory& make)
    : parts_(std::move(parts)) {
  int64_t out = 0;
  size_t biases = 0;
  for (const ProjectionPart& part : parts_) {
    out += part.out;
    biases += part.bias ? 1 : 0;
    weight_.layout.push_back({part.name + ".weight", part.out});
    bias_.layout.push_back({part.name + ".bias", part.out});
  }
  weight_.whole = make.empty({out, in});
  for (size_t i = 0; i < parts_.size(); ++i) {
    make.fill_normal(weight_.layout[i].name, weight_.part(i), make.options().deviation);
  }
  add_packed_parameter(name + ".weight", weight_);
  if (biases == parts_.size()) {
    bias_.whole = make.constant({out}, 0.0);
    add_packed_parameter(name + ".bias", bias_);
  } else if (biases > 0) {
    single_biases_.resize(parts_.size());
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (!parts_[i].bias) continue;
      single_biases_[i].layout = {bias_.layout[i]};
      single_biases_[i].whole = make.constant({parts_[i].out}, 0.0);
      add_packed_parameter(bias_.layout[i].name, single_biases_[i]);
    }
  }
}

Tensor PackedLinear::packed_bias() const {
  if (bias_.is_packed()) return bias_.whole;
  if (!bias_.parts.empty()) return ops::concat(bias_.parts, 0);
  if (single_biases_.empty()) return {};
  const auto given = std::find_if(parts_.begin(), parts_.end(), [](const ProjectionPart& part) { return part.bias; });
  const Tensor like = single_biases_[static_cast<size_t>(given - parts_.begin())].part(0);
  std::vector<Tensor> all;
  for (size_t i = 0; i < parts_.size(); ++i) {
    all.push_back(parts_[i].bias ? single_biases_[i].part(0)
                                 : Tensor::zeros({parts_[i].out}, like.dtype(), like.device()));
  }
  return ops::concat(all, 0);
}

void Linear::store_weights(const WeightFormats& formats, const std::string& prefix) {
  if (!keeps_weight_) store_weight(weight_, quantized_, formats.of(prefix + "weight"));
  store_vector(bias_);
}

void PackedLinear::store_weights(const WeightFormats& formats, const std::string& prefix) {
  const WeightFormat format = formats.of(prefix + weight_.layout[0].name);
  pack_outside_host_memory(weight_);
  pack_outside_host_memory(bias_);
  store_vector(bias_.whole);
  if (weight_.is_packed()) return store_weight(weight_.whole, quantized_, format);
  if (!is_quantized(format)) {
    for (Tensor& part : weight_.parts) store_weight(part, quantized_, format);
    return;
  }
  Tensor whole = ops::concat(weight_.parts, 0);
  for (Tensor& part : weight_.parts) part = Tensor::empty(part.shape(), part.dtype(), Device::meta());
  store_weight(whole, quantized_, format);
}

Tensor PackedLinear::part_forward(const Tensor& x, size_t part) const {
  Tensor bias;
  if (!bias_.parts.empty()) bias = bias_.parts[part];
  if (!single_biases_.empty() && parts_[part].bias) bias = single_biases_[part].part(0);
  return ops::linear(x, weight_.parts[part], bias);
}

Tensor PackedLinear::forward(const Tensor& x) const {
  if (is_packed()) return ops::project(x, used_weight(), packed_bias());
  return ops::concat(forward_parts(x), -1);
}

Tensor PackedLinear::forward_gated(const Tensor& x, ops::Gate gate, const ops::GateOptions& options) const {
  if (is_packed()) return ops::project_gated(x, used_weight(), packed_bias(), gate, options);
  return ops::gated_activation(forward(x), gate, options);
}

Tensor PackedLinear::forward_normed(ResidualStream& stream, const NormLayer& norm) const {
  return is_packed() ? stream.normed_linear(norm, used_weight(), packed_bias()) : forward(stream.normed(norm));
}

Tensor PackedLinear::forward_normed_gated(ResidualStream& stream, const NormLayer& norm, ops::Gate gate,
                                          const ops::GateOptions& options) const {
  if (is_packed()) return stream.normed_gated_linear(norm, used_weight(), packed_bias(), gate, options);
  return forward_gated(stream.normed(norm), gate, options);
}

std::vector<Tensor> PackedLinear::forward_parts(const Tensor& x) const {
  if (is_packed()) return split(forward(x));
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < parts_.size(); ++i) outputs.push_back(part_forward(x, i));
  return outputs;
}

std::vector<Tensor> PackedLinear::split(const Tensor& y) const {
  std::vector<int64_t> widths;
  for (const ProjectionPart& part : parts_) widths.push_back(part.out);
  return ops::split(y, widths, -1);
}

}  // namespace lamina::nn
