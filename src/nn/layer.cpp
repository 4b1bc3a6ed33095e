#include "lamina/nn/layer.h"

#include "lamina/nn/recompute.h"
#include "lamina/ops/elementwise/elementwise.h"

namespace lamina::nn {

using arch::NormSlot;
using arch::Placement;

Layer::Layer(const arch::ArchSpec& spec, const arch::Block& block, const ParameterFactory& make,
             PositionTables& positions)
    : placement_(block.placement),
      parallel_(std::holds_alternative<arch::ParallelWiring>(block.wiring)),
      residual_scale_(block.residual_scale),
      skip_scale_(block.skip_scale),
      mixer_(make_mixer(spec, block, make.at("mixer"), positions)),
      ffn_(make_ffn(spec, block, make.at("ffn"))) {
  for (const NormSlot slot : arch::norm_slots(block)) {
    const std::string name(names_of(slot)[static_cast<size_t>(slot)]);
    auto& norm = norms_[static_cast<size_t>(slot)];
    norm.emplace(*block.norm, spec.d_model, make.at(name));
    add_child(name, *norm);
  }
  if (mixer_) add_child("mixer", *mixer_);
  if (block.cross && spec.retrieval) {
    chunked_cross_.emplace(spec, *block.cross, make.at("cross"), positions);
    add_child("cross", *chunked_cross_);
  } else if (block.cross) {
    cross_.emplace(spec, *block.cross, make.at("cross"), positions);
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

void Layer::add(ResidualStream& stream, Tensor output, ForwardContext& pass) const {
  output = pass.drop(output, pass.dropout.residual);
  if (skip_scale_ != 1.0) stream.x = ops::scale(stream.x, skip_scale_);
  stream.branch = residual_scale_ == 1.0 ? output : ops::scale(output, residual_scale_);
}

template <class F>
Tensor Layer::recomputing_norm(ResidualStream& stream, const NormLayer& norm, ForwardContext& pass, const F& f) {
  const Tensor y = stream.normed(norm);
  Tensor out = f(y);
  if (!out.shares_memory_with(y)) {
    recompute_in_backward(pass.recompute, y, [&norm, x = stream.x.detach()] { return norm.forward(x); });
  }
  return out;
}

/// One sublayer f(x) with its norms (see arch::Placement). The residual addition is deferred in `stream.branch` so that
/// the next norm can fuse it. `f_normed(norm)` computes f(norm(residual stream)), possibly fused.
template <class F, class Normed>
void Layer::sublayer(ResidualStream& stream, ForwardContext& pass, NormSlot input, NormSlot output, const F& f,
                     const Normed& f_normed) {
  Tensor out;
  if (norm(input) != nullptr && (placement_ == Placement::pre || placement_ == Placement::sandwich)) {
    out = pass.recompute == nullptr ? f_normed(*norm(input)) : recomputing_norm(stream, *norm(input), pass, f);
  } else if (placement_ == Placement::residual_after_norm) {
    stream = {stream.normed(*norm(input)), {}};
    out = f(stream.x);
  } else {
    out = f(stream.value());
  }
  if (norm(output) != nullptr) out = ops::sum_of_parts(out, stream.x);
  add(stream, output_normed(output, out), pass);
  if (placement_ == Placement::post) stream = {stream.normed(*norm(input)), {}};
}

/// Parallel block: mixer and feed-forward read the same residual stream, and both outputs are added. They may share one
/// norm.
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
  if (ffn_in.shares_memory_with(mixer_in)) ffn_in = Tensor();
  Tensor mixed;
  Tensor fed;
  {
    const Tensor entered = pass.enter(mixer_in);
    const Tensor ffn_entered = ffn_in.defined() ? pass.enter(ffn_in) : entered;
    mixed = output_normed(NormSlot::mixer_output, pass.leave(mixer_->forward(entered, pass, cache)));
    fed = output_normed(NormSlot::ffn_output, pass.leave(ffn_->forward(ffn_entered, pass)));
  }
  if (placement_ == Placement::pre || placement_ == Placement::sandwich) {
    const auto recompute = [&](const Tensor& y, const NormLayer* norm) {
      if (norm == nullptr || !y.defined()) return;
      recompute_in_backward(pass.recompute, y, [norm, x = stream.x.detach()] { return norm->forward(x); });
    };
    const bool both = norm(NormSlot::both) != nullptr;
    recompute(mixer_in, norm(both ? NormSlot::both : NormSlot::mixer));
    recompute(ffn_in, norm(NormSlot::ffn));
  }
  add(stream, ops::add(mixed, fed), pass);
  if (placement_ == Placement::post) stream = {stream.normed(*norm(NormSlot::both)), {}};
}

void Layer::cross_sublayer(ResidualStream& stream, ForwardContext& pass, LayerCache* cache) {
  const bool chunked = chunked_cross_ && pass.neighbours.encoder != nullptr;
  if (!cross_ && !chunked) return;
  const auto attend = [&](const Tensor& x) {
    return chunked ? chunked_cross_->forward(x, pass, cache) : cross_->forward(x, pass, cache);
  };
  sublayer(stream, pass, NormSlot::cross, NormSlot::cross_output, attend,
           [&](const NormLayer& norm) { return attend(stream.normed(norm)); });
}

ResidualStream Layer::forward(ResidualStream stream, ForwardContext& pass, const LayerCaches& caches) {
  LayerCache* cache = caches.mixer;
  if (parallel_) {
    parallel(stream, pass, cache);
    cross_sublayer(stream, pass, caches.cross);
    return stream;
  }
  const bool alone = pass.parallel == nullptr;  // with several ranks the norm's output must first enter() the sublayer
  if (mixer_) {
    const auto mix = [&](const Tensor& x) { return pass.leave(mixer_->forward(pass.enter(x), pass, cache)); };
    sublayer(stream, pass, NormSlot::mixer, NormSlot::mixer_output, mix, [&](const NormLayer& norm) {
      return alone ? mixer_->forward_normed(stream, norm, pass, cache) : mix(stream.normed(norm));
    });
  }
  cross_sublayer(stream, pass, caches.cross);
  if (ffn_) {
    const auto feed = [&](const Tensor& x) { return pass.leave(ffn_->forward(pass.enter(x), pass)); };
    sublayer(stream, pass, NormSlot::ffn, NormSlot::ffn_output, feed, [&](const NormLayer& norm) {
      return alone ? ffn_->forward_normed(stream, norm, pass) : feed(stream.normed(norm));
    });
  }
  return stream;
}

}  // namespace lamina::nn
