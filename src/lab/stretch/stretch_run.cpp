#include <cmath>
#include <filesystem>

#include "lamina/arch/cost.h"
#include "lamina/arch/resolve.h"
#include "lamina/base/files.h"
#include "lamina/base/mapped_file.h"
#include "lamina/base/version.h"
#include "lamina/data/sha256.h"
#include "lamina/lab/stretch/stretch_work.h"
#include "lamina/train/memory.h"

namespace lamina::lab {
namespace {

namespace fs = std::filesystem;
constexpr size_t kStretchHashDigits = 16;

/// Hash of a file's bytes. A folder is identified by its name only, so changes inside it go unnoticed.
std::string data_hash(const std::string& path) {
  if (path.empty() || !file_exists(path)) return path;
  const MappedFile file = map_file(path, "a text or a token file");
  return data::sha256_hex({reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()});
}

}  // namespace

StretchRun plan_stretch_run(const std::string& name, train::Recipe recipe, const std::string& runs) {
  StretchRun run;
  train::Recipe described = recipe;
  described.about.clear();
  described.data.train.clear();
  described.data.validation.clear();
  const std::string text = str(kVersion, "\n", train::write_recipe(described), data_hash(recipe.data.train), "\n",
                               data_hash(recipe.data.validation));
  run.name = name;
  run.folder = (fs::path(runs) / (name + "-" + data::sha256_hex(text).substr(0, kStretchHashDigits))).string();
  arch::ArchSpec spec = recipe.architecture;
  if (spec.vocab_size == 0) spec.vocab_size = 1;
  run.work = arch::flops_per_token(arch::resolve(spec), recipe.length).training() *
             static_cast<double>(recipe.tokens_per_step() * recipe.steps);
  run.recipe = std::move(recipe);
  return run;
}

void start_stretch_run(const StretchRun& run, const Device& device) {
  if (path_exists(fs::path(run.folder) / "recipe.json")) return;
  const auto approve = [&](const train::Recipe& recipe) { train::check_memory(recipe, device); };
  train::start_run(run.folder, run.recipe, {.force = false, .approve = approve, .watch = {}});
}

void make_stretch_run(const StretchRun& run, const Device& device, StretchWork& work) {
  start_stretch_run(run, device);
  train::Trainer trainer(run.folder, device);
  const double each = run.work / static_cast<double>(run.recipe.steps);
  work.found(each * static_cast<double>(trainer.progress().step));
  const train::Outcome outcome = trainer.run(
      {.on_update =
           [&](const train::UpdateReport& report) {
             work.did(each);
             work.say(str("training ", run.name, ", loss ", std::round(report.progress.smoothed_loss * 1000) / 1000));
           },
       .on_evaluation = {},
       .on_save = {},
       .stop = [&] { return work.stopped(); }});
  if (outcome == train::Outcome::stopped) throw StretchStopped{};
}

}  // namespace lamina::lab
