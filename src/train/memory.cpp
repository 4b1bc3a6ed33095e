#include "lamina/train/memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "lamina/arch/plan.h"
#include "lamina/train/learner.h"
#include "lamina/train/parameter_groups.h"

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

/// What a GPU takes for an evaluation, beside the weights.
double evaluation_memory(const Recipe& recipe) {
  if (recipe.eval_batch == 0) return 0;
  const Device meta = Device::meta(DeviceKind::cuda);
  nn::Model model(recipe.architecture, meta, {.dtype = recipe.dtype == Precision::bf16 ? DType::bf16 : DType::f32});
  const int64_t before = meta.allocator().counters().reserved;
  const Tensor ids = Tensor::empty({recipe.eval_batch, recipe.length}, DType::i64, meta);
  model.loss(ids, ids);
  return static_cast<double>(meta.allocator().counters().reserved - before);
}

}  // namespace

arch::TrainingMemory training_memory(const Recipe& recipe, DeviceKind device) {
  const Device meta = Device::meta(device);
  Recipe updates = recipe;
  // A GPU's recorded update keeps its memory for itself: what evaluations take comes on top of it.
  if (device == DeviceKind::cuda) updates.eval_batch = 0;
  Learner learner(updates, meta);
  double weights = 0;
  for (const auto& [name, tensor] : distinct_parameters(learner.model()))
    weights += static_cast<double>(tensor.nbytes());
  const auto held = static_cast<double>(meta.allocator().counters().live);
  const auto with_gradients = static_cast<double>(learner.rehearse());
  const auto taken = static_cast<double>(meta.allocator().counters().reserved);
  const double evaluations = device == DeviceKind::cuda ? evaluation_memory(recipe) : 0;
  return {weights, with_gradients - held, held - weights, taken - with_gradients + evaluations};
}

double memory_estimate(const Recipe& recipe, DeviceKind device) { return training_memory(recipe, device).total(); }

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
