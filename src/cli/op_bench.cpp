// Timing of operators. Calls are queued and synchronized only once, which hides the host's overhead. If the GPU
// finishes a call before the host can launch the next one, several calls are captured as a CUDA graph and replayed.
#include "lamina/cli/op_bench.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "lamina/base/philox.h"
#include "lamina/cli/seconds_of.h"
#include "lamina/tensor/replay.h"

namespace lamina::cli {
namespace {

constexpr double kHostBound = 200e-6;  ///< below this time per call, the host may limit the rate

/// Returns a function that runs one direction of the call.
std::function<void()> repeatable(const OpCall& call, OpWay way, const OpBenchSetting& setting) {
  if (way == OpWay::forward) {
    std::vector<Tensor> arguments;
    for (const TapedCall::Leaf& leaf : call.leaves) arguments.push_back(leaf.tensor);
    return [run = call.run, arguments] { run(arguments); };
  }
  auto taped = std::make_shared<TapedCall>(call.leaves, call.run, [&](const Tensor& output) {
    return output.dtype() == setting.dtype ? setting.random(output.shape()) : setting.random_f32(output.shape());
  });
  if (way == OpWay::backward) return [taped] { taped->backward(); };
  return [taped] { taped->forward_and_backward(); };
}

/// Median time per call. `round` makes `calls` calls.
double median_of_rounds(const Device& device, int64_t calls, double seconds, const std::function<void()>& round) {
  constexpr size_t kLeast = 3;
  constexpr size_t kMost = 100;
  std::vector<double> times;
  for (double spent = 0; times.size() < kLeast || (times.size() < kMost && spent < seconds); spent += times.back()) {
    times.push_back(seconds_of(device, round));
  }
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2] / static_cast<double>(calls);
}

int64_t calls_for(double seconds, double of_one) {
  return std::clamp<int64_t>(std::llround(std::ceil(seconds / std::max(of_one, 1e-7))), 1, 1000);
}

}  // namespace

std::string_view name_of(OpWay way) {
  switch (way) {
    case OpWay::forward: return "forward";
    case OpWay::backward: return "backward";
    case OpWay::both: return "forward+backward";
  }
  return "";
}

Tensor OpBenchSetting::random(const Shape& shape, float low, float high) const {
  return random_f32(shape, low, high).to(dtype);
}

Tensor OpBenchSetting::random_f32(const Shape& shape, float low, float high) const {
  // Draws some numbers on the host, and repeats them to fill the tensor.
  constexpr int64_t kDrawn = (int64_t{1} << 18) + 3;
  const Tensor all = Tensor::empty({shape.numel()}, DType::f32, device);
  if (device.kind() == DeviceKind::meta) return all.reshape(shape);
  std::vector<float> drawn(static_cast<size_t>(std::min(kDrawn, all.numel())));
  const RandomKey key{1, static_cast<uint64_t>(all.numel())};
  for (size_t i = 0; i < drawn.size(); ++i) {
    drawn[i] = low + (high - low) * static_cast<float>(philox_word(key, i) >> 8) * 0x1p-24F;
  }
  auto have = static_cast<int64_t>(drawn.size());
  Tensor first = all.slice(0, 0, have);
  first.copy_(Tensor::from(drawn, {have}, device));
  for (; have < all.numel(); have *= 2) {
    const int64_t more = std::min(have, all.numel() - have);
    Tensor next = all.slice(0, have, more);
    next.copy_(all.slice(0, 0, more));
  }
  return all.reshape(shape);
}

Tensor OpBenchSetting::random_ids(const Shape& shape, int64_t below) const {
  std::vector<int64_t> ids(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(philox_word({2, 0}, i)) % below;
  return Tensor::from(ids, shape, device);
}

int64_t OpBenchSetting::copies_beyond_caches(int64_t bytes) const {
  const int64_t beyond = pick(int64_t{256} << 20, int64_t{128} << 20, 1);
  return std::clamp<int64_t>((beyond + bytes - 1) / std::max<int64_t>(bytes, 1), 1, 64);
}

Work work_of(const OpBench& bench, OpWay way, const OpCall& call, const OpBenchSetting& setting) {
  const OpBenchSetting meta{Device::meta(), setting.dtype, setting.size};
  const OpBenchSetting& where = bench.counted ? meta : setting;
  const std::function<void()> once = repeatable(bench.counted ? bench.counted(meta) : call, way, where);
  where.device.reset_work();
  once();
  return where.device.work();
}

double median_seconds(const OpCall& call, OpWay way, const OpBenchSetting& setting, double seconds) {
  const Device& device = setting.device;
  const std::function<void()> once = repeatable(call, way, setting);
  const auto times = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) once();
  };
  const bool gpu = Replay::possible(device);
  if (gpu) {  // lets libraries autotune their kernels, as in training
    Replay trials(device, once);
    for (int i = 0; i < 2; ++i) trials.run();
  }
  const int64_t few = gpu ? 3 : 1;
  times(few);  // warm-up: libraries choose kernels, and memory is touched
  const double first = seconds_of(device, [&] { times(few); }) / static_cast<double>(few);
  if (!gpu || first > kHostBound) {
    const int64_t calls = calls_for(gpu ? 5e-3 : 1e-3, first);
    return median_of_rounds(device, calls, seconds, [&] { times(calls); });
  }
  const int64_t recorded = std::max(call.cycle, calls_for(1e-3, first));
  Replay replay(device, [&] { times(recorded); });
  for (int i = 0; i < 4; ++i) replay.run();
  constexpr int64_t kReplays = 4;
  return median_of_rounds(device, kReplays * recorded, seconds, [&] {
    for (int64_t i = 0; i < kReplays; ++i) replay.run();
  });
}

}  // namespace lamina::cli
