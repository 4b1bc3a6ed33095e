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
  DType dtype = DType::f32;  ///< type of the parameters
  uint64_t seed = 0;         ///< seed of the initial parameter values
  /// Standard deviation of initial weights; projections into the residual stream get it divided by sqrt(2 · layers).
  double initial_deviation = 0.02;
  /// The tensor-parallel ranks that hold the model together. Null or one rank: this process holds the whole model.
  std::shared_ptr<const TensorParallel> parallel = nullptr;
  /// The expert-parallel ranks. Null or one rank: this process holds all experts.
  std::shared_ptr<const ExpertParallel> experts = nullptr;
  /// The pipeline stage of this process. A stage is run with stage_loss() instead of loss().
  arch::PipelineStage stage = {};
  /// Called before and after a layer's weights are used, if they are not always in memory (ZeRO-3). Null: they are.
  std::shared_ptr<LayerWeights> weights = nullptr;
};

/// Options of Model::loss.
struct LossOptions {
  int64_t ignore_index = kIgnoreIndex;  ///< targets with this value are not counted
  double label_smoothing = 0.0;         ///< share of the target probability that is spread evenly over the vocabulary
  double z_loss = 0.0;                  ///< coefficient of (log Σ exp logits)²
};

/// Losses of one forward pass; each tensor is a scalar.
struct ModelLoss {
  Tensor total;                   ///< the loss to call backward on
  Tensor cross_entropy;           ///< mean over the targets that are not ignored; includes the z-loss
  std::vector<Tensor> auxiliary;  ///< losses added by layers, such as MoE load balancing; included in total
};

/// Result of a pipeline stage's forward pass.
struct StageOutput {
  Tensor states;   ///< the residual stream for the next stage; undefined on the last stage
  ModelLoss loss;  ///< on the last stage: the loss; on others only `auxiliary`, for their own layers
};

/// Options of a forward pass with a cache.
struct CachedOptions {
  /// Number of real tokens at the start of each row; the rest of the seq tokens is padding. Empty: all tokens are real.
  std::vector<int64_t> counts;
  /// Return only the logits of each row's last real token: [batch, 1, vocab].
  bool last_only = false;
  /// For a model with retrieval: the neighbours of the chunks that end in this call, [batch, chunks, neighbours,
  /// length] (see RunOptions::neighbours). Undefined: no neighbours.
  Tensor neighbours;
};

/// A model built from a resolved architecture. Its parameters have the names and shapes of arch::outer_weights, and of
/// arch::block_weights under "layers.<i>.". The encoder's are under "encoder.", the neighbour encoder's under
/// "retrieval.".
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
  /// Initial weights are normally distributed with ModelOptions::initial_deviation. Biases are 0 and norm scales 1. On
  /// the meta device nothing is computed.
  Model(const arch::ArchSpec& spec, const Device& device, const ModelOptions& options = {});

  const arch::ArchSpec& spec() const { return spec_; }            ///< resolved; describes the whole model
  const Device& device() const { return any_weight().device(); }  ///< device of the parameters
  /// The tensor-parallel ranks that hold this model together. All of them must call the same functions with the same
  /// arguments, and they get the same results. Only parameters and gradients differ: each rank has its shard. Null:
  /// this process holds the whole model.
  const std::shared_ptr<const TensorParallel>& parallel() const { return parallel_; }
  /// The slice of every weight that this rank holds, if several ranks hold the model.
  const arch::Shards& shards() const { return shards_; }
  /// Data type of the embedding table.
  DType dtype() const { return any_weight().dtype(); }
  /// The arrangement of all ranks that hold this model together.
  const arch::ModelGrid& grid() const { return grid_; }
  int grid_rank() const { return grid_rank_; }                 ///< index of this rank in grid()
  const arch::PipelineStage& stage() const { return stage_; }  ///< the pipeline stage of this rank
  /// Options to create another model on the same ranks in the same way.
  ModelOptions options() const {
    return {.dtype = dtype(), .parallel = parallel_, .experts = experts_, .stage = stage_};
  }

  /// ids [batch, seq] i64 or i32 → hidden states [batch, seq, d_model] after the final norm. Padding is 0.
  Tensor hidden(const Tensor& ids, const RunOptions& options = {});
  /// Output head: x [..., d_model] from hidden() → [..., vocab].
  Tensor logits_of(const Tensor& x) const { return head_.logits(x); }
  /// ids [batch, seq] → logits [batch, seq, vocab]. Padding is 0.
  Tensor logits(const Tensor& ids, const RunOptions& options = {});
  /// Mean cross entropy against `targets` [batch, seq] i64: the next tokens or, for an encoder, the tokens at masked
  /// positions. Never holds the logits of all tokens in memory.
  ModelLoss loss(const Tensor& ids, const Tensor& targets, const LossOptions& options = {}, const RunOptions& run = {});

  /// loss() of one pipeline stage, or of its chunk `run.chunk`. `states` is the output of the previous stage (for a
  /// later chunk of the first stage: of the last stage); undefined for the first layers. It is [batch, seq, d_model] in
  /// dtype(), or this rank's tokens of it (sequence parallelism). Only the last stage reads `targets`.
  StageOutput stage_loss(const Tensor& ids, const Tensor& states, const Tensor& targets,
                         const LossOptions& options = {}, const RunOptions& run = {});
  /// hidden() of one pipeline stage. Returns the residual stream; on the last stage, the hidden states after the final
  /// norm.
  Tensor stage_hidden(const Tensor& ids, const Tensor& states, const RunOptions& options = {});
  /// Shape of the residual stream that is passed between stages.
  Shape states_shape(int64_t batch, int64_t seq) const;

  /// One vector per row, [batch, d_model], computed as spec().pooling says. class_logits() applies the classifier to
  /// it: [batch, classes].
  Tensor pooled(const Tensor& ids, const RunOptions& options = {});
  Tensor class_logits(const Tensor& ids, const RunOptions& options = {});  ///< see pooled()

  /// Runs the encoder on `source` [batch, seq] and stores the cross-attention keys and values of every layer in
  /// `cache`. A source with one row serves all rows of the cache. `lengths` is like RunOptions::source_lengths.
  /// Replaces an earlier source.
  void read_source(const Tensor& source, ModelCache& cache, const std::vector<int64_t>& lengths = {});
  /// The encoder's output [batch, seq, d_model] for options.source. Padding is 0.
  Tensor encoded(const RunOptions& options);

  /// Allocates a cache of `capacity` tokens for each of `batch` rows. `dtype` of keys and values: floating point (f64
  /// only with f64 weights), or u8 for 8 bits with one scale per token and head. Default: the weights' dtype.
  ModelCache make_cache(int64_t batch, int64_t capacity, std::optional<DType> dtype = {}) const;
  /// Logits of new tokens ids [batch, seq] that follow the cached tokens. Appends them to the cache. Equals the last
  /// seq rows of a forward pass over all tokens so far. Rows may have different lengths. No gradient.
  ///
  /// If the RoPE frequencies change with the length (dynamic_ntk beyond its original length, longrope crossing it), the
  /// whole cache is recomputed. Rotating the cached keys again is not enough: all layers but the first computed their
  /// keys from hidden states that depend on the old rotations.
  Tensor cached_logits(const Tensor& ids, ModelCache& cache, const CachedOptions& options = {});
  /// cached_logits() without the output head: [batch, seq or 1, d_model] after the final norm.
  Tensor cached_hidden(const Tensor& ids, ModelCache& cache, const CachedOptions& options = {});

  /// Layout of each layer's cache, in layer order. A layer without mixer has a default CacheLayout.
  std::vector<CacheLayout> cache_layouts() const;
  /// Allocates cache memory for row_logits().
  std::unique_ptr<SequenceCache> make_sequence_cache(const SequenceCacheOptions& options) const;
  /// Logits of a ragged step: ids [tokens] holds the new tokens of all rows. They follow the tokens in the rows' caches
  /// and are appended there. Returns [n, vocab] for the tokens whose indices in ids are in `wanted` [n] i64, or for all
  /// tokens if it is undefined. Equals forward passes over the whole sequences. No gradient.
  ///
  /// A decode step without host counts can be captured as a CUDA graph if supports_row_graphs(). If RoPE frequencies
  /// depend on the length (dynamic_ntk, longrope) and lengths_differ(old, new) for a row's old and new length, the
  /// caller must pass all tokens of that row again, from offset 0.
  Tensor row_logits(const Tensor& ids, const RowBatch& rows, SequenceCache& cache, const Tensor& wanted = {});
  /// Whether a decode step of row_logits() can be captured as a CUDA graph: not if ranks share the model.
  bool supports_row_graphs() const;
  /// Whether the RoPE frequencies of sequences of these two lengths differ.
  bool lengths_differ(int64_t a, int64_t b) const { return positions_.change_between(a, b); }
  /// Whether lengths_differ() is true for any two lengths.
  bool depends_on_length() const { return positions_.depend_on_length(); }

 private:
  /// start_forward(), and runs the encoder on the source.
  ForwardStart start(const Tensor& ids, const RunOptions& options);
  ForwardContext start_rows(const Tensor& ids, const RowBatch& rows, const SequenceCache& cache) const;
  /// Checks and returns the neighbours of a pass over whole sequences.
  ChunkNeighbours checked_neighbours(const RunOptions& options, const ForwardStart& start) const;
  /// Checks and returns the neighbours of a pass with a cache.
  ChunkNeighbours checked_neighbours(const CachedOptions& options, const ForwardContext& pass) const;
  ForwardContext start_cached(const Tensor& ids, const ModelCache& cache, const CachedOptions& options) const;
  /// Whether the cached keys were rotated with the frequencies of another length than the length after `pass`.
  bool is_stale(const ModelCache& cache, const ForwardContext& pass) const;
  /// Recomputes the whole cache and returns the hidden states [batch, seq, d_model] of the new tokens.
  Tensor refill(const std::vector<int64_t>& ids, const ForwardContext& pass, const Device& device, ModelCache& cache);
  Tensor forward(const Tensor& ids, ForwardContext& pass, ModelCache* cache, Tape* checkpoint);
  /// Runs the embedding (or takes `states` from the previous stage) and all layers of the chunk, without the final
  /// norm.
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
  arch::ArchSpec
      own_spec_;  ///< the part of the architecture that this rank computes; spec_ if there are no other ranks
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
