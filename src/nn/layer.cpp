#include "lamina/nn/layer.h"

#include "lamina/ops/elementwise/elementwise.h"

namespace lamina::nn {

using arch::NormSlot;
using arch::Placement;

Layer::Layer(const arch::ArchSpec& spec, const arch::Block& block, const ParameterFactory& make,
             PositionTables& positions)
    : placement_(block.placement),
      parallel_(std::holds_alternative<arch::ParallelWiring>(block.wiring)),
      residual_scale_(block.residual_scale),
      mixer_(make_mixer(spec, block, make.at("mixer"), positions)),
      ffn_(make_ffn(spec, block, make.at("ffn"))) {
  for (const NormSlot slot : arch::norm_slots(block)) {
    const std::string name(names_of(slot)[static_cast<size_t>(slot)]);
    auto& norm = norms_[static_cast<size_t>(slot)];
    norm.emplace(*block.norm, spec.d_model, make.at(name));
    add_child(name, *norm);
  }
  if (mixer_) add_child("mixer", *mixer_);
  if (block.cross) {
    cross_.emplace(spec, *block.cross, make.at("cross"));
    add_child("cross", *cross_);
  }
  if (ffn_) add_child("ffn", *ffn_);
}

const NormLayer* Layer::norm(NormSlot slot) const {
  const auto& found = norms_[static_cast<size_t>(slot)];
  return found ? &*found : nullptr;
}

Tensor Layer::output_normed(NormSlot slot, const Tensor& x) const {
  const NormLayer* found = norm(slot);
  return found == nullptr ? x : found->forward(x);
}

Tensor Layer::branch(Tensor output, ForwardContext& pass) const {
  output = pass.drop(output, pass.dropout.residual);
  return residual_scale_ == 1.0 ? output : ops::scale(output, residual_scale_);
}

/// One sublayer f(x) with its norms (see arch::Placement). The residual addition is deferred in `stream.branch` so that
/// the next norm can fuse it. f_normed(norm) computes f(norm(residual stream)).
template <class F, class Normed>
void Layer::sublayer(ResidualStream& stream, ForwardContext& pass, NormSlot input, NormSlot output, const F& f,
                     const Normed& f_normed) {
  Tensor out;
  if (norm(input) != nullptr && (placement_ == Placement::pre || placement_ == Placement::sandwich)) {
    out = f_normed(*norm(input));
  } else if (placement_ == Placement::residual_after_norm) {
    stream = {stream.normed(*norm(input)), {}};
    out = f(stream.x);
  } else {
    out = f(stream.value());
  }
  if (norm(output) != nullptr) out = ops::sum_of_parts(out, stream.x);
  stream.branch = branch(output_normed(output, out), pass);
  if (placement_ == Placement::post) stream = {stream.normed(*norm(input)), {}};
}

/// Mixer and feed-forward read the same residual stream; their outputs are added. They may share one norm.
void Layer::parallel(ResidualStream& stream, ForwardContext& pass, LayerCache* cache) {
  Tensor mixer_in;
  Tensor ffn_in;
  if (norm(NormSlot::both) != nullptr && placement_ != Placement::post) {
    mixer_in = ffn_in = stream.normed(*norm(NormSlot::both));
    if (placement_ == Placement::residual_after_norm) stream = {mixer_in, {}};
  } else if (norm(NormSlot::mixer) != nullptr) {
    mixer_in = stream.normed(*norm(NormSlot::mixer));
    ffn_in = norm(NormSlot::ffn)->forward(stream.x);
  } else {
    mixer_in = ffn_in = stream.value();
  }
  const Tensor mixed = output_normed(NormSlot::mixer_output, mixer_->forward(mixer_in, pass, cache));
  const Tensor fed = output_normed(NormSlot::ffn_output, ffn_->forward(ffn_in, pass));
  stream.branch = branch(ops::add(mixed, fed), pass);
  if (placement_ == Placement::post) stream = {stream.normed(*norm(NormSlot::both)), {}};
}

ResidualStream Layer::forward(ResidualStream stream, ForwardContext& pass, const LayerCaches& caches) {
  LayerCache* cache = caches.mixer;
  if (parallel_) {
    parallel(stream, pass, cache);
    return stream;
  }
  if (mixer_) {
    sublayer(
        stream, pass, NormSlot::mixer, NormSlot::mixer_output,
        [&](const Tensor& x) { return mixer_->forward(x, pass, cache); },
        [&](const NormLayer& norm) { return mixer_->forward_normed(stream, norm, pass, cache); });
  }
  if (cross_) {
    const auto attend = [&](const Tensor& x) { return cross_->forward(x, pass, caches.cross); };
    sublayer(stream, pass, NormSlot::cross, NormSlot::cross_output, attend,
             [&](const NormLayer& norm) { return attend(stream.normed(norm)); });
  }
  if (ffn_) {
    sublayer(
        stream, pass, NormSlot::ffn, NormSlot::ffn_output, [&](const Tensor& x) { return ffn_->forward(x, pass); },
        [&](const NormLayer& norm) { return ffn_->forward_normed(stream, norm, pass); });
  }
  return stream;
}

}  // namespace lamina::nn
