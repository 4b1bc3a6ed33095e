#include "lamina/train/memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "lamina/arch/cost.h"
#include "lamina/arch/count.h"
#include "lamina/arch/layers.h"
#include "lamina/arch/plan.h"
#include "lamina/ops/loss/cross_entropy.h"
#include "lamina/ops/ssm/ssd_scan.h"

namespace lamina::train {
namespace {

std::optional<double> first_number(const std::string& path) {
  std::ifstream file(path);
  double value = 0;
  if (!(file >> value)) return {};  // "max" is no number: no limit
  return value;
}

std::optional<double> system_memory(const std::string& proc) {
  std::ifstream file(proc + "/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    double kilobytes = 0;
    if (words >> key >> kilobytes && key == "MemAvailable:") return kilobytes * 1024;
  }
  return {};
}

/// Limit minus use of one control group; the files of version 2, or those of version 1.
std::optional<double> group_memory(const std::string& folder) {
  for (const auto& [limit_file, use_file] :
       {std::pair("memory.max", "memory.current"),
        std::pair("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")}) {
    const std::optional<double> limit = first_number(folder + "/" + limit_file);
    const std::optional<double> use = first_number(folder + "/" + use_file);
    if (limit && use) return std::max(0.0, *limit - *use);
  }
  return {};
}

double activations(const Recipe& recipe, int bytes_per_number) {
  const arch::ArchSpec& spec = recipe.architecture;
  const double all = arch::training_memory(spec, recipe.batch, recipe.length, bytes_per_number).activations;
  if (!recipe.checkpointing) return all;
  const auto layers = static_cast<double>(std::max<size_t>(1, arch::layer_blocks(spec).size()));
  // Every layer's input, and everything inside the one that is computed again.
  const double inputs = static_cast<double>(recipe.batch * recipe.length * spec.d_model) * bytes_per_number * layers;
  return std::min(all, inputs + all / layers);
}

/// What a GPU holds of the logits, which become their gradients in place; the CPU's chunk is small beside it.
double gpu_logits(const Recipe& recipe, int bytes_per_number) {
  const int64_t rows = std::min(recipe.batch * recipe.length, ops::kLossRowsOnGpu);
  return static_cast<double>(rows * recipe.architecture.vocab_size) * bytes_per_number;
}

/// The states before every chunk of Mamba-2's scans, in f32, which backward begins from.
double scan_states(const Recipe& recipe, DeviceKind device) {
  double most = 0;
  double all = 0;
  for (const arch::Block* block : arch::layer_blocks(recipe.architecture)) {
    const auto* mixer = std::get_if<arch::Mamba2>(&block->mixer);
    if (mixer == nullptr) continue;
    const int64_t chunk = ops::ssd_chunk(mixer->chunk, device);
    const int64_t states = recipe.batch * ((recipe.length + chunk - 1) / chunk);
    const double bytes = 4.0 * static_cast<double>(states * *mixer->d_inner * mixer->state);
    most = std::max(most, bytes);
    all += bytes;
  }
  return recipe.checkpointing ? most : all;
}

}  // namespace

double memory_estimate(const Recipe& recipe, DeviceKind device) {
  const int bytes_per_number = recipe.dtype == Precision::bf16 ? 2 : 4;
  arch::TrainingMemory memory =
      arch::training_memory(recipe.architecture, recipe.batch, recipe.length, bytes_per_number);
  memory.activations = activations(recipe, bytes_per_number) + scan_states(recipe, device);
  // The average, and the weights it stands in for during an evaluation.
  const auto parameters = static_cast<double>(arch::count_parameters(recipe.architecture).total);
  const double average = recipe.ema > 0 ? parameters * (4 + bytes_per_number) : 0;
  return memory.total() + average + (device == DeviceKind::cuda ? gpu_logits(recipe, bytes_per_number) : 0);
}

std::optional<double> available_memory(const std::string& proc, const std::string& cgroup) {
  const std::optional<double> system = system_memory(proc);
  const std::optional<double> group = group_memory(cgroup);
  if (system && group) return std::min(*system, *group);
  return system ? system : group;
}

std::optional<double> available_memory(const Device& device) {
  if (const std::optional<int64_t> own = device.free_memory()) return static_cast<double>(*own);
  return available_memory();
}

void check_memory(const Recipe& recipe, std::optional<double> available, DeviceKind device) {
  const double needed = memory_estimate(recipe, device);
  if (!available || needed <= *available) return;
  std::string advice;
  if (recipe.batch > 1) {
    advice += str("\n  --set batch=", recipe.batch / 2, " --set accumulation=", recipe.accumulation * 2,
                  "  half the activations, the same updates");
  }
  if (!recipe.checkpointing)
    advice += "\n  --set checkpointing=true  most activations are computed again, a third more work";
  if (recipe.dtype == Precision::f32) advice += "\n  --set dtype=bf16  half of weights' and activations' memory";
  advice += "\n  a shorter length, or a smaller architecture (`lamina plan`)";
  throw Error(str("this run needs about ", arch::short_bytes(needed), ", ", arch::short_bytes(*available),
                  " are free. What would help:", advice, "\n  --ignore-memory starts it all the same"));
}

void check_memory(const Recipe& recipe, const Device& device) {
  check_memory(recipe, available_memory(device), device.kind());
}

}  // namespace lamina::train
