#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "lamina/arch/cost.h"
#include "lamina/arch/count.h"
#include "lamina/arch/edit.h"
#include "lamina/arch/plan.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/cli/commands.h"
#include "lamina/nn/model.h"
#include "lamina/ops/linear/matmul.h"
#include "lamina/ops/optim/grad_norm.h"
#include "lamina/train/optimizer.h"

namespace lamina::cli {
namespace {

struct TrainArguments {
  std::string name;
  std::vector<std::string> overrides;
  int64_t batch = 12;
  int64_t length = 0;
  int steps = 15;
  int warmup = 3;
  int threads = 0;
  std::string dtype = "f32";
  bool checkpoint = false;
  bool json = false;
};

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Operations per second of a square f32 product, the best of a few: what the step is held against.
double sgemm_peak(const Device& device) {
  constexpr int64_t kSize = 2048;
  const Tensor a = Tensor::full({kSize, kSize}, 0.5, DType::f32, device);
  double best = 1e30;
  for (int i = 0; i < 5; ++i) best = std::min(best, seconds_of([&] { ops::matmul(a, a); }));
  return 2.0 * kSize * kSize * kSize / best;
}

struct StepTimes {
  double forward = 0;
  double backward = 0;
  double update = 0;
  double total() const { return forward + backward + update; }
};

/// Forward, backward, clipping and AdamW on random tokens, as a training loop runs them.
class Steps {
 public:
  Steps(const arch::ArchSpec& spec, const Device& device, DType dtype, const TrainArguments& arguments)
      : model_(spec, device, {.dtype = dtype}), optimizer_({group(model_)}), checkpoint_(arguments.checkpoint) {
    for (auto& [name, parameter] : model_.named_parameters()) tape_.watch(parameter, dtype);
    std::vector<int64_t> ids(static_cast<size_t>(arguments.batch * arguments.length));
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int64_t>(philox_word({1, 0}, i)) % spec.vocab_size;
    }
    ids_ = Tensor::from(ids, {arguments.batch, arguments.length}, device);
  }

  StepTimes run() {
    StepTimes times;
    nn::ModelLoss loss;
    times.forward = seconds_of(
        [&] { loss = model_.loss(ids_, ids_, {}, {.training = true, .checkpoint = checkpoint_ ? &tape_ : nullptr}); });
    times.backward = seconds_of([&] { tape_.backward(loss.total); });
    times.update = seconds_of([&] {
      ops::clip_grad_norm_(optimizer_.gradients(tape_), {.max_norm = 1.0});
      optimizer_.step(tape_);
      tape_.zero_grad();
    });
    return times;
  }

 private:
  static train::ParamGroup group(const nn::Model& model) {
    train::ParamGroup all{.params = {}, .lr = 1e-4, .weight_decay = 0.1};
    for (auto& [name, parameter] : model.named_parameters()) all.params.push_back({name, parameter});
    return all;
  }

  nn::Model model_;
  Tape tape_;
  train::AdamW optimizer_;
  Tensor ids_;
  bool checkpoint_;
};

void run_train(TrainArguments arguments) {
  const std::optional<DType> dtype = dtype_from_name(arguments.dtype);
  LAMINA_CHECK(dtype && is_floating(*dtype), "--dtype ", arguments.dtype, ": expected f32, bf16, f16 or f64");
  LAMINA_CHECK(arguments.steps > 0 && arguments.warmup >= 0 && arguments.batch > 0 && arguments.length >= 0,
               "--steps and --batch want positive numbers, --warmup and --length none below 0");
  const arch::ArchSpec spec =
      arch::resolve(arch::with_overrides(arch::load_arch(arguments.name), arguments.overrides), arguments.name);
  if (arguments.length == 0) arguments.length = std::min<int64_t>(spec.context, 256);
  const Device device = Device::cpu(arguments.threads);
  Steps steps(spec, device, *dtype, arguments);
  for (int i = 0; i < arguments.warmup; ++i) steps.run();
  const double peak_before = sgemm_peak(device);
  std::vector<StepTimes> times;
  for (int i = 0; i < arguments.steps; ++i) {
    times.push_back(steps.run());
    if (!arguments.json) {
      std::fprintf(stderr, "\rstep %d/%d  %.1f ms ", i + 1, arguments.steps, times.back().total() * 1e3);
    }
  }
  if (!arguments.json) std::fprintf(stderr, "\r%40s\r", "");
  const double peak = std::max(peak_before, sgemm_peak(device));
  std::sort(times.begin(), times.end(), [](const auto& a, const auto& b) { return a.total() < b.total(); });
  const StepTimes& median = times[times.size() / 2];
  const auto tokens = static_cast<double>(arguments.batch * arguments.length);
  const double work = arch::flops_per_token(spec, arguments.length).training() * tokens;
  const double rate = work / median.total();
  const auto parameters = arch::count_parameters(spec).total;
  const MemoryCounters memory = device.allocator().counters();
  if (arguments.json) {
    const nlohmann::ordered_json report{{"architecture", arguments.name},
                                        {"parameters", parameters},
                                        {"batch", arguments.batch},
                                        {"length", arguments.length},
                                        {"threads", device.threads().count()},
                                        {"dtype", arguments.dtype},
                                        {"ms", median.total() * 1e3},
                                        {"best_ms", times.front().total() * 1e3},
                                        {"forward_ms", median.forward * 1e3},
                                        {"backward_ms", median.backward * 1e3},
                                        {"update_ms", median.update * 1e3},
                                        {"tokens_per_second", tokens / median.total()},
                                        {"gflops", rate / 1e9},
                                        {"sgemm_gflops", peak / 1e9},
                                        {"share_of_sgemm", rate / peak},
                                        {"peak_bytes", memory.peak}};
    std::printf("%s\n", report.dump(2).c_str());
    return;
  }
  std::printf("%s: %s parameters, batch %lld x %lld, %s, %d threads\n", arguments.name.c_str(),
              arch::with_commas(parameters).c_str(), static_cast<long long>(arguments.batch),
              static_cast<long long>(arguments.length), arguments.dtype.c_str(), device.threads().count());
  std::printf("  step       %9.1f ms   (median of %d; best %.1f)\n", median.total() * 1e3, arguments.steps,
              times.front().total() * 1e3);
  std::printf("  forward    %9.1f ms\n  backward   %9.1f ms\n  update     %9.1f ms\n", median.forward * 1e3,
              median.backward * 1e3, median.update * 1e3);
  std::printf("  tokens     %9.0f /s\n", tokens / median.total());
  std::printf("  work       %9.1f GFLOP/s, %.0f %% of the %.1f GFLOP/s of a 2048^3 f32 product\n", rate / 1e9,
              100 * rate / peak, peak / 1e9);
  std::printf("  memory     %9.1f MB at most\n", static_cast<double>(memory.peak) / 1e6);
}

}  // namespace

void add_bench(CLI::App& program) {
  CLI::App* bench = program.add_subcommand("bench", "How fast this machine is at a model's work");
  bench->require_subcommand(1);
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = bench->add_subcommand(
      "train",
      "Training steps on random tokens: forward, backward, clipping and AdamW, against the speed of a product");
  command->add_option("architecture", arguments->name, "A preset (`lamina presets`), or a file ending in .json")
      ->required();
  command->add_option("--set", arguments->overrides, "Change a value first: path=value")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--batch", arguments->batch, "Sequences in a step")->capture_default_str();
  command->add_option("--length", arguments->length, "Tokens in a sequence (default: the context, at most 256)");
  command->add_option("--steps", arguments->steps, "Steps measured")->capture_default_str();
  command->add_option("--warmup", arguments->warmup, "Steps before that")->capture_default_str();
  command->add_option("--threads", arguments->threads, "Worker threads (default: all cores)");
  command->add_option("--dtype", arguments->dtype, "Type of weights and activations: f32, bf16, f16 or f64")
      ->capture_default_str();
  command->add_flag("--checkpoint", arguments->checkpoint, "Compute each layer's activations again in backward");
  command->add_flag("--json", arguments->json, "Print the figures as JSON");
  command->callback([arguments] { run_train(*arguments); });
}

}  // namespace lamina::cli
