#pragma once

#include <optional>

#include "lamina/infer/sampler.h"
#include "lamina/nn/model.h"
#include "lamina/ops/sampling/sample.h"
#include "lamina/tensor/readback.h"
#include "lamina/tensor/replay.h"

namespace lamina::infer {

/// Token after token for all rows of a cache on a GPU that repeats one recorded step: the forward of each row's last
/// token, and the choice of the next, which is the next step's input. Steps can be queued before the tokens of earlier
/// ones have been read.
class DeviceSteps {
 public:
  static bool possible(const nn::Model& model, const nn::ModelCache& cache) {
    return Replay::possible(model.device()) && model.can_step(cache);
  }

  /// Where each row has its sampler, and they can work on the device (Sampler::works_on_device), that chooses; without
  /// samplers the host does. `cache` and `model` outlive this.
  DeviceSteps(nn::Model& model, nn::ModelCache& cache, const std::vector<const Sampler*>& samplers = {});

  /// Row b's next token to read is ids[b]; its length is that of the cache.
  void start(const std::vector<int64_t>& ids);
  /// One more step; at most two may be waiting to be read.
  void queue();
  /// The tokens that the oldest queued step has chosen.
  std::vector<int64_t> chosen();
  size_t queued() const { return readback_.underway(); }

  /// start() and a step, without samplers → logits [batch · vocab].
  std::vector<float> logits(const std::vector<int64_t>& ids);

 private:
  void step();

  nn::Model& model_;
  nn::ModelCache& cache_;
  ops::SampleOptions options_;
  int64_t vocab_size_ = 0;  ///< of SamplerOptions
  Tensor streams_;          ///< undefined without samplers; drawn_ too
  Tensor drawn_;
  Tensor ids_;     ///< [batch, 1]
  Tensor logits_;  ///< [batch, vocab] of the last step
  nn::DevicePositions clock_;
  Readback readback_;
  Replay replay_;
};

}  // namespace lamina::infer
