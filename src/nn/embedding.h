#pragma once

#include <optional>

#include "lamina/arch/spec.h"
#include "lamina/nn/norm.h"
#include "lamina/nn/position_tables.h"
#include "lamina/nn/projection.h"
#include "lamina/nn/tensor_parallel.h"
#include "lamina/nn/weight_table.h"
#include "lamina/ops/embedding/embedding.h"
#include "lamina/ops/loss/cross_entropy.h"

namespace lamina::nn {

/// Token embedding: table[ids] · scale, projected to d_model if d_embed differs. Adds segment embeddings and learned or
/// sinusoidal positions, then applies a norm if the spec has one.
///   "weight" [vocab, d_embed], "project_in.weight" [d_model, d_embed], "segments.weight" [segments, d_model], "norm.…"
class TokenEmbedding final : public Module {
 public:
  /// With `shared`, this embedding uses the token table of `shared`, which must outlive it.
  TokenEmbedding(const arch::ArchSpec& spec, const ParameterFactory& make, PositionTables& positions,
                 const TokenEmbedding* shared = nullptr);

  /// ids [batch, seq] i64 or i32 → [batch, seq, d_model] in the table's type. With sequence parallelism: this rank's
  /// tokens of that (ForwardContext::divides_tokens). Tensor-parallel ranks hold different rows of the table; the sum
  /// of their outputs is the embedding.
  Tensor forward(const Tensor& ids, ForwardContext& pass);
  const Tensor& weight() const { return shared_ != nullptr ? shared_->weight() : weight_; }
  /// Vocabulary index of the first row that this rank holds.
  int64_t first_row() const { return lookup_.first_row; }

 private:
  /// Rows of the position table for the tokens of `pass`, [seq or batch·seq rows, d_model]; undefined if the layers
  /// handle positions themselves (RoPE, ALiBi).
  Tensor position_rows(const ForwardContext& pass, const Tensor& like);

  arch::Position position_;
  PositionTables& positions_;
  int64_t d_model_;
  double scale_;
  const TokenEmbedding* shared_;
  ops::EmbeddingOptions lookup_;
  Tensor weight_;
  std::optional<Linear> project_in_;
  std::optional<WeightTable> segments_;
  std::optional<NormLayer> norm_;
  Tensor sinusoids_;  ///< [positions, d_model]; built on demand and grown as needed
};

/// Output head: logits = soft_cap(scale · (h · weightᵀ + bias)), where h is x after the transform norm(act(dense(x))),
/// if there is one, projected to d_embed if d_embed differs.
///   "transform.dense.…" [d_model, d_model], "transform.norm.…"
///   "project_out.weight" [d_embed, d_model], "weight" [vocab, d_embed] unless tied, "bias" [vocab]
class OutputHead final : public Module {
 public:
  /// `vocab` is the size of the whole vocabulary. With `parallel`, its ranks divide the vocabulary rows.
  OutputHead(const arch::ArchSpec& spec, const ParameterFactory& make, const TokenEmbedding& embedding, int64_t vocab,
             const TensorParallel* parallel);

  /// Transforms x [..., d_model] and projects it to the width of the vocabulary table, [..., d_embed].
  Tensor project(const Tensor& x) const;
  /// x [..., d_model] → [..., vocab]. Every rank gets the logits of the whole vocabulary.
  Tensor logits(const Tensor& x) const;
  /// logits() of norm(residual stream); fuses the norm into the projection if possible.
  Tensor normed_logits(ResidualStream& stream, const NormLayer& norm) const;

  const Tensor& weight() const { return weight_.defined() ? weight_ : embedding_.weight(); }
  const Tensor& bias() const { return bias_; }
  /// The part of the vocabulary that weight() and bias() cover.
  ops::ClassShard classes() const;
  double scale() const { return scale_; }
  double soft_cap() const { return soft_cap_; }  ///< 0: none
  /// Converts or quantizes a tied table only for the logits. The embedding lookup keeps the original, because it reads
  /// just a few rows.
  void store_weights(const WeightFormats& formats, const std::string& prefix) override;
  bool is_quantized() const { return quantized_.defined(); }

 private:
  const Tensor& used_weight() const { return converted_.defined() ? converted_ : weight(); }
  /// Applies the logit scale and the soft cap, and gathers the logits of all ranks.
  Tensor scale_and_cap(Tensor y) const;

  const TokenEmbedding& embedding_;
  int64_t vocab_;
  const TensorParallel* parallel_;  ///< null: this rank has the whole vocabulary
  double scale_;
  double soft_cap_;
  /// Dense layer, activation and norm before the output projection.
  class Transform final : public Module {
   public:
    Transform(const arch::HeadTransform& transform, int64_t width, const ParameterFactory& make);
    Tensor forward(const Tensor& x) const { return norm_.forward(dense_.forward(x, activation_)); }

   private:
    ops::Activation activation_;
    Linear dense_;
    NormLayer norm_;
  };
  std::optional<Transform> transform_;
  std::optional<Linear> project_out_;
  Tensor weight_;
  Tensor converted_;                ///< replaces weight() if defined
  ops::QuantizedWeight quantized_;  ///< replaces weight() and converted_ if defined
  Tensor bias_;
};

}  // namespace lamina::nn
