#include "lamina/train/run_folder.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "lamina/base/files.h"
#include "lamina/base/json.h"
#include "lamina/io/checkpoint.h"

namespace lamina::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kRecipe = "recipe.json";
constexpr const char* kState = "state.json";
constexpr const char* kTensors = "training.safetensors";

std::string write_progress(const Progress& progress) {
  Json json{{"step", progress.step}, {"loss", progress.loss}, {"smoothed_loss", progress.smoothed_loss}};
  if (progress.validation_loss) json["validation_loss"] = *progress.validation_loss;
  if (progress.best_loss) json["best_loss"] = *progress.best_loss;
  json["best_step"] = progress.best_step;
  for (const auto& [key, value] : accuracies(progress)) json[key] = value;
  json["evaluated_step"] = progress.evaluated_step;
  json["seconds"] = progress.seconds;
  return json.dump(2) + "\n";
}

Progress read_progress(const std::string& path) {
  const Json json = read_json_file<Json>(path);
  const auto number = [&](const char* key) -> std::optional<double> {
    if (!json.is_object() || !json.contains(key) || !json[key].is_number()) return {};
    return json[key].get<double>();
  };
  const std::optional<double> step = number("step");
  LAMINA_CHECK(step && *step >= 0 && *step < 9e15, path,
               ": is damaged: it does not say the step; go on from another checkpoint (from)");
  const auto accuracy = [&](const std::string& key) -> std::optional<Accuracy> {
    const std::optional<double> tokens = number(key.c_str());
    const std::optional<double> examples = number((key + "_exact").c_str());
    return tokens && examples ? std::optional<Accuracy>({*tokens, *examples}) : std::nullopt;
  };
  return {.step = static_cast<int64_t>(*step),
          .smoothed_loss = number("smoothed_loss").value_or(0),
          .loss = number("loss").value_or(0),
          .validation_loss = number("validation_loss"),
          .best_loss = number("best_loss"),
          .best_step = static_cast<int64_t>(number("best_step").value_or(0)),
          .accuracy = accuracy("accuracy"),
          .longer_loss = number("loss_long"),
          .longer_accuracy = accuracy("accuracy_long"),
          .evaluated_step = static_cast<int64_t>(number("evaluated_step").value_or(0)),
          .seconds = number("seconds").value_or(0)};
}

io::Checkpoint checkpoint_of(const arch::ArchSpec& spec, const nn::StateDict& weights) {
  std::set<std::string> known;
  for (const io::WeightSlot& slot : io::weight_slots(spec)) known.insert(slot.name);
  io::Checkpoint checkpoint{.spec = spec, .tensors = {}, .family = {}, .tokens = {}};
  for (const auto& [name, tensor] : weights) {
    if (known.erase(name) > 0) checkpoint.tensors.push_back({name, tensor.detach()});  // tied heads are stored once
  }
  return checkpoint;
}

bool is_run(const fs::path& folder) { return file_exists(folder / kRecipe); }

}  // namespace

Scalars accuracies(const Progress& progress) {
  Scalars scalars;
  const auto add = [&](const std::string& key, const std::optional<Accuracy>& accuracy) {
    if (!accuracy) return;
    scalars.emplace_back(key, accuracy->tokens);
    scalars.emplace_back(key + "_exact", accuracy->examples);
  };
  add("accuracy", progress.accuracy);
  if (progress.longer_loss) scalars.emplace_back("loss_long", *progress.longer_loss);
  add("accuracy_long", progress.longer_accuracy);
  return scalars;
}

RunFolder::RunFolder(const std::string& path, RunLock lock) : path_(path), lock_(std::move(lock)) {
  LAMINA_CHECK(is_run(path), path, ": is not the folder of a run: it has no ", kRecipe,
               "; `lamina train RECIPE` starts one");
  if (!lock_.held()) lock_ = RunLock(path);
  for (const char* name : {"last", "best", "log.jsonl"}) clear_leftovers(file(name));
}

RunFolder RunFolder::reader(const std::string& path) {
  LAMINA_CHECK(is_run(path), path, ": is not the folder of a run: it has no ", kRecipe,
               "; all processes must see the same files, use a shared file system");
  RunFolder folder;
  folder.path_ = path;
  return folder;
}

std::string RunFolder::file(const std::string& name) const { return (fs::path(path_) / name).string(); }

Recipe RunFolder::recipe() const {
  const std::string name = file(kRecipe);
  return resolve_recipe(read_run_recipe(read_text(name), name), 0, name);
}

std::optional<Progress> RunFolder::load_last(Learner& learner) const {
  const fs::path last = file("last");
  if (!path_exists(last)) return {};
  const Device host = Device::cpu();
  const io::Checkpoint model = io::read_native(last.string(), host);
  const io::SafetensorsFile tensors = io::SafetensorsFile::open((last / kTensors).string(), host);
  learner.load(model.tensors, tensors.tensors());
  return read_progress((last / kState).string());
}

void RunFolder::save(const std::string& name, Learner& learner, const Progress& progress, const NamedTensors& state) {
  NewFolder folder(file(name), /*replace=*/true);
  learner.with_kept_weights([&](const nn::StateDict& weights) {
    io::write_native_files(folder.path(""), checkpoint_of(learner.recipe().architecture, weights));
  });
  if (!state.empty()) io::write_safetensors(folder.path(kTensors), state);
  for (const char* tokenizer : {"tokenizer.json", "tokenizer_config.json"}) {
    if (path_exists(file(tokenizer))) write_text(folder.path(tokenizer), read_text(file(tokenizer)));
  }
  write_text(folder.path(kState), write_progress(progress));
  folder.publish();
}

std::string newest_run(const std::string& folder) {
  if (is_run(folder)) return folder;
  std::error_code error;
  std::string newest;
  fs::file_time_type time;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const bool hidden = entry.path().filename().string().starts_with(".");  // a run that is being replaced
    if (hidden || !entry.is_directory(error) || !is_run(entry.path())) continue;
    const fs::path state = entry.path() / "last" / kState;
    const fs::file_time_type written = fs::last_write_time(path_exists(state) ? state : entry.path() / kRecipe, error);
    if (!newest.empty() && written <= time) continue;
    newest = entry.path().string();
    time = written;
  }
  LAMINA_CHECK(!newest.empty(), folder, ": holds no run; `lamina train RECIPE` starts one");
  return newest;
}

}  // namespace lamina::train
