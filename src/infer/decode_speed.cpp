#include "lamina/infer/decode_speed.h"

#include <algorithm>
#include <chrono>

#include "lamina/infer/sampler.h"

namespace lamina::infer {

DecodeSpeed measure_decode(nn::Model& model, int64_t batch, int64_t tokens, int rounds) {
  using Clock = std::chrono::steady_clock;
  LAMINA_CHECK(batch > 0 && tokens > 0 && rounds > 0, "measure_decode: ", batch, " rows of ", tokens, " tokens, ",
               rounds, " rounds; expected positive numbers");
  const Device& device = model.device();
  const auto vocab = static_cast<size_t>(model.spec().vocab_size);
  Sampler sampler({.temperature = 0});
  DecodeSpeed speed;
  double best = 1e30;
  for (int round = 0; round <= rounds; ++round) {
    nn::ModelCache cache = model.make_cache(batch, tokens);
    std::vector<int64_t> ids(static_cast<size_t>(batch), static_cast<int64_t>(vocab > 1 ? 1 : 0));
    device.reset_work();
    const auto start = Clock::now();
    for (int64_t step = 0; step < tokens; ++step) {
      const std::vector<float> logits =
          model.cached_logits(Tensor::from(ids, {batch, 1}, device), cache, {.counts = {}, .last_only = true})
              .to_vector<float>();
      const std::span<const float> all(logits);
      for (size_t row = 0; row < ids.size(); ++row) ids[row] = sampler.next(all.subspan(row * vocab, vocab));
    }
    if (round > 0) best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
    speed.bytes_per_step = static_cast<double>(device.work().bytes) / static_cast<double>(tokens);
  }
  speed.seconds_per_step = best / static_cast<double>(tokens);
  speed.tokens_per_second = static_cast<double>(batch) / speed.seconds_per_step;
  return speed;
}

}  // namespace lamina::infer
