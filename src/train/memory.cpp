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
  if (!(file >> value)) return {};  // "max", which means no limit
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

/// Remaining memory of a cgroup: its limit minus its use. Tries the files of cgroup v2, then those of v1.
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

double copied_bytes(Learner& learner) {
  if (!learner.recipe().save_in_background) return 0;
  double bytes = 0;
  const auto add = [&](const HeldPieces& pieces) {
    for (const HeldPiece& piece : pieces) bytes += piece.writes ? static_cast<double>(piece.part.nbytes()) : 0;
  };
  learner.with_kept_pieces(add);
  add(learner.training_pieces());
  return bytes;
}

}  // namespace

arch::TrainingMemory training_memory(const Recipe& recipe, DeviceKind device) {
  const auto bytes = [](int64_t count) { return static_cast<double>(count); };
  const Device meta = Device::meta(device);
  Learner learner(recipe, meta);
  double weights = 0;
  for (const NamedTensor& entry : learner.kept_parameters()) weights += bytes(entry.tensor.nbytes());
  const double held = bytes(meta.allocator().counters().live);
  const double with_gradients = bytes(learner.rehearse_update());
  double apart = 0;
  if (device == DeviceKind::cuda) {  // a captured CUDA graph does not share its memory with evaluation
    const Device other = Device::meta(device);
    Learner evaluating(recipe, other);
    const int64_t before = other.allocator().counters().reserved;
    evaluating.rehearse_evaluation();
    apart = bytes(other.allocator().counters().reserved - before);
  } else {
    learner.rehearse_evaluation();
  }
  const double taken = bytes(meta.allocator().counters().reserved) + apart;
  const double saving = device == DeviceKind::cuda ? 0 : copied_bytes(learner);
  return {weights, with_gradients - held, held - weights, taken - with_gradients, saving};
}

double save_copy(const Recipe& recipe) {
  Learner learner(recipe, Device::meta());
  return copied_bytes(learner);
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
  if (!recipe.checkpointing && recipe.layout.recompute == Recompute::none) {
    advice += "\n  --set layout.recompute=selective  cheap activations are computed again, little more work";
  }
  if (!recipe.checkpointing)
    advice += "\n  --set checkpointing=true  most activations are computed again, a third more work";
  if (recipe.save_in_background) {
    advice +=
        "\n  --set save_in_background=false  no copy of the state for checkpoints; training waits while one is written";
  }
  if (recipe.dtype == Precision::f32) advice += "\n  --set dtype=bf16  half of weights' and activations' memory";
  advice += "\n  a shorter length, or a smaller architecture (`lamina plan`)";
  throw Error(str("this run needs about ", arch::short_bytes(needed), ", ", arch::short_bytes(*available),
                  " are free. What would help:", advice, "\n  --ignore-memory starts it anyway"));
}

void check_memory(const Recipe& recipe, const Device& device) {
  check_memory(recipe, available_memory(device), device.kind());
  if (device.kind() != DeviceKind::cuda) return;
  const std::optional<double> host = available_memory();
  const double copy = save_copy(recipe);
  LAMINA_CHECK(!host || copy <= *host, "saving needs a copy of the training state of ", arch::short_bytes(copy),
               " in host memory, ", arch::short_bytes(host.value_or(0)),
               " are free; --set save_in_background=false saves without one, --ignore-memory starts anyway");
}

}  // namespace lamina::train
