#pragma once

#include <memory>
#include <optional>

#include "lamina/infer/engine/step.h"
#include "lamina/nn/model.h"

namespace lamina::infer {

class StepLeader;

/// Memory limits and data types of a ModelRunner.
struct ModelRunnerOptions {
  int64_t rows = 256;   ///< maximum number of rows in a step
  int64_t context = 0;  ///< maximum length of a sequence; 0: the model's context
  /// Memory for the caches of all sequences. 0 means nine tenths of the free memory on a GPU; on the CPU, enough for
  /// every row at full context, but at most kDefaultCacheBytes.
  int64_t cache_bytes = 0;
  int64_t page_size = 32;  ///< tokens per cache page; a power of two, at least 16
  /// See SequenceCacheOptions::dtype. Default on a GPU: the 16-bit type of the weights, as for activations.
  std::optional<DType> cache_dtype;
  /// Data type of activations. Default on a GPU: the 16-bit type of the weights (bf16 for quantized weights), so that
  /// tensor cores are used. Otherwise, and for a single decoding row: the type of the embedding table, or f32.
  std::optional<DType> activations;
  /// Only ids below this are sampled, and log-probabilities cover only these; 0: all. For a model with a padded
  /// vocabulary, set it to the tokenizer's size. Rows with a smaller SamplerOptions::vocab_size need a mask, which
  /// costs time.
  int64_t vocab_size = 0;
  /// Whether to replay decoding steps as CUDA graphs, if the device supports it.
  bool graphs = true;
  /// Whether to measure ModelRunner::idle_share(), on a GPU. Takes two small kernels per step.
  bool measures_idle = false;
  /// Tensor parallelism: sends every model call to the other ranks, which run a StepFollower. Null: this process holds
  /// the whole model.
  std::shared_ptr<StepLeader> leader = nullptr;
};

/// The 16-bit type of the layers' weights; bf16 if they are quantized; empty if they are wider.
std::optional<DType> half_type_of(const nn::Model& model);

/// Upper limit of the default cache size on the CPU.
constexpr int64_t kDefaultCacheBytes = int64_t{4} << 30;

/// Runs the steps of an engine with a model. Uploads the step, runs Model::row_logits and ops::sample_rows, and reads
/// the sampled tokens back.
///
/// On a GPU, only wait() blocks. A step whose rows all have one token is replayed from a CUDA graph. There is one graph
/// for each batch size in a fixed list; unused rows have length 0. Page tables, lengths, positions, tokens and sampling
/// options are at fixed addresses in device memory, so rows can join or leave without a new capture. Sampled tokens
/// reach the next step on the device, so that step can be queued before the host has read them.
///
/// Tensor parallelism: rank 0 runs the model with ModelRunnerOptions::leader. The other ranks repeat its model calls
/// and its changes of cache memory. Only rank 0 samples. Each step then waits for the results of the one before it, and
/// none is captured.
///
/// Models whose RoPE frequencies depend on the length (dynamic_ntk, longrope) recompute a row when its frequencies
/// change. Their pages cannot be shared between rows, so run their engine without prefix cache (see shares_pages()).
class ModelRunner final : public StepRunner {
 public:
  /// `model` must outlive the runner. No other thread may use it in the meantime.
  explicit ModelRunner(nn::Model& model, const ModelRunnerOptions& options = {});
  ~ModelRunner() override;

  const CacheShape& shape() const override;                          ///< see StepRunner::shape
  void run(const StepPlan& plan) override;                           ///< see StepRunner::run
  StepResult wait() override;                                        ///< see StepRunner::wait
  void copy_page(int64_t group, int32_t from, int32_t to) override;  ///< see StepRunner::copy_page
  void copy_state(int32_t from, int32_t to) override;                ///< see StepRunner::copy_state
  void clear_state(int32_t slot) override;                           ///< see StepRunner::clear_state

  /// Turns CUDA graph replay on or off.
  void use_graphs(bool on);
  /// Whether sequences may share pages of a common prefix.
  bool shares_pages() const;
  /// Bytes of all caches.
  int64_t cache_bytes() const;
  /// Share of the time in which the GPU idled between steps, from the first to the last step since the previous call.
  /// Needs ModelRunnerOptions::measures_idle. Waits for the steps in flight.
  double idle_share();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A runner for the draft model of an engine whose target model has these options. Null if there is no draft model.
/// Holds up to `rows` sequences. Create it before the target's runner, which takes the rest of a GPU's free memory.
std::unique_ptr<StepRunner> draft_runner(nn::Model* draft, ModelRunnerOptions target, int64_t rows);

}  // namespace lamina::infer
