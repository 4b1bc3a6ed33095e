#include "lamina/nn/embedding.h"

#include <algorithm>
#include <bit>

#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/elementwise/soft_cap.h"
#include "lamina/ops/parallel/collectives.h"
#include "lamina/ops/position/tables.h"

namespace lamina::nn {
namespace {

/// The constant that a resolved scale stands for.
double factor_of(const arch::Scale& scale) {
  const auto* constant = std::get_if<arch::ConstantScale>(&scale);
  LAMINA_CHECK(constant != nullptr, "model: the architecture is not resolved; call arch::resolve first");
  return constant->value;
}

/// Rows of the position table for the tokens of `pass`. A token at position p uses row p + shift.
Tensor rows_of(const Tensor& table, const ForwardContext& pass, int64_t shift) {
  const Tensor positions = pass.own_positions(table.device());
  if (positions.defined()) {
    return ops::embedding(shift == 0 ? table : table.slice(0, shift, table.dim(0) - shift), positions);
  }
  return table.slice(0, pass.offset + shift, pass.seq);
}

}  // namespace

TokenEmbedding::TokenEmbedding(const arch::ArchSpec& spec, const ParameterFactory& make, PositionTables& positions,
                               const TokenEmbedding* shared)
    : position_(spec.position),
      positions_(positions),
      d_model_(spec.d_model),
      scale_(factor_of(spec.embedding.scale)),
      shared_(shared),
      lookup_{.padding = spec.embedding.padding_token.value_or(-1)} {
  if (const arch::Shard* shard = make.shard("weight")) {
    lookup_.first_row = shard->begin;
    lookup_.vocab = shard->whole_shape[0];
  }
  if (shared == nullptr && make.holds("weight")) {
    weight_ = make.normal("weight", {spec.vocab_size, *spec.embedding.d_embed});
    add_parameter("weight", weight_);
  }
  if (*spec.embedding.d_embed != spec.d_model && make.holds_any("project_in")) {
    project_in_.emplace(spec.d_model, *spec.embedding.d_embed, false, make.at("project_in"));
    add_child("project_in", *project_in_);
  }
  if (spec.embedding.segments && make.holds_any("segments")) {
    segments_.emplace(Shape{*spec.embedding.segments, spec.d_model}, make.at("segments"));
    add_child("segments", *segments_);
  }
  if (spec.embedding.norm && make.holds_any("norm")) {
    norm_.emplace(*spec.embedding.norm, spec.d_model, make.at("norm"));
    add_child("norm", *norm_);
  }
}

Tensor TokenEmbedding::position_rows(const ForwardContext& pass, const Tensor& like) {
  if (const auto* learned = std::get_if<arch::LearnedPosition>(&position_)) {
    LAMINA_CHECK(pass.last_position() < *learned->length, "model: the last token has position ", pass.last_position(),
                 ", but the table of learned positions has ", *learned->length,
                 "; give a shorter sequence, or use an architecture with rope or alibi positions");
    return rows_of(positions_.weight(), pass, learned->offset).to(like.dtype());
  }
  const auto* sinusoidal = std::get_if<arch::SinusoidalPosition>(&position_);
  if (sinusoidal == nullptr) return {};
  const int64_t needed = pass.last_position() + 1;
  if (!sinusoids_.defined() || !(sinusoids_.device() == like.device()) || sinusoids_.dim(0) < needed) {
    const auto room = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(needed, 64))));
    sinusoids_ = ops::sinusoidal_table(room, d_model_, like.device(), sinusoidal->theta);
  }
  return rows_of(sinusoids_, pass, 0).to(like.dtype());
}

Tensor TokenEmbedding::forward(const Tensor& ids, ForwardContext& pass) {
  LAMINA_CHECK(segments_ || !pass.segments.defined(),
               "model: segments are given, but this model has none; leave them out or set embedding.segments");
  Tensor x = pass.leave(ops::embedding(weight(), ids, lookup_));
  if (scale_ != 1.0) x = ops::scale(x, scale_);
  if (project_in_) x = project_in_->forward(x);
  if (segments_) {
    const Tensor& table = segments_->weight();
    x = ops::add(
        x, pass.segments.defined() ? ops::embedding(table, pass.own_tokens(pass.segments)) : table.slice(0, 0, 1));
  }
  const Tensor rows = position_rows(pass, x);
  if (rows.defined()) x = ops::add(x, rows);
  if (norm_) x = norm_->forward(x);
  return pass.drop(x, pass.dropout.embedding);
}

OutputHead::OutputHead(const arch::ArchSpec& spec, const ParameterFactory& make, const TokenEmbedding& embedding,
                       int64_t vocab, const TensorParallel* parallel)
    : embedding_(embedding),
      vocab_(vocab),
      parallel_(parallel),
      scale_(factor_of(spec.head.scale)),
      soft_cap_(spec.head.soft_cap.value_or(0.0)) {
  const int64_t d_embed = *spec.embedding.d_embed;
  if (spec.head.transform && make.holds_any("transform")) {
    transform_.emplace(*spec.head.transform, spec.d_model, make.at("transform"));
    add_child("transform", *transform_);
  }
  if (d_embed != spec.d_model && make.holds_any("project_out")) {
    project_out_.emplace(d_embed, spec.d_model, false, make.at("project_out"));
    add_child("project_out", *project_out_);
  }
  if (!spec.head.tied && make.holds("weight")) {
    weight_ = make.normal("weight", {spec.vocab_size, d_embed});
    add_parameter("weight", weight_);
  }
  if (spec.head.bias && make.holds("bias")) {
    bias_ = make.constant({spec.vocab_size}, 0.0);
    add_parameter("bias", bias_);
  }
}

OutputHead::Transform::Transform(const arch::HeadTransform& transform, int64_t width, const ParameterFactory& make)
    : activation_(transform.activation),
      dense_(width, width, transform.bias, make.at("dense")),
      norm_(*transform.norm, width, make.at("norm")) {
  add_child("dense", dense_);
  add_child("norm", norm_);
}

Tensor OutputHead::project(const Tensor& x) const {
  const Tensor h = transform_ ? transform_->forward(x) : x;
  return project_out_ ? project_out_->forward(h) : h;
}

void OutputHead::store_weights(const WeightFormats& formats, const std::string& prefix) {
  Module::store_weights(formats, prefix);
  const WeightFormat format = formats.of(prefix + "weight");
  if (weight_.defined()) return store_weight(weight_, quantized_, format);
  converted_ = embedding_.weight();
  store_weight(converted_, quantized_, format);
}

ops::ClassShard OutputHead::classes() const {
  if (parallel_ == nullptr) return {};
  return {&parallel_->ranks(), embedding_.first_row(), vocab_};
}

Tensor OutputHead::logits(const Tensor& x) const {
  Tensor h = project(x);
  if (parallel_ != nullptr) h = ops::share_with_ranks(h, parallel_->ranks(), "logits");
  return scale_and_cap(quantized_.defined() ? ops::quantized_linear(h, quantized_, bias_)
                                            : ops::linear(h, used_weight(), bias_));
}

Tensor OutputHead::normed_logits(ResidualStream& stream, const NormLayer& norm) const {
  if (transform_ || project_out_ || parallel_ != nullptr) return logits(stream.normed(norm));
  if (quantized_.defined()) return scale_and_cap(stream.normed_linear(norm, quantized_, bias_));
  return scale_and_cap(stream.normed_linear(norm, used_weight(), bias_));
}

Tensor OutputHead::scale_and_cap(Tensor y) const {
  if (scale_ != 1.0) y = ops::scale(y, scale_);
  if (soft_cap_ != 0.0) y = ops::soft_cap(y, soft_cap_);
  if (parallel_ == nullptr) return y;
  std::vector<int64_t> counts;
  for (int rank = 0; rank < parallel_->ranks().size(); ++rank) {
    const arch::UnitRange rows = arch::unit_range(arch::divided_rows(vocab_), parallel_->ranks().size(), rank);
    counts.push_back(rows.end - rows.begin);
  }
  return ops::gather_copies(y, parallel_->ranks(), counts, -1, "logits");
}

}  // namespace lamina::nn
