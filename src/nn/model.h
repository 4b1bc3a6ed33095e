#pragma once

#include <memory>
#include <vector>

#include "lamina/arch/spec.h"
#include "lamina/base/ignore_index.h"
#include "lamina/nn/embedding.h"
#include "lamina/nn/encoder.h"
#include "lamina/nn/expert_parallel.h"
#include "lamina/nn/forward_observer.h"
#include "lamina/nn/forward_start.h"
#include "lamina/nn/layer_stack.h"
#include "lamina/nn/model_cache.h"
#include "lamina/nn/neighbour_encoder.h"
#include "lamina/nn/pooling.h"
#include "lamina/nn/row_batch.h"
#include "lamina/nn/sequence_cache.h"
#include "lamina/ops/loss/cross_entropy.h"

namespace lamina::nn {

/// How a model's parameters are created.
struct ModelOptions {
  DType dtype = DType::f32;  ///< of the parameters
  uint64_t seed = 0;         ///< of their initial values
  /// The ranks that hold the model together; null or one rank: this process holds all of it.
  std::shared_ptr<const TensorParallel> parallel = nullptr;
  /// The ranks that divide the experts; null or one rank: this process holds all of them.
  std::shared_ptr<const ExpertParallel> experts = nullptr;
  /// The pipeline stage that this process holds: stage_loss() instead of loss().
  arch::PipelineStage stage = {};
  /// Told when weights are used, if they are not always in memory; null: they are.
  std::shared_ptr<LayerWeights> weights = nullptr;
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

/// Result of a pipeline stage's forward pass.
struct StageOutput {
  Tensor states;   ///< the residual stream, for the next stage; undefined on the last stage
  ModelLoss loss;  ///< of the last stage; on other stages only `auxiliary`, of their layers
};

/// Options of a forward pass with a cache.
struct CachedOptions {
  /// Number of real tokens at the start of each row; the rest of the seq tokens is padding. Empty: all are real.
  std::vector<int64_t> counts;
  /// Return only the logits of each row's last real token, [batch, 1, vocab].
  bool last_only = false;
  /// For a model with retrieval: [batch, chunks, neighbours, length], the neighbours of the chunks that end in this
  /// call (see RunOptions::neighbours). Undefined: no neighbours.
  Tensor neighbours;
};

/// A model built from a resolved architecture. Its parameters have the names and shapes of arch::outer_weights, and of
/// arch::block_weights under "layers.<i>."; those of an encoder are under "encoder.", those of a neighbour
/// encoder under "retrieval.".
///
/// How the kinds of models are called, with ids [batch, seq] and rows that may end in padding (RunOptions::lengths):
///   decoder            loss(ids, next_tokens)
///   encoder            loss(ids, labels): labels hold the token at each masked position and ignore_index elsewhere;
///                      pooled(ids), class_logits(ids)
///   encoder–decoder    loss(decoder_ids, labels, {}, {.source = ids, .source_lengths = …}): decoder_ids are the labels
///                      shifted right by one, after the start token; lengths are those of decoder_ids
///   with retrieval     loss(ids, next_tokens, {}, {.neighbours = …}); without neighbours it is the plain decoder
/// Generation: make_cache(), for an encoder–decoder read_source(), then cached_logits() for the tokens of the decoder.
class Model final : public Module {
 public:
  /// Weights are drawn from a normal distribution with standard deviation 0.02, or 0.02/sqrt(2 · layers) for
  /// projections into the residual stream; biases are 0, norm scales 1. On meta nothing is computed.
  Model(const arch::ArchSpec& spec, const Device& device, const ModelOptions& options = {});

  const arch::ArchSpec& spec() const { return spec_; }            ///< resolved; of the whole model
  const Device& device() const { return any_weight().device(); }  ///< of the parameters
  /// The ranks that hold this model together. Every rank then calls the same functions with the same arguments and gets
  /// the same results; only parameters and gradients are this rank's shards. Null: this process holds all of it.
  const std::shared_ptr<const TensorParallel>& parallel() const { return parallel_; }
  /// This rank's slice of every weight, if several ranks hold the model.
  const arch::Shards& shards() const { return shards_; }
  /// Type of the embedding table.
  DType dtype() const { return any_weight().dtype(); }
  /// The ranks that hold this model together.
  const arch::ModelGrid& grid() const { return grid_; }
  int grid_rank() const { return grid_rank_; }                 ///< this rank among them
  const arch::PipelineStage& stage() const { return stage_; }  ///< the pipeline stage of this rank
  /// How this model was created, for another one of the same ranks.
  ModelOptions options() const {
    return {.dtype = dtype(), .parallel = parallel_, .experts = experts_, .stage = stage_};
  }

  /// ids [batch, seq] i64 or i32 → [batch, seq, d_model], after the final norm; 0 for padding.
  Tensor hidden(const Tensor& ids, const RunOptions& options = {});
  /// x [..., d_model] from hidden() → [..., vocab].
  Tensor logits_of(const Tensor& x) const { return head_.logits(x); }
  /// → [batch, seq, vocab]; 0 for padding.
  Tensor logits(const Tensor& ids, const RunOptions& options = {});
  /// Mean cross entropy against `targets` [batch, seq] i64: the next tokens, or for an encoder the tokens at masked
  /// positions. Never materializes all logits.
  ModelLoss loss(const Tensor& ids, const Tensor& targets, const LossOptions& options = {}, const RunOptions& run = {});

  /// loss() of one pipeline stage, or of the chunk `run.chunk` of it. `states` is what the stage before returned (for a
  /// later chunk of the first stage, the last stage), undefined for the first layers. It is [batch, seq, d_model] in
  /// dtype(), or this rank's tokens of it (sequence parallel). Only the last stage reads `targets`.
  StageOutput stage_loss(const Tensor& ids, const Tensor& states, const Tensor& targets,
                         const LossOptions& options = {}, const RunOptions& run = {});
  /// hidden() of one pipeline stage: on the last stage its result, on others the residual stream.
  Tensor stage_hidden(const Tensor& ids, const Tensor& states, const RunOptions& options = {});
  /// Shape of the residual stream between stages.
  Shape states_shape(int64_t batch, int64_t seq) const;

  /// One vector per row, [batch, d_model], as spec().pooling says; [batch, classes] logits of the classifier on it.
  Tensor pooled(const Tensor& ids, const RunOptions& options = {});
  Tensor class_logits(const Tensor& ids, const RunOptions& options = {});  ///< see pooled()

  /// Runs the encoder on `source` [batch, seq], and every layer's cross-attention keys and values once, into `cache`. A
  /// source of one row is that of all rows of the cache. `lengths` as RunOptions::source_lengths. Replaces an earlier
  /// source.
  void read_source(const Tensor& source, ModelCache& cache, const std::vector<int64_t>& lengths = {});
  /// The encoder's output [batch, seq, d_model] for options.source; 0 for padding.
  Tensor encoded(const RunOptions& options);

  /// Allocates a cache of `capacity` tokens for each of `batch` rows. Keys and values have the weights' dtype or the
  /// given one: floating (f64 only with f64 weights), or u8 for 8 bits with a scale per token and head.
  ModelCache make_cache(int64_t batch, int64_t capacity, std::optional<DType> dtype = {}) const;
  /// Logits of the new tokens ids [batch, seq], which follow the cached tokens and are appended to the cache: equal to
  /// the last seq rows of a forward pass over all tokens so far. Row lengths may differ. No gradient.
  /// If the RoPE frequencies change with the length (dynamic_ntk beyond its original length, longrope crossing it), the
  /// whole cache is recomputed. Rotating the cached keys again would not suffice: all layers but the first computed
  /// their keys from hidden states that depend on the old rotations.
  Tensor cached_logits(const Tensor& ids, ModelCache& cache, const CachedOptions& options = {});
  /// cached_logits() without the output head: [batch, seq or 1, d_model], after the final norm.
  Tensor cached_hidden(const Tensor& ids, ModelCache& cache, const CachedOptions& options = {});

  /// Layout of each layer's cache, in the order of the layers; the default value for a layer without mixer.
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
  /// start_forward(), with the source read by the encoder.
  ForwardStart start(const Tensor& ids, const RunOptions& options);
  ForwardContext start_rows(const Tensor& ids, const RowBatch& rows, const SequenceCache& cache) const;
  /// The neighbours of a pass over whole sequences, checked.
  ChunkNeighbours checked_neighbours(const RunOptions& options, const ForwardStart& start) const;
  /// The checked neighbours of a pass with a cache.
  ChunkNeighbours checked_neighbours(const CachedOptions& options, const ForwardContext& pass) const;
  ForwardContext start_cached(const Tensor& ids, const ModelCache& cache, const CachedOptions& options) const;
  /// Whether the cached keys were rotated with frequencies of another length than the one after `pass`.
  bool is_stale(const ModelCache& cache, const ForwardContext& pass) const;
  /// Recomputes the whole cache and returns the hidden states [batch, seq, d_model] of the new tokens.
  Tensor refill(const std::vector<int64_t>& ids, const ForwardContext& pass, const Device& device, ModelCache& cache);
  Tensor forward(const Tensor& ids, ForwardContext& pass, ModelCache* cache, Tape* checkpoint);
  /// Embedding, or the residual stream of the stage before, and all layers of the chunk, without the final norm.
  ResidualStream run_layers(const Tensor& ids, const Tensor& states, ForwardContext& pass, ModelCache* cache,
                            Tape* checkpoint, int chunk = 0);
  void check_states(const Tensor& states, const Tensor& ids, int chunk) const;
  bool begins(int chunk) const { return stage_.is_first() && chunk == 0; }  ///< whether the chunk has the embedding
  bool ends(int chunk) const { return stage_.is_last() && chunk + 1 == stage_.chunks; }  ///< whether it has the head
  const Tensor& any_weight() const { return embedding_.weight().defined() ? embedding_.weight() : first_parameter(); }
  void check_decodes() const;

  arch::ArchSpec spec_;
  std::shared_ptr<const TensorParallel> parallel_;
  std::shared_ptr<const ExpertParallel> experts_;
  arch::PipelineStage stage_;
  std::shared_ptr<LayerWeights> weights_;
  arch::ModelGrid grid_;
  int grid_rank_;
  arch::Shards shards_;
  arch::ArchSpec own_spec_;  ///< what this rank computes; without other ranks spec_
  PositionTables positions_;
  TokenEmbedding embedding_;
  std::unique_ptr<Encoder> encoder_;                     ///< null: no encoder
  std::unique_ptr<NeighbourEncoder> neighbour_encoder_;  ///< null: no retrieval
  LayerStack layers_;
  std::optional<NormLayer> final_norm_;
  OutputHead head_;
  PooledHead pooled_head_;
};

}  // namespace lamina::nn
