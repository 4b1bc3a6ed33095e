#pragma once

#include <memory>
#include <optional>

#include "lamina/infer/engine/step.h"
#include "lamina/nn/model.h"

namespace lamina::infer {

class StepLeader;

/// Memory and types of a ModelRunner.
struct ModelRunnerOptions {
  int64_t rows = 256;   ///< maximum number of rows in a step
  int64_t context = 0;  ///< maximum number of tokens of a sequence; 0: the model's own
  /// Memory for the caches of all sequences. 0: on a GPU nine tenths of what is free; on the CPU enough for every row
  /// at full context, at most kDefaultCacheBytes.
  int64_t cache_bytes = 0;
  int64_t page_size = 32;  ///< tokens per cache page; a power of two, at least 16
  /// As SequenceCacheOptions::dtype. Default on a GPU: the 16-bit type of the weights, as for activations.
  std::optional<DType> cache_dtype;
  /// Type of activations. Default: on a GPU the 16-bit type of the weights (bf16 for quantized weights), so that tensor
  /// cores are used; otherwise, and for a single decoding row, what the embedding table has or f32.
  std::optional<DType> activations;
  /// Only ids below this are sampled, and log-probabilities are over them; 0: all. Set it to the tokenizer's size for a
  /// model with a padded vocabulary. Rows with a smaller SamplerOptions::vocab_size cost a mask.
  int64_t vocab_size = 0;
  /// Replays decoding steps as CUDA graphs, on devices that support it.
  bool graphs = true;
  /// Sends every model call to the other ranks that hold the model (tensor parallel); they run a StepFollower. Null:
  /// this process holds the whole model.
  std::shared_ptr<StepLeader> leader = nullptr;
};

/// The 16-bit type of the layers' weights, bf16 if they are quantized; none if they are wider.
std::optional<DType> half_type_of(const nn::Model& model);

/// Limit of the default cache size on the CPU.
constexpr int64_t kDefaultCacheBytes = int64_t{4} << 30;

/// Runs an engine's steps with a model: uploads the step, runs Model::row_logits and ops::sample_rows, and reads the
/// sampled tokens back.
///
/// On a GPU nothing waits except wait(). A step whose rows all have one token is replayed from a CUDA graph: one graph
/// for each batch size in a fixed list of buckets; unused rows have length 0. Page tables, lengths, positions, tokens
/// and sampling options are in device memory at fixed addresses, so rows that join or leave capture nothing. Sampled
/// tokens go into the next step on the device, so that step can be queued before the host has read them.
///
/// A model that several ranks hold (tensor parallel) is run by rank 0: with ModelRunnerOptions::leader the other ranks
/// repeat its model calls and its changes of cache memory. Rank 0 alone samples.
///
/// Models whose RoPE frequencies depend on the length (dynamic_ntk, longrope) recompute a row whenever its frequencies
/// change. They need pages that no other row shares: run their engine without prefix cache (shares_pages()).
class ModelRunner final : public StepRunner {
 public:
  /// `model` must outlive the runner and must not be used by another thread meanwhile.
  explicit ModelRunner(nn::Model& model, const ModelRunnerOptions& options = {});
  ~ModelRunner() override;

  const CacheShape& shape() const override;                          ///< as StepRunner::shape
  void run(const StepPlan& plan) override;                           ///< as StepRunner::run
  StepResult wait() override;                                        ///< as StepRunner::wait
  void copy_page(int64_t group, int32_t from, int32_t to) override;  ///< as StepRunner::copy_page
  void copy_state(int32_t from, int32_t to) override;                ///< as StepRunner::copy_state
  void clear_state(int32_t slot) override;                           ///< as StepRunner::clear_state

  /// Turns the replay of CUDA graphs off and on again.
  void use_graphs(bool on);
  /// Whether sequences may share pages of a common prefix.
  bool shares_pages() const;
  /// Bytes of all caches.
  int64_t cache_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A runner for the draft model of an engine whose target has these options; null without a model. It holds up to
/// `rows` sequences. Make it before the target's runner, which takes the free memory of a GPU.
std::unique_ptr<StepRunner> draft_runner(nn::Model* draft, ModelRunnerOptions target, int64_t rows);

}  // namespace lamina::infer
