#include "lamina/lab/study/study.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lamina/arch/edit.h"
#include "lamina/arch/json.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/value_json.h"
#include "lamina/arch/value_read.h"
#include "lamina/arch/value_schema.h"
#include "lamina/base/files.h"
#include "lamina/lab/study/switches.h"

namespace lamina::lab {
namespace {

using arch::Json;
using arch::Problem;

constexpr const char* kBase = "base";
constexpr const char* kSynthetic = "synthetic";
constexpr int64_t kSteps = 500;

int64_t warmup_of(int64_t steps) { return std::min<int64_t>(100, steps / 10); }

const arch::SchemaNode& recipe_schema() {
  static const arch::SchemaNode node = arch::describe<train::Recipe>();
  return node;
}

/// Accepts a preset name, a file name, or an inline architecture in full or short form.
arch::ArchSpec architecture_of(const Json& source, const std::string& path) {
  if (source.is_string()) return arch::load_arch(source.get<std::string>());
  LAMINA_CHECK(source.is_object(), path, ": ", source.is_null() ? "missing" : "given " + arch::detail::shown(source),
               "; expected a preset (`lamina presets`), a file, or an architecture {...}");
  return arch::read_arch(source.dump(), path);
}

/// The name of a source: "some/llama-10m.json" becomes "llama-10m".
std::string name_of_source(const Json& source) {
  if (!source.is_string()) return "";
  return std::filesystem::path(source.get<std::string>()).stem().string();
}

/// Expands the short forms of a study file: names become objects, and a number of seeds becomes a list.
class Unfolding {
 public:
  Unfolding(Json json, std::vector<Problem>& problems) : json_(std::move(json)), problems_(problems) {}

  Study study() {
    guard("seeds", [&] { unfold_seeds(); });
    unfold_recipe();
    const std::string mode = json_.value("mode", Json("versus")).dump();
    by_name_ = mode == "\"versus\"";
    guard(kBase, [&] { take_base(); });
    guard("variants", [&] { unfold_variants(); });
    guard("search.space", [&] { unfold_space(); });
    Study study;
    arch::ValueReader(problems_).read(json_, study, "");
    finish(study);
    return study;
  }

 private:
  template <class F>
  void guard(const char* path, const F& body) {
    try {
      body();
    } catch (const Error& error) {
      problems_.push_back({"read", path, error.what(), ""});
    }
  }

  void unfold_seeds() {
    if (!json_.contains("seeds") || !json_["seeds"].is_number_integer()) return;
    const auto count = json_["seeds"].get<int64_t>();
    LAMINA_CHECK(count >= 1 && count <= 1000, "given ", count, "; expected 1 to 1000 seeds, or a list of them");
    Json list = Json::array();
    for (int64_t seed = 1; seed <= count; ++seed) list.push_back(seed);
    json_["seeds"] = list;
  }

  /// Sets study defaults that differ from recipe defaults: logging every update, to find loss spikes, and ten
  /// evaluations.
  void unfold_recipe() {
    if (!json_.contains("recipe")) json_["recipe"] = Json::object();
    Json& recipe = json_["recipe"];
    if (!recipe.is_object()) return;
    for (const auto& [key, instead] :
         {std::pair("seed", "seeds"), std::pair("architecture", "base and variants"), std::pair("from", "base")}) {
      if (!recipe.contains(key)) continue;
      problems_.push_back({"read", std::string("recipe.") + key, "a study sets it, not its recipe",
                           std::string("set the study's ") + instead});
      recipe.erase(key);
    }
    const auto fill = [&](const char* key, const Json& value) {
      if (!recipe.contains(key)) recipe[key] = value;
    };
    fill("steps", kSteps);
    const int64_t steps = recipe["steps"].is_number_integer() ? recipe["steps"].get<int64_t>() : kSteps;
    fill("log_every", 1);
    fill("eval_every", std::max<int64_t>(steps / 10, 1));
    fill("save_every", std::max<int64_t>(steps / 4, 1));
    fill("schedule", {{"kind", "cosine"}, {"warmup", warmup_of(steps)}});
    if (!recipe.contains("data")) recipe["data"] = Json::object();
    Json& data = recipe["data"];
    if (data.is_object() && !data.contains("train") && !data.contains("task")) data["train"] = kSynthetic;
  }

  void take_base() {
    if (!json_.contains(kBase) && by_name_ && json_.contains("variants") && json_["variants"].is_array() &&
        !json_["variants"].empty()) {
      promote_first_variant();
    }
    const Json source = json_.contains(kBase) ? json_[kBase] : Json();
    json_.erase(kBase);
    base_ = architecture_of(source, kBase);
    if (!json_.contains("base_name") && source.is_string()) json_["base_name"] = name_of_source(source);
  }

  /// The first variant of a `versus` study without a base becomes the base.
  void promote_first_variant() {
    const Json first = json_["variants"][0];
    json_["variants"].erase(0);
    if (first.is_string()) {
      json_[kBase] = first;
      return;
    }
    LAMINA_CHECK(first.is_object() && first.contains(kBase),
                 "missing; set the study's base, or the first variant's own base");
    LAMINA_CHECK(!first.contains("set") && !first.contains("recipe"),
                 "the first variant is used as the base, which cannot have set or recipe; set the study's base");
    json_[kBase] = first[kBase];
    for (const auto& [from, to] : {std::pair("name", "base_name"), std::pair("label", "base_label")}) {
      if (first.contains(from)) json_[to] = first[from];
    }
  }

  void unfold_variants() {
    const Json given = json_.contains("variants") ? json_["variants"] : Json::array();
    if (!given.is_array()) return;
    Json objects = Json::array();
    for (size_t i = 0; i < given.size(); ++i) {
      guard_variant(str("variants[", i, "]"), given[i], objects);
    }
    json_["variants"] = objects;
  }

  void guard_variant(const std::string& path, Json given, Json& objects) {
    try {
      if (given.is_string()) return add_named(given.get<std::string>(), objects);
      std::optional<arch::ArchSpec> own;
      if (given.is_object() && given.contains(kBase)) {
        own = architecture_of(given[kBase], path + ".base");
        if (!given.contains("name")) given["name"] = name_of_source(given[kBase]);
        given.erase(kBase);
      }
      objects.push_back(given);
      own_.push_back(std::move(own));
    } catch (const Error& error) {
      problems_.push_back({"read", path, error.what(), ""});
    }
  }

  void add_named(const std::string& name, Json& objects) {
    if (by_name_) {
      own_.emplace_back(arch::load_arch(name));
      objects.push_back({{"name", name_of_source(name)}});
      return;
    }
    for (const Variant& variant : switch_variants(name, base_)) {
      own_.emplace_back();
      objects.push_back(arch::value_to_json(variant, arch::Defaults::omit));
    }
  }

  void unfold_space() {
    if (!json_.contains("search") || !json_["search"].is_object() || !json_["search"].contains("space")) return;
    Json& space = json_["search"]["space"];
    if (!space.is_array()) return;
    for (Json& axis : space) {
      if (!axis.is_string()) continue;
      const auto name = axis.get<std::string>();
      Axis unfolded{.name = name, .choices = switch_variants(name, base_)};
      axis = arch::value_to_json(unfolded, arch::Defaults::omit);
    }
  }

  void finish(Study& study) {
    study.base = base_;
    for (size_t i = 0; i < std::min(study.variants.size(), own_.size()); ++i) study.variants[i].architecture = own_[i];
    if (study.variants.empty() && study.mode == Mode::ablate) study.variants = all_switch_variants(base_);
    if (study.variants.empty() && study.mode == Mode::ladder && problems_.empty()) study.variants = ladder_steps(base_);
    if (study.mode == Mode::stretch) {
      if (!study.stretch) study.stretch.emplace();
      study.keep_weights = true;  // they are measured after training
    }
    if (study.base_name.empty()) study.base_name = kBase;
    if (study.base_label.empty()) study.base_label = study.base_name;
    const auto fill = [](Variant& variant, size_t number) {
      if (variant.name.empty()) variant.name = variant.set.size() == 1 ? variant.set[0] : str("variant-", number + 1);
      if (variant.label.empty()) variant.label = variant.name;
    };
    for (size_t i = 0; i < study.variants.size(); ++i) fill(study.variants[i], i);
    for (Axis& axis : study.search.space) {
      for (size_t i = 0; i < axis.choices.size(); ++i) fill(axis.choices[i], i);
    }
    if (study.sweep_steps == 0) study.sweep_steps = std::max<int64_t>(study.recipe.steps / 5, 1);
  }

  Json json_;
  std::vector<Problem>& problems_;
  arch::ArchSpec base_;
  std::vector<std::optional<arch::ArchSpec>> own_;
  bool by_name_ = true;  ///< variants given as strings are architectures
};

/// Applies changes on top of the defaults. `steps` comes first, because other defaults depend on it.
void change_recipe(Json& json, std::vector<std::string> changes, std::vector<Problem>& problems) {
  if (changes.empty()) return;
  if (!json.contains("recipe") || !json["recipe"].is_object()) json["recipe"] = Json::object();
  Json& recipe = json["recipe"];
  std::stable_partition(changes.begin(), changes.end(), [](const std::string& c) { return c.starts_with("steps="); });
  const Json initial = arch::value_to_json(train::Recipe{}, arch::Defaults::write);
  for (const std::string& change : changes) {
    try {
      const auto [path, value] = arch::parse_assignment(change);
      const std::string key = path.substr(0, path.find('.'));
      if (!recipe.contains(key) && initial.contains(key) && key != path) {
        recipe[key] = initial[key];
        if (key == "data") recipe[key].erase("train");
        const bool known = recipe.contains("steps") && recipe["steps"].is_number_integer();
        if (key == "schedule") recipe[key]["warmup"] = warmup_of(known ? recipe["steps"].get<int64_t>() : kSteps);
      }
      arch::set_value(recipe, path, value, recipe_schema(), "a recipe");
    } catch (const Error& error) {
      problems.push_back({"read", "", error.what(), ""});
    }
  }
}

/// The changes of set_length(). None if the recipe has this length.
std::vector<std::string> length_changes(train::Recipe recipe, int64_t steps) {
  if (steps == recipe.steps) return {};
  set_length(recipe, steps);
  const int64_t warmup = std::visit([](const auto& schedule) { return schedule.warmup; }, recipe.schedule);
  return {str("steps=", steps), str("eval_every=", recipe.eval_every), str("save_every=", recipe.save_every),
          str("schedule.warmup=", warmup)};
}

bool is_path(const std::string& name) { return name.ends_with(".json") || name.find('/') != std::string::npos; }

/// Path of study.json if `name` is a study's folder.
std::string file_of(const std::string& name) {
  const std::filesystem::path inside = std::filesystem::path(name) / "study.json";
  return file_exists(inside) ? inside.string() : name;
}

}  // namespace

Study read_study(std::string_view text, const std::string& name, const std::vector<std::string>& recipe_changes) {
  Json json = parse_json<Json>(text, name);
  // A results file contains its study under this key.
  if (json.is_object() && json.contains("description")) json = Json(json["description"]);
  LAMINA_CHECK(json.is_object(), name,
               ": expected an object {...} with the keys of a study (docs/reference/study-file.md)");
  std::vector<Problem> problems;
  change_recipe(json, recipe_changes, problems);
  Study study = Unfolding(std::move(json), problems).study();
  if (study.name.empty()) study.name = std::filesystem::path(name).stem().string();
  check_study(study, problems);
  if (!problems.empty()) throw arch::SpecError(name, std::move(problems));
  return study;
}

Study load_study(const std::string& name_or_file, const std::vector<std::string>& recipe_changes) {
  const std::string file = file_of(name_or_file);
  if (is_path(file)) return read_study(read_text(file), file, recipe_changes);
  std::vector<std::string> known;
  for (const StudyFile& shipped : study_files()) {
    if (shipped.name == file) return read_study(shipped.text, file, recipe_changes);
    known.emplace_back(shipped.name);
  }
  const std::string nearest = nearest_of(file.substr(0, 64), known);
  throw Error(str("no study \"", file, "\"; ",
                  nearest.empty() ? "`lamina compare --list` lists all; the name of a file ends in .json"
                                  : "did you mean " + nearest + "?"));
}

bool names_study(const std::string& argument) {
  const std::string file = file_of(argument);
  if (!is_path(file)) {
    const auto shipped = study_files();
    return std::any_of(shipped.begin(), shipped.end(), [&](const StudyFile& s) { return s.name == argument; });
  }
  if (!file_exists(file)) return false;
  const Json json = try_parse_json<Json>(read_text(file)).value_or(Json());
  return json.is_object() && (json.contains("mode") || json.contains("variants") || json.contains("description"));
}

std::string write_study(const Study& study) {
  Json json = {{"schema", study.schema}};
  json.update(arch::value_to_json(study, arch::Defaults::write));
  json[kBase] = arch::spec_to_json(study.base, arch::Defaults::write);
  for (size_t i = 0; i < study.variants.size(); ++i) {
    const std::optional<arch::ArchSpec>& own = study.variants[i].architecture;
    if (own) json["variants"][i][kBase] = arch::spec_to_json(*own, arch::Defaults::write);
  }
  for (const char* key : {"seed", "from"}) json["recipe"].erase(key);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<Variant> variants_of(const Study& study) {
  std::vector<Variant> all{
      {.name = study.base_name, .label = study.base_label, .set = {}, .recipe = {}, .architecture = {}}};
  for (const Variant& given : study.variants) {
    Variant variant = given;
    if (study.mode == Mode::ladder) {
      variant.set = all.back().set;
      variant.set.insert(variant.set.end(), given.set.begin(), given.set.end());
      variant.recipe = all.back().recipe;
      variant.recipe.insert(variant.recipe.end(), given.recipe.begin(), given.recipe.end());
    }
    all.push_back(std::move(variant));
  }
  const bool budgeted = study.budget && study.budget->steps.size() == all.size();
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].architecture) all[i].architecture = study.base;
    if (!budgeted) continue;
    const std::vector<std::string> changes = length_changes(study.recipe, study.budget->steps[i]);
    all[i].recipe.insert(all[i].recipe.begin(), changes.begin(), changes.end());
  }
  return all;
}

void set_length(train::Recipe& recipe, int64_t steps) {
  const double share = static_cast<double>(steps) / static_cast<double>(std::max<int64_t>(recipe.steps, 1));
  const auto scale = [&](int64_t& value) {
    if (value > 0) value = std::max<int64_t>(1, std::llround(static_cast<double>(value) * share));
  };
  recipe.steps = steps;
  scale(recipe.eval_every);
  scale(recipe.save_every);
  std::visit([&](auto& schedule) { scale(schedule.warmup); }, recipe.schedule);
}

std::vector<ScalingGroup> scaling_groups(const Study& study) {
  if (!study.scaling) return {};
  if (!study.scaling->groups.empty()) return study.scaling->groups;
  ScalingGroup all{study.name, {study.base_name}};
  for (const Variant& variant : study.variants) all.variants.push_back(variant.name);
  return {all};
}

std::vector<std::vector<std::string>> tuning_changes(const Tuning& tuning) {
  std::vector<std::vector<std::string>> all = {{}};
  const auto cross = [&all](const char* path, const auto& values) {
    if (values.empty()) return;
    std::vector<std::vector<std::string>> crossed;
    for (const std::vector<std::string>& changes : all) {
      for (const auto value : values) {
        crossed.push_back(changes);
        crossed.back().push_back(str(path, "=", value));
      }
    }
    all = std::move(crossed);
  };
  cross("optimizer.lr", tuning.learning_rates);
  cross("optimizer.weight_decay", tuning.weight_decays);
  cross("schedule.warmup", tuning.warmups);
  if (all.size() == 1 && all[0].empty()) return {};
  return all;
}

size_t run_count(const Study& study) {
  if (study.mode == Mode::stretch && !study.stretch->model.empty()) return 0;
  if (study.mode != Mode::search) {
    const size_t passkeys = study.mode == Mode::stretch && study.stretch->passkey ? 1 : 0;
    const size_t tuned = tuning_changes(study.tuning).size() * study.tuning.seeds.size();
    return (study.variants.size() + 1) * (study.seeds.size() + study.learning_rates.size() + passkeys + tuned);
  }
  double candidates = static_cast<double>(study.search.candidates);
  double runs = 0;
  for (int64_t rung = 0; rung + 1 < study.search.rungs; ++rung) {
    runs += candidates;
    candidates = std::max(1.0, std::ceil(candidates * study.search.keep));
  }
  return static_cast<size_t>(runs + (candidates + 1) * static_cast<double>(study.seeds.size()));
}

std::string study_markdown() {
  arch::SchemaNode whole = arch::describe<Study>();
  // docs/reference/recipe-file.md documents the recipe's keys.
  std::erase_if(whole.options[0].fields, [](const arch::SchemaField& field) { return field.key == "recipe"; });
  return arch::fields_markdown(whole);
}

}  // namespace lamina::lab
