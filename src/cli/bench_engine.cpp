#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "lamina/arch/cost.h"
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
#include "lamina/cli/shared_engine.h"
#include "lamina/cli/usage.h"
#include "lamina/infer/engine/load_test.h"
#include "lamina/infer/load.h"
#include "lamina/infer/runner/model_runner.h"
#include "lamina/nn/tensor_parallel.h"

namespace lamina::cli {
namespace {

struct EngineArguments {
  std::string model;
  std::vector<std::string> overrides;
  std::string weights = "as-stored";
  infer::LoadTestOptions load;
  infer::EngineOptions engine;
  infer::ModelRunnerOptions runner;
  DeviceChoice device;
  bool json = false;
};

/// A lower bound on the time, in seconds: FLOPs at the rate of a large matrix product, and bytes at the memory
/// bandwidth. Weights are read once per step, and a sequence's cache once per token of its answer. If several processes
/// share the model, this is the bound for the first one's part.
struct EngineFloor {
  double flops = 0;
  double peak = 0;
  double bytes = 0;
  double bandwidth = 0;
  double seconds() const { return std::max(flops / peak, bytes / bandwidth); }
};

double steady_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::unique_ptr<nn::Model> load_for_engine(const EngineArguments& arguments, const Device& device,
                                           const std::shared_ptr<const nn::TensorParallel>& ranks) {
  const auto parallel = ranks_on(ranks, device);
  const nn::WeightFormats formats = nn::parse_weight_formats(arguments.weights);
  if (path_exists(arguments.model)) {
    LAMINA_CHECK(arguments.overrides.empty(), "--set with ", arguments.model,
                 ", which has weights: only a preset's values can be changed");
    return std::move(infer::load_model(arguments.model, device, {{}, formats, false, parallel}).model);
  }
  const arch::ArchSpec spec =
      arch::resolve(arch::with_overrides(arch::load_arch(arguments.model), arguments.overrides), arguments.model);
  auto model = std::make_unique<nn::Model>(spec, device, nn::ModelOptions{.parallel = parallel});
  model->store_weights(formats);
  return model;
}

/// Bytes of weights that a step reads, as the operators report them for a step with one row.
double weight_bytes(infer::Engine& engine, const Device& device) {
  infer::Request one;
  one.prompt = {0};
  one.max_tokens = 1;
  device.reset_work();
  engine.submit(std::move(one), {});
  engine.run_until_idle();
  return static_cast<double>(device.work().bytes);
}

int processes_of(const nn::Model& model) { return model.parallel() ? model.parallel()->ranks().size() : 1; }

EngineFloor floor_of(const nn::Model& model, const infer::Engine& engine, const infer::LoadTestReport& report,
                     double bytes_per_step) {
  EngineFloor floor;
  const int64_t tokens = report.stats.prompt_tokens + report.answer_tokens;
  const int64_t length = (report.prompt_tokens + report.answer_tokens) / std::max<int64_t>(1, report.stats.requests);
  floor.flops = static_cast<double>(tokens) *
                arch::flops_per_token(model.spec(), std::max<int64_t>(1, length)).forward() /
                static_cast<double>(processes_of(model));
  double cache_bytes = 0;  // per token, in all layers
  for (const infer::CacheGroup& group : engine.shape().groups) {
    const double share =
        group.window > 0 ? std::min(1.0, static_cast<double>(group.window) / static_cast<double>(length)) : 1;
    cache_bytes += share * static_cast<double>(group.bytes_per_page) / static_cast<double>(engine.shape().page_size);
  }
  floor.bytes = static_cast<double>(report.stats.steps) * bytes_per_step + report.attended_tokens * cache_bytes;
  const std::optional<DType> half = infer::half_type_of(model);
  const bool tensor_cores = model.device().kind() == DeviceKind::cuda && half;
  floor.peak = product_peak(model.device(), tensor_cores ? *half : DType::f32);
  floor.bandwidth = read_bandwidth(model.device(), int64_t{256} << 20);
  return floor;
}

void print_latencies(const char* name, const infer::Latencies& latencies) {
  std::printf("  %-22s %9.2f %9.2f %9.2f %9.2f ms\n", name, latencies.mean() * 1e3, latencies.percentile(0.5) * 1e3,
              latencies.percentile(0.95) * 1e3, latencies.percentile(0.99) * 1e3);
}

/// Where and how the load test ran.
struct EngineRun {
  std::string device;
  int processes = 1;
  double idle_share = 0;  ///< see ModelRunner::idle_share(); 0 if not measured
};

void print_engine(const EngineArguments& arguments, const infer::LoadTestReport& report, const EngineFloor& floor,
                  const EngineRun& run) {
  const infer::EngineStats& stats = report.stats;
  std::printf("%s: weights %s, %lld requests, %lld tokens in, %lld out, %s, %s%s\n", arguments.model.c_str(),
              arguments.weights.c_str(), static_cast<long long>(arguments.load.requests),
              static_cast<long long>(arguments.load.prompt), static_cast<long long>(arguments.load.answer),
              arguments.load.rate > 0 ? str(arguments.load.rate, " arrive per second").c_str() : "all arrive at once",
              run.device.c_str(), run.processes > 1 ? str(" in each of ", run.processes, " processes").c_str() : "");
  std::printf("  output             %11.1f tokens/s; prompts and output %.1f tokens/s\n",
              report.answer_tokens_per_second(),
              static_cast<double>(report.prompt_tokens + report.answer_tokens) / report.seconds);
  std::printf("  time               %11.3f s in %lld steps, %.1f answers per step\n", report.seconds,
              static_cast<long long>(stats.steps),
              static_cast<double>(report.answer_tokens) / static_cast<double>(std::max<int64_t>(1, stats.steps)));
  std::printf("  floor              %11.3f s for bytes (%.1f GB/s), %.3f s for FLOPs (%.1f TFLOP/s): %.0f %% reached\n",
              floor.bytes / floor.bandwidth, floor.bandwidth / 1e9, floor.flops / floor.peak, floor.peak / 1e12,
              floor.seconds() / report.seconds * 100);
  if (arguments.runner.measures_idle) {
    std::printf("  idle               %11.2f %% of the time between the first and the last step\n",
                run.idle_share * 100);
  }
  std::printf("  %-22s %9s %9s %9s %9s\n", "", "mean", "p50", "p95", "p99");
  print_latencies("first token (TTFT)", report.first_token);
  print_latencies("next token (ITL)", report.next_token);
  print_latencies("per token (TPOT)", report.per_token);
  std::printf("  prefix hits %.0f %% of prompt tokens, %lld preemptions", stats.hit_rate() * 100,
              static_cast<long long>(stats.preemptions));
  if (stats.drafted > 0) {
    std::printf(", %.0f %% of %lld drafted tokens accepted",
                static_cast<double>(stats.accepted) / static_cast<double>(stats.drafted) * 100,
                static_cast<long long>(stats.drafted));
  }
  std::printf("; cache %.1f MB\n", static_cast<double>(stats.cache_bytes) / 1e6);
}

nlohmann::ordered_json to_json(const infer::Latencies& latencies) {
  return {{"mean", latencies.mean()},
          {"p50", latencies.percentile(0.5)},
          {"p95", latencies.percentile(0.95)},
          {"p99", latencies.percentile(0.99)}};
}

void print_engine_json(const EngineArguments& arguments, const infer::LoadTestReport& report, const EngineFloor& floor,
                       const EngineRun& run) {
  nlohmann::ordered_json json{{"model", arguments.model},
                              {"weights", arguments.weights},
                              {"device", run.device},
                              {"processes", run.processes},
                              {"requests", arguments.load.requests},
                              {"rate", arguments.load.rate},
                              {"prompt_tokens", report.prompt_tokens},
                              {"answer_tokens", report.answer_tokens},
                              {"seconds", report.seconds},
                              {"answer_tokens_per_second", report.answer_tokens_per_second()},
                              {"steps", report.stats.steps},
                              {"floor_seconds", floor.seconds()},
                              {"floor_bytes", floor.bytes},
                              {"floor_flops", floor.flops},
                              {"memory_bytes_per_second", floor.bandwidth},
                              {"peak_flops", floor.peak},
                              {"first_token_seconds", to_json(report.first_token)},
                              {"next_token_seconds", to_json(report.next_token)},
                              {"seconds_per_token", to_json(report.per_token)},
                              {"prefix_hit_rate", report.stats.hit_rate()},
                              {"preemptions", report.stats.preemptions},
                              {"drafted", report.stats.drafted},
                              {"accepted", report.stats.accepted},
                              {"cache_bytes", report.stats.cache_bytes}};
  if (arguments.runner.measures_idle) json["idle_share"] = run.idle_share;
  std::printf("%s\n", json.dump(2).c_str());
}

/// Length of the longest prompt and answer together.
int64_t longest_request(const EngineArguments& arguments) {
  const auto tokens = static_cast<double>(arguments.load.prompt + arguments.load.answer);
  return static_cast<int64_t>(tokens * (1 + arguments.load.spread)) + 2;
}

void measure_engine(EngineArguments arguments, nn::Model& model, const std::shared_ptr<infer::StepLeader>& leader) {
  const Device device = model.device();
  const int64_t longest = longest_request(arguments);
  LAMINA_CHECK(longest <= model.spec().context || model.spec().context == 0, "bench engine: requests of up to ",
               longest, " tokens, the context is ", model.spec().context, "; lower --in, --out or --spread");
  arguments.runner.leader = leader;
  arguments.engine.max_waiting = arguments.load.requests + 1;
  auto owned = std::make_unique<infer::ModelRunner>(model, arguments.runner);
  infer::ModelRunner& runner = *owned;
  infer::Engine engine(std::move(owned), arguments.engine);
  const double bytes_per_step = weight_bytes(engine, device);
  const auto sleep = [](double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); };
  infer::LoadTestOptions warm_up = arguments.load;  // allocates memory and captures CUDA graphs
  warm_up.requests = std::min<int64_t>(arguments.load.requests, 2 * arguments.engine.rows);
  // Long enough that the first answers are still running when the last prompt has been read.
  const int64_t prompt_steps = warm_up.requests * warm_up.prompt / arguments.engine.step_tokens + 1;
  warm_up.answer = std::min<int64_t>(arguments.load.answer, prompt_steps + 8);
  warm_up.rate = 0;
  ++warm_up.seed;
  infer::run_load_test(engine, warm_up, steady_now, sleep);
  engine.clear_prefix_cache();
  EngineRun run{describe(device), processes_of(model)};
  if (arguments.runner.measures_idle) runner.idle_share();  // resets the measurement, to leave out the warm-up
  const infer::LoadTestReport report = infer::run_load_test(engine, arguments.load, steady_now, sleep);
  if (arguments.runner.measures_idle) run.idle_share = runner.idle_share();
  const EngineFloor floor = floor_of(model, engine, report, bytes_per_step);
  (arguments.json ? print_engine_json : print_engine)(arguments, report, floor, run);
}

void run_engine_bench(EngineArguments arguments) {
  const Device device = open_rank_device(arguments.device);
  const auto ranks = open_shared_model();
  arguments.runner.rows = arguments.engine.rows;
  arguments.runner.context = longest_request(arguments);
  std::unique_ptr<nn::Model> model;
  if (ranks && ranks->ranks().rank() > 0) {
    return follow_engine(ranks, [&](infer::StepFollower& follower) {
      model = load_for_engine(arguments, device, ranks);
      follower.add(*model, arguments.runner);
    });
  }
  lead_ranks(ranks, [&] {
    model = load_for_engine(arguments, device, ranks);
    const auto leader = ranks ? std::make_shared<infer::StepLeader>(ranks) : nullptr;
    measure_engine(arguments, *model, leader);
    if (leader) leader->stop();
  });
}

}  // namespace

void add_bench_engine(CLI::App& bench) {
  auto arguments = std::make_shared<EngineArguments>();
  CLI::App* command = bench.add_subcommand(
      "engine", "Throughput and latency of many requests at once, compared with the machine's limits");
  command->add_option("model", arguments->model, "A model's folder or file, or a preset with random weights")
      ->required();
  command->add_option("--set", arguments->overrides, "Change a preset's value first: path=value")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--weights", arguments->weights, "f32, bf16, q8, q4 or as-stored, with rules as in generate")
      ->capture_default_str();
  add_cache_dtype(*command, arguments->runner.cache_dtype);
  const auto number = [&](const char* name, int64_t& value, const char* help, int64_t least = 1) {
    command->add_option(name, value, help)->capture_default_str()->check(at_least(least));
  };
  number("--requests", arguments->load.requests, "Number of requests");
  command
      ->add_option("--rate", arguments->load.rate, "Requests per second, arriving at random (Poisson); 0: all at once")
      ->capture_default_str()
      ->check(at_least(0));
  number("--in", arguments->load.prompt, "Tokens of a prompt");
  number("--out", arguments->load.answer, "Tokens of an answer");
  command->add_option("--spread", arguments->load.spread, "Vary lengths uniformly by up to this share of them")
      ->capture_default_str();
  number("--shared", arguments->load.shared, "Tokens at the beginning that all prompts have in common", 0);
  number("--rows", arguments->engine.rows, "Answers computed at once");
  number("--step-tokens", arguments->engine.step_tokens, "Tokens in one step");
  number("--draft-tokens", arguments->engine.draft_tokens, "Most tokens drafted by prompt lookup; 0: none", 0);
  number("--cache-bytes", arguments->runner.cache_bytes, "Memory for caches; 0: what is free on a GPU", 0);
  command->add_option("--seed", arguments->load.seed, "Seed of arrivals, lengths and prompts")->capture_default_str();
  arguments->device.add_to(*command);
  command->add_flag("--idle", arguments->runner.measures_idle, "Measure how long the GPU idles between steps");
  command->add_flag("--json", arguments->json, "Print the figures as JSON");
  command->footer("Example: lamina bench engine llama2c-110m --requests 64 --rate 4 --in 128 --out 64");
  command->callback([arguments] { run_engine_bench(*arguments); });
}

}  // namespace lamina::cli
