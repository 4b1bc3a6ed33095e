#pragma once

#include <optional>

#include "lamina/arch/spec.h"
#include "lamina/nn/norm.h"
#include "lamina/nn/position_tables.h"
#include "lamina/nn/projection.h"

namespace lamina::nn {

/// Tokens in: table[ids] · scale, projected to d_model where the table is narrower, plus learned or sinusoidal
/// positions, then a norm where the spec has one.
///   "weight" [vocab, d_embed], "project_in.weight" [d_model, d_embed], "norm.…"
class TokenEmbedding final : public Module {
 public:
  TokenEmbedding(const arch::ArchSpec& spec, const ParameterFactory& make, PositionTables& positions);

  /// ids [batch, seq] i64 or i32 → [batch, seq, d_model] in the table's type.
  Tensor forward(const Tensor& ids, Pass& pass);
  const Tensor& weight() const { return weight_; }

 private:
  /// Rows of the position table for the tokens of `pass`, [seq or batch·seq rows, d_model]; undefined where positions
  /// are the layers' business.
  Tensor position_rows(const Pass& pass, const Tensor& like);

  arch::Position position_;
  PositionTables& positions_;
  int64_t d_model_;
  double scale_;
  int64_t padding_;  ///< the token whose row gets no gradient here; -1: none
  Tensor weight_;
  std::optional<Linear> project_in_;
  std::optional<NormLayer> norm_;
  Tensor sinusoids_;  ///< [positions, d_model]; made when needed, and grows
};

/// Logits out: soft_cap(scale · (h · weightᵀ + bias)), h projected to d_embed where the table is narrower.
///   "project_out.weight" [d_embed, d_model], "weight" [vocab, d_embed] unless tied, "bias" [vocab]
class OutputHead final : public Module {
 public:
  OutputHead(const arch::ArchSpec& spec, const ParameterFactory& make, const TokenEmbedding& embedding);

  /// x [..., d_model] → what the vocabulary's rows are multiplied with, [..., d_embed].
  Tensor project(const Tensor& x) const { return project_out_ ? project_out_->forward(x) : x; }
  /// x [..., d_model] → [..., vocab].
  Tensor logits(const Tensor& x) const;
  /// The same of the stream's norm.
  Tensor normed_logits(Stream& stream, const NormLayer& norm) const;

  const Tensor& weight() const { return weight_.defined() ? weight_ : embedding_.weight(); }
  const Tensor& bias() const { return bias_; }
  double scale() const { return scale_; }
  double soft_cap() const { return soft_cap_; }  ///< 0: none
  /// A tied table is converted or rounded for the logits alone: of the other one only the rows of a few tokens are ever
  /// read.
  void store_weights(const WeightFormats& formats, const std::string& prefix) override;
  bool is_rounded() const { return rounded_.defined(); }

 private:
  const Tensor& used_weight() const { return converted_.defined() ? converted_ : weight(); }
  /// Scaled and capped.
  Tensor finished(Tensor y) const;

  const TokenEmbedding& embedding_;
  double scale_;
  double soft_cap_;
  std::optional<Linear> project_out_;
  Tensor weight_;
  Tensor converted_;              ///< instead of weight() where defined
  ops::QuantizedWeight rounded_;  ///< instead of both where defined
  Tensor bias_;
};

}  // namespace lamina::nn
