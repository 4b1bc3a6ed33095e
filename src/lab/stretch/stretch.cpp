#include "lamina/lab/stretch/stretch.h"

#include <algorithm>
#include <filesystem>

#include "lamina/base/files.h"
#include "lamina/io/model_file.h"
#include "lamina/lab/stretch/stretch_work.h"

namespace lamina::lab {
namespace {

namespace fs = std::filesystem;

std::vector<int64_t> lengths_of(int64_t trained, int64_t times) {
  std::vector<int64_t> lengths;
  for (int64_t factor = 1; factor <= times; factor *= 2) lengths.push_back(trained * factor);
  return lengths;
}

std::vector<double> depths_of(int64_t count) {
  std::vector<double> depths;
  for (int64_t i = 0; i < count; ++i) depths.push_back(static_cast<double>(i) / static_cast<double>(count - 1));
  return depths;
}

void check_kinds(const std::vector<std::string>& names, std::vector<arch::Problem>& problems) {
  std::vector<std::string> known;
  for (const PositionKind& kind : position_kinds(4)) known.push_back(kind.name);
  for (const ScalingKind& kind : rope_scalings()) known.emplace_back(kind.name);
  std::string all;
  for (const std::string& one : known) all += (all.empty() ? "" : ", ") + one;
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string nearest = nearest_of(name.substr(0, 64), known);
    problems.push_back({"read", "--kinds", str("no position kind \"", name, "\""),
                        nearest.empty() ? "one of " + all : "did you mean " + nearest + "?"});
  }
}

void check_options(const StretchOptions& options) {
  std::vector<arch::Problem> problems;
  const auto need = [&](bool fine, const char* option, const std::string& given, const char* expected) {
    if (!fine) problems.push_back({"range", option, given, expected});
  };
  need(!options.folder.empty(), "--out", "missing", "name a folder for runs and results");
  need(!options.data.empty(), "--data", "missing", "name a text or a token file");
  need(options.data.empty() || path_exists(options.data), "--data", options.data + ": is not there",
       "name a text or a token file");
  need(options.times >= 1 && options.times <= 1024, "--times", str(options.times), "give 1 to 1024");
  need(options.examples >= 1, "--examples", str(options.examples), "give 1 or more");
  need(options.depths >= 2 && options.depths <= 100, "--depths", str(options.depths), "give 2 to 100");
  check_kinds(options.kinds, problems);
  if (!problems.empty()) throw arch::SpecError("stretch", std::move(problems));
}

int64_t trained_length(const StretchOptions& options, const Device& device) {
  if (options.length > 0) return options.length;
  if (!options.model.empty()) return io::read_model(options.model, device).spec.context;
  const train::Recipe recipe = train::load_recipe(options.recipe, options.changes);
  return recipe.length > 0 ? recipe.length : recipe.architecture.context;
}

}  // namespace

std::optional<StretchResult> stretch(const StretchOptions& given, const Device& device, const StretchWatch& watch) {
  check_options(given);
  StretchOptions options = given;
  const int64_t trained = trained_length(options, device);
  const std::vector<int64_t> lengths = lengths_of(trained, options.times);
  options.tokens = std::max<int64_t>(1, (options.tokens > 0 ? options.tokens : 4 * lengths.back()) / lengths.back()) *
                   lengths.back();
  fs::create_directories(fs::path(options.folder) / "measured");
  StretchReading reading{options, trained, lengths, depths_of(options.depths), device};
  StretchResult result{trained, lengths, reading.depths, options.tokens, device.threads().count(), {}};
  StretchWork work(watch);
  try {
    if (options.model.empty()) {
      stretch_kinds(reading, work, watch, result);
    } else {
      stretch_model(reading, work, watch, result);
    }
  } catch (const StretchStopped&) {
    return {};
  }
  return result;
}

}  // namespace lamina::lab
