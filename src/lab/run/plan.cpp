#include "lamina/lab/run/plan.h"

#include <algorithm>
#include <map>

#include "lamina/arch/cost.h"
#include "lamina/arch/count.h"
#include "lamina/arch/edit.h"
#include "lamina/arch/resolve.h"
#include "lamina/lab/run/scaling_fit.h"
#include "lamina/lab/study/collect_problems.h"
#include "lamina/train/pass.h"

namespace lamina::lab {

Parallelism parallelism_of(const Study& study, int cores) {
  Parallelism result;
  const int available = std::max(1, cores);
  if (study.device != "cpu") {
    result.jobs = study.jobs > 0 ? static_cast<int>(study.jobs) : 1;
    result.threads = study.threads > 0 ? static_cast<int>(study.threads) : std::max(1, available / result.jobs);
  } else if (study.threads > 0) {
    result.threads = static_cast<int>(study.threads);
    result.jobs = study.jobs > 0 ? static_cast<int>(study.jobs) : std::max(1, available / result.threads);
  } else {
    result.jobs = study.jobs > 0 ? static_cast<int>(study.jobs) : available;
    result.threads = std::max(1, available / result.jobs);
  }
  return result;
}

Planner::Planner(const Study& study, const StudyData& data, int threads, const std::string& runs)
    : study_(study), data_(data), threads_(threads), runs_(runs) {
  const arch::ArchSpec base = arch::resolve(with_vocabulary(study.base), study.base_name);
  length_ = study.recipe.length > 0 ? study.recipe.length : base.context;
  if (study.matching != Matching::none) size_ = matched_size(base, study.matching, length_);
}

arch::ArchSpec Planner::with_vocabulary(arch::ArchSpec spec) const {
  if (data_.vocab_size > 0 && study_.recipe.data.fit_vocab) spec.vocab_size = data_.vocab_size;
  return spec;
}

train::Recipe Planner::recipe_for(const Variant& variant, const arch::ArchSpec& architecture,
                                  const std::vector<std::string>& changes) const {
  train::Recipe recipe = study_.recipe;
  recipe.architecture = architecture;
  recipe.data = data_.choice;
  std::vector<std::string> all = variant.recipe;
  all.insert(all.end(), changes.begin(), changes.end());
  if (!all.empty()) recipe = train::read_recipe(train::write_recipe(recipe), variant.name, all);
  return train::resolve_recipe(std::move(recipe), data_.vocab_size, variant.name);
}

VariantResult Planner::build(const Variant& variant) const {
  VariantResult result;
  result.variant = variant;
  const arch::ArchSpec spec =
      with_vocabulary(arch::with_overrides(variant.architecture.value_or(study_.base), variant.set));
  const bool base = variant.name == study_.base_name;
  Matched matched =
      base || !size_ ? Matched{arch::resolve(spec, variant.name), {}} : match(spec, *size_, study_.matching, length_);
  const train::Recipe recipe = recipe_for(variant, matched.spec, {});
  result.architecture = recipe.architecture;
  result.adjusted = matched.adjusted;
  result.parameters = arch::count_parameters(result.architecture).total;
  result.flops_per_token = arch::flops_per_token(result.architecture, recipe.length).forward();
  result.training_flops = train::training_flops_per_token(recipe) * static_cast<double>(recipe.tokens_per_step()) *
                          static_cast<double>(recipe.steps);
  const int bytes = recipe.dtype == train::Precision::bf16 ? 2 : 4;
  for (const arch::CacheRow& row : arch::cache_rows(result.architecture)) {
    result.kv_bytes_per_token += row.per_token * static_cast<double>(row.layers) * bytes;
  }
  return result;
}

RunPlan Planner::plan(const VariantResult& variant, int64_t seed, const std::vector<std::string>& changes) const {
  RunPlan plan = plan_run(recipe_for(variant.variant, variant.architecture, changes), seed, data_,
                          {study_.device, threads_}, runs_);
  plan.title = str(variant.variant.name, ", seed ", seed);
  return plan;
}

namespace {

void check_choices(const Study& study, std::vector<arch::Problem>& problems) {
  for (size_t i = 0; i < study.search.space.size(); ++i) {
    const Axis& axis = study.search.space[i];
    for (size_t j = 0; j < axis.choices.size(); ++j) {
      collect_problems(str("search.space[", i, "].choices[", j, "]"), Repeats::keep, problems, [&] {
        arch::with_overrides(study.base, axis.choices[j].set);
        train::Recipe recipe = study.recipe;
        recipe.architecture = study.base;
        train::read_recipe(train::write_recipe(recipe), axis.choices[j].name, axis.choices[j].recipe);
      });
    }
  }
}

/// Every group of a scaling fit must exist and have at least three sizes.
void check_scaling(const Study& study, const std::map<std::string, double>& sizes,
                   std::vector<arch::Problem>& problems) {
  const bool given = study.scaling && !study.scaling->groups.empty();
  const std::vector<ScalingGroup> groups = scaling_groups(study);
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::string path = given ? str("scaling.groups[", i, "]") : "scaling";
    std::vector<double> found;
    bool known = true;
    for (const std::string& name : groups[i].variants) {
      const auto size = sizes.find(name);
      if (size != sizes.end()) {
        found.push_back(size->second);
        continue;
      }
      known = false;
      problems.push_back({"scaling", path + ".variants", "\"" + name + "\" is not a variant",
                          "name the base or a variant of the study"});
    }
    const size_t count = distinct_sizes(found);
    if (!known || count >= kFewestSizes) continue;
    problems.push_back({"scaling", path,
                        str(count, count == 1 ? " size" : " sizes", "; a fit needs at least ", kFewestSizes,
                            " that differ by more than 5 %"),
                        "add variants of other sizes, or remove scaling"});
  }
}

}  // namespace

double scaling_size(const Study& study, const VariantResult& variant) {
  const bool compute = study.scaling && study.scaling->against == ScalingSize::compute;
  return compute ? variant.training_flops : static_cast<double>(variant.parameters);
}

void check_variants(const Study& study, const StudyData& data, std::vector<arch::Problem>& problems) {
  std::optional<Planner> planner;
  const std::vector<Variant> variants = variants_of(study);
  const size_t before = problems.size();
  collect_problems("base", Repeats::keep, problems, [&] {
    planner.emplace(study, data, /*threads=*/1, /*runs=*/"");
    planner->build(variants[0]);
  });
  if (problems.size() > before) return;  // the base cannot be built: every variant would fail for the same reason
  std::map<std::string, double> sizes{{variants[0].name, scaling_size(study, planner->build(variants[0]))}};
  for (size_t i = 1; i < variants.size(); ++i) {
    // A rung includes the changes of all earlier rungs, and so their mistakes.
    collect_problems(str("variants[", i - 1, "] (", variants[i].name, ")"),
                     study.mode == Mode::ladder ? Repeats::drop : Repeats::keep, problems,
                     [&] { sizes[variants[i].name] = scaling_size(study, planner->build(variants[i])); });
  }
  if (problems.size() == before) check_scaling(study, sizes, problems);
  if (study.mode == Mode::search) check_choices(study, problems);
}

Distinct distinct(const std::vector<RunPlan>& plans) {
  Distinct result;
  for (const RunPlan& plan : plans) {
    const auto same = std::find_if(result.plans.begin(), result.plans.end(),
                                   [&](const RunPlan& earlier) { return earlier.hash == plan.hash; });
    result.index.push_back(static_cast<size_t>(same - result.plans.begin()));
    if (same == result.plans.end()) result.plans.push_back(plan);
  }
  return result;
}

}  // namespace lamina::lab
