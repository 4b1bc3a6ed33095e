#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "lamina/arch/edit.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/cli/bench_steps.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/device_option.h"
#include "lamina/cli/seconds_of.h"
#include "lamina/cli/usage.h"
#include "lamina/nn/model.h"

namespace lamina::cli {
namespace {

struct BenchLengthArguments {
  std::string name;
  std::vector<std::string> overrides;
  int64_t from = 2048;
  int64_t to = 32768;
  int64_t batch = 1;
  int steps = 3;
  bool forward = false;
  double max_slope = 0;
  DeviceChoice device;
  std::string dtype = "f32";
  bool json = false;
};

struct LengthRow {
  int64_t length = 0;
  double seconds = 0;  ///< time of the fastest step
  double bytes = 0;    ///< largest memory use of a step, including weights and optimizer state
};

/// The slope of log(y) over log(length), by least squares.
double log_slope(const std::vector<LengthRow>& rows, double LengthRow::*y) {
  double mean_x = 0;
  double mean_y = 0;
  for (const LengthRow& row : rows) {
    mean_x += std::log(static_cast<double>(row.length)) / static_cast<double>(rows.size());
    mean_y += std::log(row.*y) / static_cast<double>(rows.size());
  }
  double covariance = 0;
  double variance = 0;
  for (const LengthRow& row : rows) {
    const double x = std::log(static_cast<double>(row.length)) - mean_x;
    covariance += x * (std::log(row.*y) - mean_y);
    variance += x * x;
  }
  return covariance / variance;
}

/// The lengths from, 2 from, 4 from, … up to `to`.
std::vector<int64_t> lengths_of(const BenchLengthArguments& arguments) {
  std::vector<int64_t> lengths{arguments.from};
  while (lengths.back() <= arguments.to / 2) lengths.push_back(2 * lengths.back());
  return lengths;
}

/// The resolved architecture with a context of `length` tokens.
arch::ArchSpec spec_for(const BenchLengthArguments& arguments, int64_t length) {
  std::vector<std::string> overrides = arguments.overrides;
  overrides.push_back(str("context=", length));
  return arch::resolve(arch::with_overrides(arch::load_arch(arguments.name), overrides), arguments.name);
}

LengthRow measure(const BenchLengthArguments& arguments, int64_t length) {
  const arch::ArchSpec spec = spec_for(arguments, length);
  const Device device = arguments.device.open();
  const int64_t source = spec.encoder ? length : 0;
  const bool bf16 = arguments.dtype == "bf16";
  device.allocator().reset_peak();
  std::unique_ptr<BenchSteps> steps;
  std::unique_ptr<nn::Model> model;
  nn::RunOptions run;
  const auto tokens = [&](uint64_t stream) {
    return Tensor::from(random_tokens(arguments.batch, length, spec.vocab_size, stream), {arguments.batch, length},
                        device);
  };
  Tensor ids;
  if (arguments.forward) {
    model = std::make_unique<nn::Model>(spec, device,
                                        nn::ModelOptions{.dtype = bf16 ? DType::bf16 : DType::f32, .seed = 0});
    ids = tokens(0);
    if (spec.encoder) run.source = tokens(1);
  } else {
    steps = std::make_unique<BenchSteps>(spec, device,
                                         BenchStepOptions{.batch = arguments.batch,
                                                          .length = length,
                                                          .source_length = source,
                                                          .updates = arguments.steps + 1,
                                                          .bf16 = bf16});
  }
  const auto once = [&] { steps ? steps->run().total() : seconds_of(device, [&] { model->hidden(ids, run); }); };
  LengthRow row{length, std::numeric_limits<double>::infinity(), 0};
  once();
  for (int i = 0; i < arguments.steps; ++i) row.seconds = std::min(row.seconds, seconds_of(device, once));
  row.bytes = static_cast<double>(device.allocator().counters().peak);
  return row;
}

void print_json(const BenchLengthArguments& arguments, const std::vector<LengthRow>& rows, double time, double memory) {
  nlohmann::ordered_json json{{"architecture", arguments.name},
                              {"batch", arguments.batch},
                              {"step", arguments.forward ? "forward" : "training"},
                              {"device", describe(arguments.device.open())},
                              {"dtype", arguments.dtype}};
  for (const LengthRow& row : rows) {
    json["lengths"].push_back({{"length", row.length}, {"ms", row.seconds * 1e3}, {"peak_bytes", row.bytes}});
  }
  json["time_slope"] = time;
  json["memory_slope"] = memory;
  std::printf("%s\n", json.dump(2).c_str());
}

void run(const BenchLengthArguments& arguments) {
  LAMINA_CHECK(arguments.dtype == "f32" || arguments.dtype == "bf16", "--dtype ", arguments.dtype,
               ": expected f32 or bf16");
  LAMINA_CHECK(arguments.to / 2 >= arguments.from, "--from ", arguments.from, " --to ", arguments.to,
               ": expected --to to be at least twice --from");
  spec_for(arguments, lengths_of(arguments).back());  // throws an Error before anything is printed
  std::vector<LengthRow> rows;
  if (!arguments.json) {
    std::printf("%s: %s of %lld rows, %s, %s\n%10s %12s %12s %12s\n", arguments.name.c_str(),
                arguments.forward ? "forward passes" : "training steps", static_cast<long long>(arguments.batch),
                arguments.dtype.c_str(), describe(arguments.device.open()).c_str(), "length", "ms", "us/token", "MB");
  }
  for (const int64_t length : lengths_of(arguments)) {
    const LengthRow row = rows.emplace_back(measure(arguments, length));
    if (arguments.json) continue;
    std::printf("%10lld %12.2f %12.3f %12.1f\n", static_cast<long long>(length), row.seconds * 1e3,
                row.seconds * 1e6 / static_cast<double>(length * arguments.batch), row.bytes / 1e6);
    std::fflush(stdout);
  }
  const double time = log_slope(rows, &LengthRow::seconds);
  const double memory = log_slope(rows, &LengthRow::bytes);
  if (arguments.json) {
    print_json(arguments, rows, time, memory);
  } else {
    std::printf("slope of log(cost) over log(length): time %.3f, memory %.3f\n", time, memory);
  }
  LAMINA_CHECK(arguments.max_slope == 0 || std::max(time, memory) <= arguments.max_slope, "bench length: the slope of ",
               time > memory ? "time" : "memory", " is ", std::max(time, memory), ", expected at most ",
               arguments.max_slope);
}

}  // namespace

void add_bench_length(CLI::App& bench) {
  auto arguments = std::make_shared<BenchLengthArguments>();
  CLI::App* command =
      bench.add_subcommand("length", "Time and memory of a step as the sequence grows, and their log-log slopes");
  command->add_option("architecture", arguments->name, "A preset (`lamina presets`), or a file ending in .json")
      ->required();
  command
      ->add_option("--set", arguments->overrides, "Change a value first: path=value; the context is set to the length")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--from", arguments->from, "Shortest sequence; lengths double")
      ->capture_default_str()
      ->check(at_least(1));
  command->add_option("--to", arguments->to, "Longest sequence")->capture_default_str()->check(at_least(2));
  command->add_option("--batch", arguments->batch, "Sequences in a step")->capture_default_str()->check(at_least(1));
  command->add_option("--steps", arguments->steps, "Steps measured; the fastest counts")
      ->capture_default_str()
      ->check(at_least(1));
  command->add_flag("--forward", arguments->forward, "Only forward passes, without gradients");
  command->add_option("--max-slope", arguments->max_slope, "Fail if a slope is larger; 0: never")
      ->capture_default_str()
      ->check(between(0, std::numeric_limits<double>::max()));
  arguments->device.add_to(*command);
  command->add_option("--dtype", arguments->dtype, "Type of weights and activations: f32 or bf16")
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "Print the figures as JSON");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
