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
#include "lamina/cli/product_peak.h"
#include "lamina/cli/seconds_of.h"
#include "lamina/cli/usage.h"
#include "lamina/infer/decode_speed.h"
#include "lamina/infer/load.h"
#include "lamina/infer/runner/model_runner.h"

namespace lamina::cli {
namespace {

struct DecodeArguments {
  std::string model;
  std::vector<std::string> overrides;
  std::string weights = "as-stored";
  std::optional<DType> cache_dtype;
  int64_t batch = 1;
  int64_t context = 1;
  int64_t prefill = 512;
  int64_t step_tokens = 8192;
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
  double prefill_flops = 0;     ///< per token
  double peak_flops = 0;        ///< FLOP/s of a large matrix product, in the type of the activations
  double decode = 0;            ///< tokens/s over all rows
  double bytes = 0;             ///< mean bytes read per decode step, as reported by the operators
  double bandwidth = 0;         ///< bytes/s when a buffer of that size is read repeatedly
  double memory_bandwidth = 0;  ///< bytes/s when the buffer exceeds the caches
  double prefill_share() const { return peak_flops > 0 ? prefill * prefill_flops / peak_flops : 0; }
  double share() const { return decode_seconds > 0 ? bytes / decode_seconds / bandwidth : 0; }
  double decode_seconds = 0;  ///< seconds per decode step
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

void measure_prompts(nn::Model& model, const DecodeArguments& arguments, DecodeReport& report) {
  const infer::PrefillSpeed speed = infer::measure_prefill(model, {.prompts = arguments.batch,
                                                                   .length = arguments.prefill,
                                                                   .step_tokens = arguments.step_tokens,
                                                                   .rounds = arguments.repeats,
                                                                   .cache_dtype = arguments.cache_dtype});
  report.prefill = speed.tokens_per_second;
  report.prefill_flops = speed.flops_per_token;
  const std::optional<DType> half = infer::half_type_of(model);
  const bool tensor_cores = model.device().kind() == DeviceKind::cuda && half;
  report.peak_flops = product_peak(model.device(), tensor_cores ? *half : DType::f32);
}

void print(const DecodeArguments& arguments, const DecodeReport& report) {
  std::printf("%s: %s parameters, weights %s, batch %lld, %s\n", arguments.model.c_str(),
              arch::with_commas(report.parameters).c_str(), arguments.weights.c_str(),
              static_cast<long long>(arguments.batch), report.device.c_str());
  if (arguments.prefill > 0) {
    std::printf("  prefill of %-5lld    %9.1f tokens/s, %.0f of %.0f GFLOP/s: %.0f %% of the limit reached\n",
                static_cast<long long>(arguments.prefill), report.prefill, report.prefill * report.prefill_flops / 1e9,
                report.peak_flops / 1e9, report.prefill_share() * 100);
  }
  std::printf("  decode of %-5lld     %9.1f tokens/s, %.3f ms a step, after %lld tokens\n",
              static_cast<long long>(arguments.tokens), report.decode, report.decode_seconds * 1e3,
              static_cast<long long>(arguments.context));
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
                                    {"prefill_flops_per_token", report.prefill_flops},
                                    {"peak_flops", report.peak_flops},
                                    {"prefill_share_of_limit", report.prefill_share()},
                                    {"context", arguments.context},
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
  if (arguments.prefill > 0) measure_prompts(*model, arguments, report);
  const infer::DecodeSpeed speed = infer::measure_decode(*model, {.batch = arguments.batch,
                                                                  .context = arguments.context,
                                                                  .tokens = arguments.tokens,
                                                                  .rounds = arguments.repeats,
                                                                  .cache_dtype = arguments.cache_dtype});
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
  command->add_option("--context", arguments->context, "Tokens in every sequence's cache before decoding")
      ->capture_default_str()
      ->check(at_least(1));
  command->add_option("--prefill", arguments->prefill, "Tokens of every prompt (0: do not measure prompts)")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_option("--step-tokens", arguments->step_tokens, "Prompt tokens in one step; prompts are packed into it")
      ->capture_default_str()
      ->check(at_least(1));
  command->add_option("--tokens", arguments->tokens, "Tokens generated")->capture_default_str()->check(at_least(1));
  command->add_option("--repeats", arguments->repeats, "Runs after a warm-up; the best one counts")
      ->capture_default_str()
      ->check(at_least(1));
  arguments->device.add_to(*command);
  command->add_flag("--json", arguments->json, "Print the figures as JSON");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
