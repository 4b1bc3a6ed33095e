#pragma once

#include <memory>
#include <vector>

#include "lamina/arch/spec.h"
#include "lamina/base/ignore_index.h"
#include "lamina/nn/embedding.h"
#include "lamina/nn/forward_observer.h"
#include "lamina/nn/layer.h"
#include "lamina/nn/model_cache.h"
#include "lamina/nn/row_batch.h"
#include "lamina/nn/sequence_cache.h"
#include "lamina/ops/loss/cross_entropy.h"

namespace lamina {
class Tape;
}

namespace lamina::nn {

/// How a model's parameters are created.
struct ModelOptions {
  DType dtype = DType::f32;  ///< of the parameters
  uint64_t seed = 0;         ///< of their initial values
};

/// Options of a forward pass over whole sequences.
struct RunOptions {
  /// Packed documents that do not attend to each other: [documents + 1] i64 or i32, ascending from 0 to seq.
  Tensor document_starts;
  /// Enables dropout; its random numbers depend on seed, step and layer.
  bool training = false;
  DropoutRates dropout;   ///< see training
  uint64_t seed = 0;      ///< see training
  uint64_t step = 0;      ///< number of the update; see training
  int64_t first_row = 0;  ///< number of the first row in a larger batch that this one is a part of; see training
  /// Tape for activation checkpointing: each layer's activations are recomputed in its backward pass instead of stored.
  Tape* checkpoint = nullptr;
  /// Receives attention weights and residual streams of the layers; not with `checkpoint`.
  ForwardObserver* observer = nullptr;
};

/// Options of Model::loss.
struct LossOptions {
  int64_t ignore_index = kIgnoreIndex;  ///< targets with this value are not counted
  double label_smoothing = 0.0;         ///< part of the target spread evenly over the vocabulary
  double z_loss = 0.0;                  ///< coefficient of (log Σ exp logits)²
};

/// Losses of one forward pass; each tensor is a scalar.
struct ModelLoss {
  Tensor total;                   ///< the loss to call backward on
  Tensor cross_entropy;           ///< mean over the targets that are not ignored, including z-loss
  std::vector<Tensor> auxiliary;  ///< losses added by layers, such as MoE load balancing; included in total
};

/// Options of a forward pass with a cache.
struct CachedOptions {
  /// Number of real tokens at the start of each row; the rest of the seq tokens is padding. Empty: all are real.
  std::vector<int64_t> counts;
  /// Return only the logits of each row's last real token, [batch, 1, vocab].
  bool last_only = false;
};

/// A decoder-only model built from a resolved architecture. Its parameters have the names and shapes of
/// arch::outer_weights, and of arch::block_weights under "layers.<i>.".
class Model final : public Module {
 public:
  /// Weights are drawn from a normal distribution with standard deviation 0.02, or 0.02/sqrt(2 · layers) for
  /// projections into the residual stream; biases are 0, norm scales 1. On meta nothing is computed.
  Model(const arch::ArchSpec& spec, const Device& device, const ModelOptions& options = {});

  const arch::ArchSpec& spec() const { return spec_; }                   ///< resolved
  const Device& device() const { return embedding_.weight().device(); }  ///< of the parameters
  /// Type of the embedding table.
  DType dtype() const { return embedding_.weight().dtype(); }

  /// ids [batch, seq] i64 or i32 → [batch, seq, d_model], after the final norm.
  Tensor hidden(const Tensor& ids, const RunOptions& options = {});
  /// x [..., d_model] from hidden() → [..., vocab].
  Tensor logits_of(const Tensor& x) const { return head_.logits(x); }
  /// → [batch, seq, vocab].
  Tensor logits(const Tensor& ids, const RunOptions& options = {});
  /// Mean cross entropy against the next tokens `targets` [batch, seq] i64. Never materializes all logits.
  ModelLoss loss(const Tensor& ids, const Tensor& targets, const LossOptions& options = {}, const RunOptions& run = {});

  /// Allocates a cache of `capacity` tokens for each of `batch` rows. Keys and values have the weights' dtype or the
  /// given one: floating (f64 only with f64 weights), or u8 for 8 bits with a scale per token and head.
  ModelCache make_cache(int64_t batch, int64_t capacity, std::optional<DType> dtype = {}) const;
  /// Logits of the new tokens ids [batch, seq], which follow the cached tokens and are appended to the cache: equal to
  /// the last seq rows of a forward pass over all tokens so far. Row lengths may differ. No gradient.
  /// If the RoPE frequencies change with the length (dynamic_ntk beyond its original length, longrope crossing it), the
  /// whole cache is recomputed. Rotating the cached keys again would not suffice: all layers but the first computed
  /// their keys from hidden states that depend on the old rotations.
  Tensor cached_logits(const Tensor& ids, ModelCache& cache, const CachedOptions& options = {});
  /// The same, without the output head: [batch, seq or 1, d_model], after the final norm.
  Tensor cached_hidden(const Tensor& ids, ModelCache& cache, const CachedOptions& options = {});

  /// What each layer keeps of a sequence, in the order of the layers; the default for a layer without mixer.
  std::vector<CacheLayout> cache_layouts() const;
  /// Allocates cache memory for row_logits().
  std::unique_ptr<SequenceCache> make_sequence_cache(const SequenceCacheOptions& options) const;
  /// Logits of a ragged step: ids [tokens] holds the new tokens of all rows, which follow the tokens in the rows'
  /// caches and are appended there. Returns [n, vocab] for the tokens whose indices into ids are in `wanted` [n] i64,
  /// or for all tokens if it is undefined. Equal to forward passes over the whole sequences. No gradient. A decode step
  /// without host counts can be captured as a CUDA graph if supports_row_graphs(). If lengths_differ(old, new) for a
  /// row's length when its cache was computed and its length after this step, its cached keys were rotated with other
  /// frequencies (dynamic_ntk, longrope). The caller must then give all tokens of the row again, from offset 0.
  Tensor row_logits(const Tensor& ids, const RowBatch& rows, SequenceCache& cache, const Tensor& wanted = {});
  /// Whether a decode step of row_logits() can be captured as a CUDA graph.
  bool supports_row_graphs() const;
  /// Whether RoPE frequencies differ between sequences of these lengths.
  bool lengths_differ(int64_t a, int64_t b) const { return positions_.change_between(a, b); }
  /// Whether lengths_differ() can be true.
  bool depends_on_length() const { return positions_.depend_on_length(); }

 private:
  ForwardContext start(const Tensor& ids, const RunOptions& options) const;
  ForwardContext start_rows(const Tensor& ids, const RowBatch& rows, const SequenceCache& cache) const;
  ForwardContext start_cached(const Tensor& ids, const ModelCache& cache, const CachedOptions& options) const;
  /// Whether the cached keys were rotated with frequencies of another length than the one after `pass`.
  bool is_stale(const ModelCache& cache, const ForwardContext& pass) const;
  /// Recomputes the whole cache and returns the hidden states [batch, seq, d_model] of the new tokens.
  Tensor refill(const std::vector<int64_t>& ids, const ForwardContext& pass, const Device& device, ModelCache& cache);
  Tensor forward(const Tensor& ids, ForwardContext& pass, ModelCache* cache, Tape* checkpoint);
  /// Embedding and all layers, without the final norm.
  ResidualStream run_layers(const Tensor& ids, ForwardContext& pass, ModelCache* cache, Tape* checkpoint);
  ResidualStream checkpointed(Tape& tape, size_t index, const ResidualStream& stream, ForwardContext& pass);

  /// The numbered layers, registered as "layers".
  class Layers final : public Module {
   public:
    void add(std::unique_ptr<Layer> layer);
    std::vector<std::unique_ptr<Layer>> all;
  };

  arch::ArchSpec spec_;
  PositionTables positions_;
  TokenEmbedding embedding_;
  Layers layers_;
  std::optional<NormLayer> final_norm_;
  OutputHead head_;
};

}  // namespace lamina::nn
