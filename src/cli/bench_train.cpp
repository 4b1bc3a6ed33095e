#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "lamina/arch/cost.h"
#include "lamina/arch/count.h"
#include "lamina/arch/edit.h"
#include "lamina/arch/plan.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/cli/bench_steps.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/device_option.h"
#include "lamina/cli/product_peak.h"
#include "lamina/cli/seconds_of.h"
#include "lamina/cli/usage.h"
#include "lamina/tensor/replay.h"
#include "lamina/train/memory.h"
#include "lamina/train/pass.h"
#include "lamina/train/peak_share.h"

namespace lamina::cli {
namespace {

struct BenchTrainArguments {
  std::string name;
  std::vector<std::string> overrides;
  int64_t batch = 12;
  int64_t length = 0;
  int64_t source_length = 0;
  int64_t shortest = 0;
  int steps = 15;
  int warmup = 3;
  DeviceChoice device;
  std::string dtype = "f32";
  bool checkpoint = false;
  bool forward = false;
  bool json = false;
};

/// Results of the benchmark.
struct TrainReport {
  BenchTrainArguments arguments;
  std::string device;
  int64_t parameters = 0;
  train::StepTimes median;
  double best = 0;
  double tokens_per_second = 0;
  double rate = 0;              ///< FLOP/s
  double peak = 0;              ///< FLOP/s of a large matrix product
  std::optional<double> share;  ///< rate / peak; empty if the rate exceeds the peak
  MemoryCounters memory;
  double estimate = 0;  ///< memory estimate of `lamina plan`
};

std::string to_json(const TrainReport& r) {
  const nlohmann::ordered_json json{
      {"architecture", r.arguments.name},
      {"parameters", r.parameters},
      {"batch", r.arguments.batch},
      {"length", r.arguments.length},
      {"source_length", r.arguments.source_length},
      {"device", r.device},
      {"dtype", r.arguments.dtype},
      {"ms", r.median.total() * 1e3},
      {"best_ms", r.best * 1e3},
      {"forward_ms", r.median.forward * 1e3},
      {"backward_ms", r.median.backward * 1e3},
      {"update_ms", r.median.update * 1e3},
      {"device_ms", r.median.device * 1e3},
      {"tokens_per_second", r.tokens_per_second},
      {"gflops", r.rate / 1e9},
      {"product_gflops", r.peak / 1e9},
      {"share_of_product", r.share ? nlohmann::ordered_json(*r.share) : nlohmann::ordered_json()},
      {"peak_bytes", r.memory.peak},
      {"reserved_bytes", r.memory.reserved},
      {"estimated_bytes", r.estimate}};
  return json.dump(2) + "\n";
}

void print(const TrainReport& r) {
  std::printf("%s: %s parameters, batch %lld x %lld, %s, %s\n", r.arguments.name.c_str(),
              arch::with_commas(r.parameters).c_str(), static_cast<long long>(r.arguments.batch),
              static_cast<long long>(r.arguments.length), r.arguments.dtype.c_str(), r.device.c_str());
  std::printf("  step       %9.2f ms   (median of %d; best %.2f)\n", r.median.total() * 1e3, r.arguments.steps,
              r.best * 1e3);
  if (r.median.device == 0) {
    std::printf("  forward    %9.1f ms\n  backward   %9.1f ms\n  update     %9.1f ms\n", r.median.forward * 1e3,
                r.median.backward * 1e3, r.median.update * 1e3);
  }
  std::printf("  tokens     %9.0f /s\n", r.tokens_per_second);
  std::printf("  work       %9.1f GFLOP/s", r.rate / 1e9);
  r.share ? std::printf(", %.0f %% of the %.1f GFLOP/s of a large product\n", 100 * *r.share, r.peak / 1e9)
          : std::printf("; the machine was too busy to measure its peak\n");
  std::printf("  memory     %9.1f MB; estimated %.1f MB; in use at once %.1f MB\n",
              static_cast<double>(r.memory.reserved) / 1e6, r.estimate / 1e6, static_cast<double>(r.memory.peak) / 1e6);
}

std::vector<train::StepTimes> measure(BenchSteps& steps, const BenchTrainArguments& arguments) {
  std::vector<train::StepTimes> times;
  for (int i = 0; i < arguments.steps; ++i) {
    times.push_back(steps.run());
    if (arguments.json) continue;
    std::fprintf(stderr, "\rstep %d/%d  %.1f ms, %.0f s left ", i + 1, arguments.steps, times.back().total() * 1e3,
                 times.back().total() * (arguments.steps - i - 1));
  }
  if (!arguments.json) std::fprintf(stderr, "\r%50s\r", "");
  std::sort(times.begin(), times.end(), [](const auto& a, const auto& b) { return a.total() < b.total(); });
  return times;
}

/// `rows` lengths from `shortest` to `longest` in equal steps.
std::vector<int64_t> spread_lengths(int64_t shortest, int64_t longest, int64_t rows) {
  std::vector<int64_t> lengths(static_cast<size_t>(rows), longest);
  for (int64_t row = 0; row + 1 < rows; ++row) {
    lengths[static_cast<size_t>(row)] = shortest + (longest - shortest) * row / (rows - 1);
  }
  return lengths;
}

/// Times forward passes to the last hidden states, without gradients. A GPU replays them as a CUDA graph.
void run_forward(const BenchTrainArguments& arguments, const arch::ArchSpec& spec, const Device& device, DType dtype) {
  nn::Model model(spec, device, {.dtype = dtype, .seed = 0});
  const auto tokens = [&](int64_t length, uint64_t stream) {
    return Tensor::from(random_tokens(arguments.batch, length, spec.vocab_size, stream), {arguments.batch, length},
                        device);
  };
  const Tensor ids = tokens(arguments.length, 0);
  nn::RunOptions run;
  if (spec.encoder) run.source = tokens(arguments.source_length, 1);
  if (spec.retrieval) {
    const auto [chunk, count, length] = train::neighbour_sizes(spec);
    const int64_t chunks = arguments.length / chunk;
    run.neighbours = tokens(chunks * count * length, 2).reshape({arguments.batch, chunks, count, length});
  }
  if (arguments.shortest > 0) run.lengths = spread_lengths(arguments.shortest, arguments.length, arguments.batch);
  Tensor states;
  const std::function<void()> pass = [&] { states = model.hidden(ids, run); };
  std::optional<Replay> replay;
  if (Replay::possible(device) && run.lengths.empty()) replay.emplace(device, pass);
  const auto once = [&] { replay ? static_cast<void>(replay->run()) : pass(); };
  for (int i = 0; i < std::max(arguments.warmup, 3); ++i) once();
  std::vector<double> times;
  for (int i = 0; i < arguments.steps; ++i) times.push_back(seconds_of(device, once));
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  if (arguments.json) {
    const nlohmann::ordered_json json{{"architecture", arguments.name}, {"batch", arguments.batch},
                                      {"length", arguments.length},     {"source_length", arguments.source_length},
                                      {"shortest", arguments.shortest}, {"device", describe(device)},
                                      {"dtype", arguments.dtype},       {"forward_ms", median * 1e3},
                                      {"best_ms", times.front() * 1e3}};
    std::printf("%s\n", json.dump(2).c_str());
    return;
  }
  std::printf("%s: forward of %lld x %lld, %s, %s: %.3f ms (median of %d; best %.3f)\n", arguments.name.c_str(),
              static_cast<long long>(arguments.batch), static_cast<long long>(arguments.length),
              arguments.dtype.c_str(), describe(device).c_str(), median * 1e3, arguments.steps, times.front() * 1e3);
}

void run(BenchTrainArguments arguments) {
  const std::optional<DType> dtype = dtype_from_name(arguments.dtype);
  LAMINA_CHECK(dtype == DType::f32 || dtype == DType::bf16, "--dtype ", arguments.dtype, ": expected f32 or bf16");
  const arch::ArchSpec spec =
      arch::resolve(arch::with_overrides(arch::load_arch(arguments.name), arguments.overrides), arguments.name);
  if (arguments.length == 0) arguments.length = std::min<int64_t>(spec.context, 256);
  LAMINA_CHECK(spec.encoder || arguments.source_length == 0, "--source-length ", arguments.source_length, ": ",
               arguments.name, " has no encoder; leave it out");
  if (spec.encoder && arguments.source_length == 0) arguments.source_length = arguments.length;
  LAMINA_CHECK(
      arguments.shortest == 0 || (arguments.forward && !spec.encoder && arguments.shortest <= arguments.length),
      "--shortest ", arguments.shortest, ": expected --forward, a model with one stack of layers, and at most ",
      arguments.length, " tokens, the length");
  const Device device = arguments.device.open();
  if (arguments.forward) return run_forward(arguments, spec, device, *dtype);
  BenchSteps steps(spec, device,
                   {.batch = arguments.batch,
                    .length = arguments.length,
                    .source_length = arguments.source_length,
                    .updates = arguments.warmup + arguments.steps,
                    .bf16 = dtype == DType::bf16,
                    .checkpoint = arguments.checkpoint});
  for (int i = 0; i < arguments.warmup; ++i) steps.run();
  const MemoryCounters memory = device.allocator().counters();
  train::PeakShare share([&] { return product_peak(device, *dtype); });
  const std::vector<train::StepTimes> times = measure(steps, arguments);
  TrainReport report{.arguments = arguments, .device = describe(device)};
  report.parameters = arch::count_parameters(spec).total;
  report.median = times[times.size() / 2];
  report.best = times.front().total();
  const auto rows = static_cast<double>(arguments.batch);
  const auto length = static_cast<double>(arguments.length);
  report.tokens_per_second = rows * (length + static_cast<double>(arguments.source_length)) / report.median.total();
  const double row_flops = spec.encoder
                               ? 3 * arch::source_and_target_flops(spec, arguments.source_length, arguments.length)
                               : arch::flops_per_token(spec, arguments.length).training() * length;
  report.rate = rows * row_flops / report.median.total();
  report.share = share.of(report.rate);
  report.peak = share.peak();
  report.memory = memory;
  const arch::TrainingMemory estimate = train::training_memory(steps.recipe(), device.kind());
  report.estimate = estimate.total() - estimate.saving;  // the benchmark saves no checkpoint
  arguments.json ? static_cast<void>(std::fputs(to_json(report).c_str(), stdout)) : print(report);
}

}  // namespace

void add_bench_train(CLI::App& bench) {
  auto arguments = std::make_shared<BenchTrainArguments>();
  CLI::App* command = bench.add_subcommand(
      "train",
      "Training steps on random tokens: forward, backward, clipping and AdamW, compared with the speed of a GEMM");
  command->add_option("architecture", arguments->name, "A preset (`lamina presets`), or a file ending in .json")
      ->required();
  command->add_option("--set", arguments->overrides, "Change a value first: path=value")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--batch", arguments->batch, "Sequences in a step")->capture_default_str()->check(at_least(1));
  command->add_option("--length", arguments->length, "Tokens in a sequence (default: the context, at most 256)")
      ->check(at_least(1));
  command
      ->add_option("--source-length", arguments->source_length,
                   "Tokens that the encoder of an encoder–decoder reads (default: as --length)")
      ->check(at_least(1));
  command
      ->add_option("--shortest", arguments->shortest,
                   "With --forward: the rows' lengths spread evenly from this to --length, the rest is padding")
      ->check(at_least(1));
  command->add_option("--steps", arguments->steps, "Steps measured")->capture_default_str()->check(at_least(1));
  command->add_option("--warmup", arguments->warmup, "Steps before that")->capture_default_str()->check(at_least(0));
  arguments->device.add_to(*command);
  command->add_option("--dtype", arguments->dtype, "Type of weights and activations: f32 or bf16")
      ->capture_default_str();
  command->add_flag("--checkpoint", arguments->checkpoint, "Compute each layer's activations again in backward");
  command->add_flag("--forward", arguments->forward,
                    "Only forward passes to the last hidden states, without gradients");
  command->add_flag("--json", arguments->json, "Print the figures as JSON");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
