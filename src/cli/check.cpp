#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

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
  double tolerance = 1e-4;
  double gradient_tolerance = 0;
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

void run(const CheckArguments& arguments) {
  LAMINA_CHECK(arguments.tolerance > 0 && arguments.gradient_tolerance >= 0,
               "--tol and --grad-tol want positive numbers");
  const Device device = arguments.device.open();
  const std::string golden_path = arguments.golden.empty() ? arguments.model + "/golden.safetensors" : arguments.golden;
  const io::SafetensorsFile golden = io::SafetensorsFile::open(golden_path, Device::cpu(1));
  const io::Checkpoint checkpoint = io::read_model(arguments.model, device, {.dtype = DType::f32, .progress = {}});
  nn::Model model(checkpoint.spec, Device::meta());
  model.adopt_state_dict(checkpoint.tensors);
  const auto name_gradients = [&](const nn::StateDict& gradients) {
    nn::StateDict here;
    for (const auto& [name, gradient] : gradients) here.emplace_back(name, gradient.to(Device::cpu()));
    return checkpoint.family.empty() ? here : io::hf_parameters(checkpoint.family, checkpoint.spec, here);
  };
  const double gradient_tolerance =
      arguments.gradient_tolerance > 0 ? arguments.gradient_tolerance : 10 * arguments.tolerance;
  const std::vector<infer::Comparison> rows =
      infer::compare_with_golden(model, golden, name_gradients, {arguments.tolerance, gradient_tolerance});
  const auto failed = std::count_if(rows.begin(), rows.end(), [](const auto& row) { return !row.ok(); });
  if (arguments.json) {
    nlohmann::ordered_json report{{"model", arguments.model}, {"golden", golden_path}, {"ok", failed == 0}};
    for (const infer::Comparison& row : rows) report["rows"].push_back(as_json(row));
    std::printf("%s\n", report.dump(2).c_str());
  } else {
    std::printf("%s: %s parameters against %s\n", arguments.model.c_str(),
                arch::with_commas(arch::count_parameters(checkpoint.spec).total).c_str(), golden_path.c_str());
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
      "check", "Hold a model against what another implementation computed: logits, loss, gradients, greedy tokens");
  command->add_option("model", arguments->model, "A Hugging Face or lamina folder, or a llama2.c .bin file")
      ->required();
  command->add_option("--golden", arguments->golden, "The other's results (default: golden.safetensors in the folder)");
  command
      ->add_option("--tol", arguments->tolerance,
                   "Largest difference of logits and loss, over their largest magnitude; tokens must be equal")
      ->capture_default_str();
  command->add_option("--grad-tol", arguments->gradient_tolerance, "The same for gradients (default: 10 times --tol)");
  arguments->device.add_to(*command);
  command->add_flag("--json", arguments->json, "Print the comparisons as JSON");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
