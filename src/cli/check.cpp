#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "lamina/arch/count.h"
#include "lamina/arch/plan.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/device_option.h"
#include "lamina/infer/golden.h"
#include "lamina/io/hf.h"
#include "lamina/io/model_file.h"

namespace lamina::cli {
namespace {

struct CheckArguments {
  std::string model;
  std::string golden;
  std::string dtype = "f32";
  std::optional<double> tolerance;
  std::optional<double> gradient_tolerance;
  DeviceChoice device;
  bool json = false;
};

nlohmann::ordered_json as_json(const infer::Comparison& row) {
  nlohmann::ordered_json json{{"name", row.name},
                              {"absolute", row.absolute},
                              {"relative", row.relative},
                              {"tolerance", row.tolerance},
                              {"ok", row.ok()}};
  if (!row.error.empty()) json["error"] = row.error;
  return json;
}

void print(const infer::Comparison& row) {
  const char* verdict = row.ok() ? "ok" : "DIFFERS";
  if (!row.error.empty()) {
    std::printf("  %-60s %s: %s\n", row.name.c_str(), verdict, row.error.c_str());
  } else if (row.name == "greedy") {
    std::printf("  %-60s %s, %.0f tokens differ\n", row.name.c_str(), verdict, row.absolute);
  } else {
    std::printf("  %-60s %s, absolute %.2e, relative %.2e of %.0e\n", row.name.c_str(), verdict, row.absolute,
                row.relative, row.tolerance);
  }
}

/// A loaded checkpoint, and its model.
struct Checked {
  Checked(const std::string& path, DType dtype, const Device& device, const io::SafetensorsFile& golden)
      : checkpoint(io::read_model(path, device, {.dtype = dtype, .progress = {}})),
        model(infer::with_global_tokens(checkpoint.spec, golden), Device::meta()) {
    model.adopt_state_dict(checkpoint.tensors);
  }
  NamedTensors named(const nn::StateDict& gradients) const {
    nn::StateDict here;
    for (const auto& [name, gradient] : gradients) here.push_back({name, gradient.to(Device::cpu())});
    return checkpoint.family.empty() ? here : io::hf_parameters(checkpoint.family, checkpoint.spec, here);
  }

  io::Checkpoint checkpoint;
  nn::Model model;
};

infer::GoldenOptions tolerances(const CheckArguments& arguments, DType dtype, const io::SafetensorsFile& golden) {
  infer::GoldenOptions options;
  if (arguments.tolerance) {
    options.logits_tolerance = *arguments.tolerance;
    options.gradient_tolerance = 10 * *arguments.tolerance;
    options.tie = dtype == DType::f32 ? 0 : 2 * *arguments.tolerance;
  } else if (dtype == DType::bf16) {
    Checked moved(arguments.model, DType::f32, Device::cpu(), golden);
    options =
        infer::bf16_tolerances(moved.model, golden, [&](const auto& gradients) { return moved.named(gradients); });
  }
  if (arguments.gradient_tolerance) options.gradient_tolerance = *arguments.gradient_tolerance;
  return options;
}

void check_positive(const char* option, const std::optional<double>& given) {
  LAMINA_CHECK(!given || *given > 0, option, " ", given.value_or(0), ": expected a positive number");
}

void run(const CheckArguments& arguments) {
  check_positive("--tol", arguments.tolerance);
  check_positive("--grad-tol", arguments.gradient_tolerance);
  const std::optional<DType> dtype = dtype_from_name(arguments.dtype);
  LAMINA_CHECK(dtype == DType::f32 || dtype == DType::bf16, "--dtype ", arguments.dtype, ": expected f32 or bf16");
  const Device device = arguments.device.open();
  const std::string golden_path = arguments.golden.empty() ? arguments.model + "/golden.safetensors" : arguments.golden;
  const io::SafetensorsFile golden = io::SafetensorsFile::open(golden_path, Device::cpu(1));
  Checked checked(arguments.model, *dtype, device, golden);
  const std::vector<infer::Comparison> rows = infer::compare_with_golden(
      checked.model, golden, [&](const auto& gradients) { return checked.named(gradients); },
      tolerances(arguments, *dtype, golden));
  const auto failed = std::count_if(rows.begin(), rows.end(), [](const auto& row) { return !row.ok(); });
  if (arguments.json) {
    nlohmann::ordered_json report{{"model", arguments.model}, {"golden", golden_path}, {"ok", failed == 0}};
    for (const infer::Comparison& row : rows) report["rows"].push_back(as_json(row));
    std::printf("%s\n", report.dump(2).c_str());
  } else {
    std::printf("%s: %s parameters against %s\n", arguments.model.c_str(),
                arch::with_commas(arch::count_parameters(checked.checkpoint.spec).total).c_str(), golden_path.c_str());
    for (const infer::Comparison& row : rows) print(row);
  }
  LAMINA_CHECK(failed == 0, arguments.model, ": ", failed, " of ", rows.size(), " comparisons with ", golden_path,
               " are beyond their tolerance");
  if (!arguments.json) std::printf("all %zu agree\n", rows.size());
}

}  // namespace

void add_check(CLI::App& program) {
  auto arguments = std::make_shared<CheckArguments>();
  CLI::App* command = program.add_subcommand(
      "check", "Compare a model with results of another implementation: logits, loss, gradients, greedy tokens");
  command->add_option("model", arguments->model, "A Hugging Face or lamina folder, or a llama2.c .bin file")
      ->required();
  command->add_option("--golden", arguments->golden,
                      "Results to compare with (default: golden.safetensors in the folder)");
  command->add_option("--dtype", arguments->dtype, "Type of weights and activations: f32 or bf16")
      ->capture_default_str();
  command->add_option(
      "--tol", arguments->tolerance,
      "Tolerance of logits and loss, relative to their largest magnitude (default: 1e-4 and equal tokens; "
      "for bf16 twice the effect of rounding the weights, and tokens within it)");
  command->add_option(
      "--grad-tol", arguments->gradient_tolerance,
      "Tolerance of gradients, likewise (default: 10 times --tol; for bf16 also from perturbed weights)");
  arguments->device.add_to(*command);
  command->add_flag("--json", arguments->json, "Print the comparisons as JSON");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
