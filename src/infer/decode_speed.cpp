#include "lamina/infer/decode_speed.h"

#include <algorithm>
#include <chrono>

#include "lamina/infer/device_steps.h"

namespace lamina::infer {
namespace {

using Clock = std::chrono::steady_clock;

/// Steps before the timed ones. CUDA graph capture happens within them.
constexpr int64_t kUntimedSteps = 4;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::vector<int64_t> first_ids(const nn::Model& model, int64_t batch) {
  return std::vector<int64_t>(static_cast<size_t>(batch), std::min<int64_t>(model.spec().vocab_size - 1, 1));
}

DecodeSpeed measure_on_host(nn::Model& model, int64_t batch, int64_t tokens, int rounds,
                            std::optional<DType> cache_dtype) {
  const Device& device = model.device();
  const auto vocab = static_cast<size_t>(model.spec().vocab_size);
  Sampler sampler({.temperature = 0});
  DecodeSpeed speed{.seconds_per_step = 1e30};
  for (int round = 0; round <= rounds; ++round) {
    nn::ModelCache cache = model.make_cache(batch, tokens, cache_dtype);
    std::vector<int64_t> ids = first_ids(model, batch);
    device.reset_work();
    const auto start = Clock::now();
    for (int64_t step = 0; step < tokens; ++step) {
      const std::vector<float> logits =
          model.cached_logits(Tensor::from(ids, {batch, 1}, device), cache, {.counts = {}, .last_only = true})
              .to_vector<float>();
      const std::span<const float> all(logits);
      for (size_t row = 0; row < ids.size(); ++row) ids[row] = sampler.next(all.subspan(row * vocab, vocab));
    }
    const auto count = static_cast<double>(tokens);
    if (round > 0) speed.seconds_per_step = std::min(speed.seconds_per_step, seconds_since(start) / count);
    speed.bytes_per_step = static_cast<double>(device.work().bytes) / count;
  }
  return speed;
}

/// Reads the tokens of each step while the next one runs, as generate() does.
DecodeSpeed measure_on_device(nn::Model& model, nn::ModelCache& cache, int64_t tokens, int rounds) {
  const Sampler sampler({.temperature = 0});
  DeviceSteps steps(model, cache, std::vector<const Sampler*>(static_cast<size_t>(cache.batch()), &sampler));
  const auto run = [&](int64_t count) {
    for (int64_t step = 0; step < count; ++step) {
      steps.queue();
      if (steps.queued() > 1) steps.chosen();
    }
    steps.chosen();
  };
  DecodeSpeed speed{.seconds_per_step = 1e30};
  for (int round = 0; round <= rounds; ++round) {
    for (int64_t row = 0; row < cache.batch(); ++row) cache.reset(row);
    steps.start(first_ids(model, cache.batch()));
    if (round == 0) model.device().reset_work();
    run(1);
    if (round == 0) speed.bytes_per_step = static_cast<double>(model.device().work().bytes);
    run(kUntimedSteps - 1);
    const auto start = Clock::now();
    run(tokens);
    if (round > 0) {
      speed.seconds_per_step = std::min(speed.seconds_per_step, seconds_since(start) / static_cast<double>(tokens));
    }
  }
  return speed;
}

}  // namespace

DecodeSpeed measure_decode(nn::Model& model, int64_t batch, int64_t tokens, int rounds,
                           std::optional<DType> cache_dtype) {
  LAMINA_CHECK(batch > 0 && tokens > 0 && rounds > 0, "measure_decode: ", batch, " rows of ", tokens, " tokens, ",
               rounds, " rounds; expected positive numbers");
  std::optional<nn::ModelCache> cache;
  if (Replay::possible(model.device())) cache.emplace(model.make_cache(batch, tokens + kUntimedSteps, cache_dtype));
  DecodeSpeed speed = cache && DeviceSteps::possible(model, *cache)
                          ? measure_on_device(model, *cache, tokens, rounds)
                          : measure_on_host(model, batch, tokens, rounds, cache_dtype);
  speed.tokens_per_second = static_cast<double>(batch) / speed.seconds_per_step;
  return speed;
}

}  // namespace lamina::infer
