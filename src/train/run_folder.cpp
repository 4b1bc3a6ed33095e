#include "lamina/train/run_folder.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lamina/base/files.h"
#include "lamina/base/json.h"

namespace lamina::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kRecipe = "recipe.json";
constexpr const char* kState = "state.json";

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
               ": is damaged: it has no step; continue from another checkpoint (from)");
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

std::optional<Progress> RunFolder::load_last(Learner& learner, const io::ChecksumShare& checksums) const {
  const std::string last = file("last");
  if (!path_exists(last)) return {};
  const Device host = Device::cpu();
  if (io::is_sharded(last)) {
    const io::Manifest manifest = io::read_manifest(last);
    learner.load(io::PieceSet::open(last, manifest, io::kModelGroup, host, checksums),
                 io::PieceSet::open(last, manifest, io::kTrainingGroup, host, checksums));
  } else {
    learner.load(io::PieceSet::open_file(last + "/model.safetensors", host),
                 io::PieceSet::open_file(last + "/" + kTrainingFile, host));
  }
  return read_progress(last + "/" + kState);
}

void RunFolder::write_companions(const std::string& checkpoint, const Progress& progress) const {
  const fs::path folder(checkpoint);
  for (const char* tokenizer : {"tokenizer.json", "tokenizer_config.json"}) {
    if (path_exists(file(tokenizer))) write_text((folder / tokenizer).string(), read_text(file(tokenizer)));
  }
  write_text((folder / kState).string(), write_progress(progress));
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
