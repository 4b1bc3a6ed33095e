#pragma once

#include <optional>

#include "lamina/infer/sampler.h"
#include "lamina/nn/model.h"
#include "lamina/ops/sampling/sample.h"
#include "lamina/tensor/readback.h"
#include "lamina/tensor/replay.h"

namespace lamina::infer {

/// Decodes all rows of a KV cache on a GPU by CUDA graph replay. One graph holds the forward of each row's last token
/// and the sampling of the next token, which is the input of the next step. Steps can be queued before the tokens of
/// earlier steps are read.
class DeviceSteps {
 public:
  static bool possible(const nn::Model& model, const nn::ModelCache& cache) {
    return Replay::possible(model.device()) && model.can_step(cache);
  }

  /// With one sampler per row, the GPU samples; they must support it (Sampler::works_on_device). Without samplers, the
  /// host samples from logits(). `cache` and `model` must outlive this.
  DeviceSteps(nn::Model& model, nn::ModelCache& cache, const std::vector<const Sampler*>& samplers = {});

  /// Sets the next input token of each row b to ids[b], at the position given by the cache's length.
  void start(const std::vector<int64_t>& ids);
  /// Queues one more step; at most two may be waiting to be read.
  void queue();
  /// Waits for the oldest queued step and returns its tokens.
  std::vector<int64_t> chosen();
  size_t queued() const { return readback_.underway(); }

  /// start() and one step, without samplers. Returns logits [batch · vocab].
  std::vector<float> logits(const std::vector<int64_t>& ids);

 private:
  void step();

  nn::Model& model_;
  nn::ModelCache& cache_;
  ops::SampleOptions options_;
  int64_t vocab_size_ = 0;  ///< SamplerOptions::vocab_size
  Tensor streams_;          ///< random streams; undefined without samplers, as is drawn_
  Tensor drawn_;
  Tensor ids_;     ///< [batch, 1]
  Tensor logits_;  ///< [batch, vocab], from the last step
  nn::DevicePositions clock_;
  Readback readback_;
  Replay replay_;
};

}  // namespace lamina::infer
