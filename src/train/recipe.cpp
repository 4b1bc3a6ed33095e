#include "lamina/train/recipe.h"

#include <nlohmann/json.hpp>

#include "lamina/arch/edit.h"
#include "lamina/arch/json.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/value_read.h"
#include "lamina/arch/value_schema.h"
#include "lamina/base/files.h"
#include "lamina/base/suggest.h"
#include "lamina/io/model_file.h"

namespace lamina::train {
namespace {

using arch::Json;
using arch::Problem;

constexpr const char* kArchitecture = "architecture";

const arch::SchemaNode& recipe_schema() {
  static const arch::SchemaNode whole = arch::describe<Recipe>();
  return whole;
}

bool is_path(const std::string& name) { return name.ends_with(".json") || name.find('/') != std::string::npos; }

/// Assignments, by what they change: the recipe's own keys, keys under `architecture.`, or the whole `architecture`.
struct Assignments {
  std::vector<std::pair<std::string, Json>> own;
  std::vector<std::string> below_architecture;
  std::optional<Json> architecture;
};

Assignments sort_out(const std::vector<std::string>& assignments, std::vector<Problem>& problems) {
  Assignments sorted;
  const std::string below = std::string(kArchitecture) + ".";
  for (const std::string& assignment : assignments) {
    try {
      auto [path, value] = arch::parse_assignment(assignment);
      if (path == kArchitecture) {
        sorted.architecture = std::move(value);
      } else if (path.starts_with(below)) {
        sorted.below_architecture.push_back(assignment.substr(below.size()));
      } else {
        sorted.own.emplace_back(std::move(path), std::move(value));
      }
    } catch (const Error& error) {
      problems.push_back({"read", "", error.what(), ""});
    }
  }
  return sorted;
}

/// Reads the keys of the recipe itself, and applies `changes`.
Recipe read_own(const Json& json, const std::vector<std::pair<std::string, Json>>& changes,
                std::vector<Problem>& problems) {
  Recipe given;
  arch::ValueReader(problems).read(json, given, "");
  if (changes.empty()) return given;
  Json full = arch::value_to_json(given, arch::Defaults::write);
  for (const auto& [path, value] : changes) {
    try {
      arch::set_value(full, path, value, recipe_schema(), "a recipe");
    } catch (const Error& error) {
      problems.push_back({"read", "", error.what(), ""});
    }
  }
  Recipe changed;
  arch::ValueReader(problems).read(full, changed, "");
  return changed;
}

/// The architecture that the recipe names or contains.
arch::ArchSpec own_architecture(const Json& source) {
  if (source.is_string()) return arch::load_arch(source.get<std::string>());
  LAMINA_CHECK(source.is_object(), source.is_null() ? "missing" : "given " + source.dump(),
               "; expected a preset's name (`lamina presets`), a file's, or an architecture {...}; or a model to train "
               "further (lamina train --from MODEL)");
  return arch::read_arch(source.dump(), kArchitecture);
}

Recipe read(std::string_view text, const std::string& name, const std::vector<std::string>& assignments, bool of_run) {
  Json json = parse_json<Json>(text, name);
  LAMINA_CHECK(json.is_object(), name, ": expected an object {...} with the keys of a recipe");
  std::vector<Problem> problems;
  const Assignments changes = sort_out(assignments, problems);
  Json source = changes.architecture.value_or(json.contains(kArchitecture) ? json[kArchitecture] : Json());
  json.erase(kArchitecture);
  Recipe recipe = read_own(json, changes.own, problems);
  const std::string from = of_run ? "" : recipe.from;
  std::string path = from.empty() ? kArchitecture : "from";
  try {
    const arch::ArchSpec spec = from.empty() ? own_architecture(source) : io::read_model(from, Device::cpu()).spec;
    path = kArchitecture;
    recipe.architecture = arch::with_overrides(spec, changes.below_architecture);
  } catch (const Error& error) {
    problems.push_back({"read", path, error.what(), ""});
  }
  if (recipe.schema > kRecipeSchema) {
    problems.push_back({"read", "schema",
                        str("the file is of version ", recipe.schema, ", this program knows ", kRecipeSchema),
                        "use a newer lamina"});
  }
  if (!problems.empty()) throw arch::SpecError(name, std::move(problems));
  return recipe;
}

}  // namespace

Recipe read_recipe(std::string_view text, const std::string& name, const std::vector<std::string>& assignments) {
  return read(text, name, assignments, /*of_run=*/false);
}

Recipe read_run_recipe(std::string_view text, const std::string& name) { return read(text, name, {}, /*of_run=*/true); }

Recipe load_recipe(const std::string& name_or_file, const std::vector<std::string>& assignments) {
  if (is_path(name_or_file)) return read_recipe(read_text(name_or_file), name_or_file, assignments);
  std::vector<std::string> known;
  for (const RecipeFile& file : recipe_files()) {
    if (file.name == name_or_file) return read_recipe(file.text, name_or_file, assignments);
    known.emplace_back(file.name);
  }
  const std::string hint = did_you_mean(name_or_file, known);
  throw Error(str("no recipe \"", name_or_file, "\"; ", hint, hint.empty() ? "" : " ",
                  "`lamina train --list` lists all; the name of a file ends in .json"));
}

std::string write_recipe(const Recipe& recipe) {
  Json json = arch::value_to_json(recipe, arch::Defaults::write);
  json[kArchitecture] = arch::spec_to_json(recipe.architecture, arch::Defaults::write);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string recipe_markdown() { return arch::fields_markdown(recipe_schema()); }

}  // namespace lamina::train
