#pragma once

#include <memory>
#include <vector>

#include "lamina/arch/spec.h"
#include "lamina/nn/embedding.h"
#include "lamina/nn/layer.h"
#include "lamina/nn/model_cache.h"
#include "lamina/ops/loss/cross_entropy.h"

namespace lamina {
class Tape;
}

namespace lamina::nn {

struct ModelOptions {
  DType dtype = DType::f32;
  uint64_t seed = 0;
};

/// How one forward pass over whole sequences runs.
struct RunOptions {
  /// [documents + 1] i64 or i32, ascending from 0 to seq: packed documents that never see each other.
  Tensor document_starts;
  /// Dropout acts; random numbers depend on seed, step and place.
  bool training = false;
  DropoutRates dropout;
  uint64_t seed = 0;
  uint64_t step = 0;
  /// Each layer's activations are computed again in this tape's backward pass instead of being kept.
  Tape* checkpoint = nullptr;
};

struct LossOptions {
  int64_t ignore_index = -100;
  double label_smoothing = 0.0;
  double z_loss = 0.0;
};

/// One number each.
struct ModelLoss {
  Tensor total;                   ///< what backward starts from
  Tensor cross_entropy;           ///< mean over the targets that count, z-loss included
  std::vector<Tensor> auxiliary;  ///< what layers added, such as balance losses; part of the total
};

/// How a cached pass runs.
struct CachedOptions {
  /// How many of the seq tokens of each row are real, the others, behind them, being padding; empty: all.
  std::vector<int64_t> counts;
  /// Logits of each row's last real token only, [batch, 1, vocab].
  bool last_only = false;
};

/// A decoder-only model assembled from a resolved architecture. Its parameters have the names and shapes of
/// arch::outer_weights, and of arch::block_weights behind "layers.<i>.".
class Model final : public Module {
 public:
  /// Weights are drawn from a normal distribution of deviation 0.02, those that end in the residual stream of
  /// 0.02/sqrt(2 · layers); biases are 0, norms 1. On meta nothing is computed or allocated.
  Model(const arch::ArchSpec& spec, const Device& device, const ModelOptions& options = {});

  const arch::ArchSpec& spec() const { return spec_; }
  const Device& device() const { return embedding_.weight().device(); }

  /// ids [batch, seq] i64 or i32 → [batch, seq, d_model], behind the final norm.
  Tensor hidden(const Tensor& ids, const RunOptions& options = {});
  /// x [..., d_model], out of hidden() → [..., vocab].
  Tensor logits_of(const Tensor& x) const { return head_.logits(x); }
  /// → [batch, seq, vocab].
  Tensor logits(const Tensor& ids, const RunOptions& options = {});
  /// The mean cross entropy of targets [batch, seq] i64, the token after each, without the logits ever being whole.
  ModelLoss loss(const Tensor& ids, const Tensor& targets, const LossOptions& options = {}, const RunOptions& run = {});

  /// Room for `capacity` tokens of each of `batch` rows; keys and values are kept in the weights' type, or the one
  /// given: floating (f64 for weights of f64 alone), or u8 for 8 bits and a scale for each token and head.
  ModelCache make_cache(int64_t batch, int64_t capacity, std::optional<DType> dtype = {}) const;
  /// The logits of new tokens ids [batch, seq] behind those in the cache, where they are put: the same as the last seq
  /// rows of a forward over everything so far. Rows may hold different numbers of tokens. No gradient.
  /// Where a rotation changes with the length (dynamic_ntk beyond its original length, longrope when it is passed), the
  /// tokens in the cache are computed anew: every layer but the first sees earlier tokens through rotations of the
  /// length they were computed at, which no turning of the keys alone could mend.
  Tensor cached_logits(const Tensor& ids, ModelCache& cache, const CachedOptions& options = {});

  /// Whether step_logits works for this cache: not where the host must know how far a row is, as for rotations that
  /// change with the length.
  bool can_step(const ModelCache& cache) const;
  /// cached_logits() of one token a row, ids [batch, 1] → [batch, 1, vocab], that can be recorded and repeated
  /// (tensor/replay.h): everything that changes from step to step is in the device's memory, `ids` and the clock, which
  /// has to be counted on behind it. Before each step, also a repeated one, comes cache.prepare_step().
  Tensor step_logits(const Tensor& ids, const DeviceClock& clock, ModelCache& cache);

 private:
  Pass start(const Tensor& ids, const RunOptions& options) const;
  Pass start_cached(const Tensor& ids, const ModelCache& cache, const CachedOptions& options) const;
  /// The rotations of the tokens in the cache are not those of the length that `pass` leads to.
  bool is_stale(const ModelCache& cache, const Pass& pass) const;
  /// Fills the cache from its first token on, and gives the hidden states [batch, seq, d_model] of the new tokens.
  Tensor refill(const std::vector<int64_t>& ids, const Pass& pass, const Device& device, ModelCache& cache);
  Tensor forward(const Tensor& ids, Pass& pass, ModelCache* cache, Tape* checkpoint);
  /// Up to the final norm.
  Stream run_layers(const Tensor& ids, Pass& pass, ModelCache* cache, Tape* checkpoint);
  Stream checkpointed(Tape& tape, size_t index, const Stream& stream, Pass& pass);

  /// The numbered layers, under the name "layers".
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
