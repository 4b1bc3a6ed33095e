#include "lamina/lab/stretch/options.h"

#include <algorithm>

#include "lamina/arch/edit.h"
#include "lamina/io/model_file.h"
#include "lamina/lab/stretch/position_kinds.h"
#include "lamina/lab/study/collect_problems.h"

namespace lamina::lab {
namespace {

bool wanted(const StretchOptions& options, const std::string& name) {
  return options.kinds.empty() || std::find(options.kinds.begin(), options.kinds.end(), name) != options.kinds.end();
}

void check_kinds(const StretchOptions& options, std::vector<arch::Problem>& problems) {
  std::vector<std::string> known;
  for (const PositionKind& kind : position_kinds(4)) known.push_back(kind.name);
  for (const ScalingKind& kind : rope_scalings()) known.emplace_back(kind.name);
  std::string all;
  for (const std::string& one : known) all += (all.empty() ? "" : ", ") + one;
  for (const std::string& name : options.kinds) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string nearest = nearest_of(name.substr(0, 64), known);
    problems.push_back({"read", "--kinds", str("no position kind \"", name, "\""),
                        nearest.empty() ? "one of " + all : "did you mean " + nearest + "?"});
  }
}

/// RoPE or, if it is not selected, the first selected kind that changes nothing but the position.
PositionKind base_kind(const StretchOptions& options, const std::vector<PositionKind>& kinds) {
  const auto named = [&](const char* name) {
    return *std::find_if(kinds.begin(), kinds.end(), [&](const PositionKind& kind) { return kind.name == name; });
  };
  if (wanted(options, kScaledKind) || !options.settings.scalings.empty()) return named(kScaledKind);
  for (const PositionKind& kind : kinds) {
    if (wanted(options, kind.name) && kind.set.size() == 1) return kind;
  }
  return named(kScaledKind);
}

void add_kinds(const StretchOptions& options, Study& study) {
  const std::vector<PositionKind> kinds = position_kinds(study.recipe.length);
  const PositionKind base = base_kind(options, kinds);
  study.base = arch::with_overrides(study.base, base.set);
  study.base_name = base.name;
  study.base_label = base.label;
  for (const PositionKind& kind : kinds) {
    if (kind.name == base.name || !wanted(options, kind.name)) continue;
    study.variants.push_back(
        {.name = kind.name, .label = kind.label, .set = kind.set, .recipe = {}, .architecture = {}});
  }
}

/// Sets up a study without training, whose only variant is an existing model.
void use_model(const StretchOptions& options, Study& study) {
  study.base = io::read_model(options.settings.model, Device::cpu(1)).spec;
  study.base_name = "unscaled";
  study.base_label = "unscaled";
  study.recipe.steps = 1000;  // a valid recipe, which no run uses
  study.recipe.data.train = options.data;
  study.recipe.length = options.length > 0 ? options.length : study.base.context;
}

void use_recipe(const StretchOptions& options, Study& study) {
  std::vector<std::string> changes = options.changes;
  changes.push_back("data.train=" + options.data);
  study.recipe = train::load_recipe(options.recipe, changes);
  LAMINA_CHECK(study.recipe.from.empty(), options.recipe, ": trains ", study.recipe.from,
               " further; use a recipe without `from`, because every position kind is trained from scratch");
  study.base = study.recipe.architecture;
  study.recipe.length = options.length > 0        ? options.length
                        : study.recipe.length > 0 ? study.recipe.length
                                                  : study.base.context;
  study.base.context = study.recipe.length;
  study.seeds = {study.recipe.seed};
  add_kinds(options, study);
}

}  // namespace

Study stretch_study(const StretchOptions& given) {
  StretchOptions options = given;
  options.settings.scalings.clear();
  for (const ScalingKind& kind : rope_scalings()) {
    if (wanted(options, kind.name)) options.settings.scalings.emplace_back(kind.name);
  }
  Study study;
  study.name = "stretch";
  study.mode = Mode::stretch;
  study.decode = false;
  study.keep_weights = true;
  study.stretch = options.settings;
  std::vector<arch::Problem> problems;
  check_kinds(options, problems);
  collect_problems("--recipe", Repeats::drop, problems,
                   [&] { options.settings.model.empty() ? use_recipe(options, study) : use_model(options, study); });
  if (options.settings.passkey && options.settings.model.empty()) {
    collect_problems("--passkey-recipe", Repeats::drop, problems, [&] { passkey_study(study); });
  }
  if (!problems.empty()) throw arch::SpecError("stretch", std::move(problems));
  study.question =
      str("How far can a model trained on ", study.recipe.length, " tokens read, by its position encoding?");
  return study;
}

Study passkey_study(const Study& study) {
  const StretchSettings& settings = *study.stretch;
  std::vector<std::string> changes = settings.passkey_set;
  changes.insert(changes.end(), {str("length=", study.recipe.length), str("architecture.context=", study.recipe.length),
                                 "data.longer=1"});
  Study passkey = study;
  passkey.recipe = train::load_recipe(settings.passkey_recipe, changes);
  const auto& task = passkey.recipe.data.task;
  LAMINA_CHECK(task && std::holds_alternative<data::Passkey>(*task), settings.passkey_recipe,
               ": its data.task is not passkey; use a recipe with {\"task\": {\"kind\": \"passkey\"}}");
  passkey.base = passkey.recipe.architecture;
  passkey.base.position = study.base.position;
  passkey.seeds = {passkey.recipe.seed};
  passkey.matching = Matching::none;
  return passkey;
}

}  // namespace lamina::lab
