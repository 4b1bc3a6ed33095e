#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "lamina/arch/count.h"
#include "lamina/arch/edit.h"
#include "lamina/arch/plan.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/base/files.h"
#include "lamina/cli/bandwidth.h"
#include "lamina/cli/cache_option.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/device_option.h"
#include "lamina/cli/seconds_of.h"
#include "lamina/cli/usage.h"
#include "lamina/infer/decode_speed.h"
#include "lamina/infer/load.h"

namespace lamina::cli {
namespace {

struct DecodeArguments {
  std::string model;
  std::vector<std::string> overrides;
  std::string weights = "as-stored";
  std::optional<DType> cache_dtype;
  int64_t batch = 1;
  int64_t prefill = 512;
  int64_t tokens = 128;
  int repeats = 3;
  DeviceChoice device;
  bool json = false;
};

struct DecodeReport {
  int64_t parameters = 0;
  std::string device;
  double load = 0;              ///< seconds
  double prefill = 0;           ///< tokens/s
  double decode = 0;            ///< tokens/s over all rows
  double bytes = 0;             ///< mean bytes read per decode step, as reported by the operators
  double bandwidth = 0;         ///< bytes/s when reading a buffer of that size repeatedly
  double memory_bandwidth = 0;  ///< bytes/s when reading more than the caches hold
  double share() const { return decode_seconds > 0 ? bytes / decode_seconds / bandwidth : 0; }
  double decode_seconds = 0;  ///< per decode step
};

std::unique_ptr<nn::Model> load(const DecodeArguments& arguments, const Device& device) {
  const nn::WeightFormats formats = nn::parse_weight_formats(arguments.weights);
  const bool preset = !path_exists(arguments.model);
  LAMINA_CHECK(preset || arguments.overrides.empty(), "--set with ", arguments.model,
               ", which has weights: only a preset's values can be changed");
  if (!preset) {
    return std::move(infer::load_model(arguments.model, device, {{}, formats}).model);
  }
  const arch::ArchSpec spec =
      arch::resolve(arch::with_overrides(arch::load_arch(arguments.model), arguments.overrides), arguments.model);
  auto model = std::make_unique<nn::Model>(spec, device);
  model->store_weights(formats);
  return model;
}

Tensor some_ids(int64_t batch, int64_t seq, int64_t vocab, const Device& device) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < batch * seq; ++i) ids.push_back((i * 7919 + 13) % vocab);
  return Tensor::from(ids, {batch, seq}, device);
}

double measure_prefill(nn::Model& model, const DecodeArguments& arguments) {
  const Tensor ids = some_ids(arguments.batch, arguments.prefill, model.spec().vocab_size, model.device());
  double best = 1e30;
  for (int round = 0; round <= arguments.repeats; ++round) {
    nn::ModelCache cache = model.make_cache(arguments.batch, arguments.prefill, arguments.cache_dtype);
    const double seconds =
        seconds_of(model.device(), [&] { model.cached_logits(ids, cache, {.counts = {}, .last_only = true}); });
    if (round > 0) best = std::min(best, seconds);  // the first round is a warm-up
  }
  return static_cast<double>(arguments.batch * arguments.prefill) / best;
}

void print(const DecodeArguments& arguments, const DecodeReport& report) {
  std::printf("%s: %s parameters, weights %s, batch %lld, %s\n", arguments.model.c_str(),
              arch::with_commas(report.parameters).c_str(), arguments.weights.c_str(),
              static_cast<long long>(arguments.batch), report.device.c_str());
  std::printf("  prefill of %-5lld    %9.1f tokens/s\n", static_cast<long long>(arguments.prefill), report.prefill);
  std::printf("  decode of %-5lld     %9.1f tokens/s, %.3f ms a step\n", static_cast<long long>(arguments.tokens),
              report.decode, report.decode_seconds * 1e3);
  std::printf("  bytes for a step   %9.2f MB, %.1f GB/s\n", report.bytes / 1e6,
              report.bytes / report.decode_seconds / 1e9);
  std::printf("  reading as many    %9.1f GB/s (from memory %.1f): %.0f %% of the limit reached\n",
              report.bandwidth / 1e9, report.memory_bandwidth / 1e9, report.share() * 100);
}

void print_json(const DecodeArguments& arguments, const DecodeReport& report) {
  const nlohmann::ordered_json json{{"model", arguments.model},
                                    {"parameters", report.parameters},
                                    {"weights", arguments.weights},
                                    {"batch", arguments.batch},
                                    {"device", report.device},
                                    {"load_seconds", report.load},
                                    {"prefill_tokens", arguments.prefill},
                                    {"prefill_tokens_per_second", report.prefill},
                                    {"decode_tokens", arguments.tokens},
                                    {"decode_tokens_per_second", report.decode},
                                    {"bytes_per_step", report.bytes},
                                    {"read_bytes_per_second", report.bandwidth},
                                    {"memory_bytes_per_second", report.memory_bandwidth},
                                    {"share_of_limit", report.share()}};
  std::printf("%s\n", json.dump(2).c_str());
}

void run(const DecodeArguments& arguments) {
  const Device device = arguments.device.open();
  DecodeReport report;
  report.device = describe(device);
  std::unique_ptr<nn::Model> model;
  report.load = seconds_of([&] { model = load(arguments, device); });
  report.parameters = arch::count_parameters(model->spec()).total;
  if (arguments.prefill > 0) report.prefill = measure_prefill(*model, arguments);
  const infer::DecodeSpeed speed =
      infer::measure_decode(*model, arguments.batch, arguments.tokens, arguments.repeats, arguments.cache_dtype);
  report.decode = speed.tokens_per_second;
  report.decode_seconds = speed.seconds_per_step;
  report.bytes = speed.bytes_per_step;
  report.bandwidth = read_bandwidth(device, static_cast<int64_t>(report.bytes));
  report.memory_bandwidth = read_bandwidth(device, int64_t{256} << 20);
  arguments.json ? print_json(arguments, report) : print(arguments, report);
}

}  // namespace

void add_bench_decode(CLI::App& bench) {
  auto arguments = std::make_shared<DecodeArguments>();
  CLI::App* command =
      bench.add_subcommand("decode", "Speed of prefill and decoding, compared with the speed of reading the weights");
  command->add_option("model", arguments->model, "A model's folder or file, or a preset with random weights")
      ->required();
  command->add_option("--set", arguments->overrides, "Change a preset's value first: path=value")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--weights", arguments->weights, "f32, bf16, q8, q4 or as-stored, with rules as in generate")
      ->capture_default_str();
  add_cache_dtype(*command, arguments->cache_dtype);
  command->add_option("--batch", arguments->batch, "Sequences at once")->capture_default_str()->check(at_least(1));
  command->add_option("--prefill", arguments->prefill, "Tokens of the prompt (0: none)")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_option("--tokens", arguments->tokens, "Tokens generated")->capture_default_str()->check(at_least(1));
  command->add_option("--repeats", arguments->repeats, "Runs after a warm-up; the best one counts")
      ->capture_default_str()
      ->check(at_least(1));
  arguments->device.add_to(*command);
  command->add_flag("--json", arguments->json, "Print the figures as JSON");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
