#include "lamina/lab/report/read_recipe.h"

#include <cstdlib>

namespace lamina::lab::report {
namespace {

/// Updates of a run and number of tokens in an update. Files that lack it get it from the recipe, unless a variant
/// changes the recipe's value.
void derive_tokens(Study& study, const Json& file) {
  const auto description = file.find("description");
  if (description == file.end() || !description->is_object() || !description->contains("recipe")) return;
  const Json& recipe = (*description)["recipe"];
  if (!recipe.is_object()) return;
  double tokens = 1;
  for (const char* key : {"batch", "length"}) {
    if (!recipe.contains(key) || !recipe[key].is_number() || recipe[key] <= 0) return;
    tokens *= recipe[key].get<double>();
  }
  if (recipe.contains("accumulate") && recipe["accumulate"].is_number()) tokens *= recipe["accumulate"].get<double>();
  if (recipe.contains("steps") && recipe["steps"].is_number()) study.steps = recipe["steps"].get<double>();
  for (size_t i = 0; i < study.variants.size(); ++i) {
    const Json changes = file["variants"][i].value("recipe", Json::array());
    for (Run& run : study.variants[i].runs) {
      if (!run.tokens_per_step && changes.empty()) run.tokens_per_step = tokens;
    }
  }
}

/// The study's budget, and the updates of variants that have their own.
void read_budget(Study& study, const Json& file) {
  const auto description = file.find("description");
  if (description == file.end() || !description->is_object()) return;
  const Json budget = description->value("budget", Json());
  if (budget.is_object() && budget.contains("unit") && budget["unit"].is_string() && budget.contains("amount") &&
      budget["amount"].is_number()) {
    study.budget = {budget["unit"].get<std::string>(), budget["amount"].get<double>()};
  }
  for (size_t i = 0; i < study.variants.size(); ++i) {
    const Json changes = file["variants"][i].value("recipe", Json::array());
    for (const Json& change : changes) {
      const std::string text = change.is_string() ? change.get<std::string>() : "";
      if (text.starts_with("steps=")) study.variants[i].steps = std::strtod(text.c_str() + 6, nullptr);
    }
  }
}

}  // namespace

void read_recipe(Study& study, const Json& file) {
  derive_tokens(study, file);
  read_budget(study, file);
}

}  // namespace lamina::lab::report
