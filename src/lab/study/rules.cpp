#include <algorithm>
#include <set>

#include "lamina/arch/value_range.h"
#include "lamina/lab/run/metrics.h"
#include "lamina/lab/run/plan.h"
#include "lamina/lab/stretch/options.h"
#include "lamina/lab/stretch/position_kinds.h"
#include "lamina/lab/study/collect_problems.h"
#include "lamina/lab/study/study.h"

namespace lamina::lab {
namespace {

class Rules {
 public:
  explicit Rules(std::vector<arch::Problem>& problems)
      : problems_(problems),
        variants_unread_(std::any_of(problems.begin(), problems.end(), [](const arch::Problem& problem) {
          return problem.path.starts_with("variants") || problem.path == "base";
        })) {}

  void check(const Study& study) {
    arch::RangeCheck([this](const std::string& path, const std::string& message) {
      note("range", path, message, "set a number in that range");
    }).check(study, arch::kAnyNumber, "");
    check_names(study);
    check_numbers(study);
    check_search(study);
    check_tuning(study);
    check_budget(study);
    for (size_t i = 0; i < study.claims.size(); ++i) check_claim(study, study.claims[i], str("claims[", i, "]"));
    if (study.base.layers.empty()) return;  // reading the base failed
    StudyData data;
    data.choice = study.recipe.data;
    if (study.base.vocab_size == 0) data.vocab_size = kAnyVocabulary;
    check_variants(study, data, problems_);
    if (study.mode == Mode::stretch) check_stretch(study);
  }

 private:
  static constexpr int64_t kAnyVocabulary = 256;  // placeholder, because the data's vocabulary is not known yet

  void check_names(const Study& study) {
    names_ = {study.base_name};
    for (size_t i = 0; i < study.variants.size(); ++i) {
      if (names_.insert(study.variants[i].name).second) continue;
      note("names", str("variants[", i, "].name"), "\"" + study.variants[i].name + "\" is used twice",
           "give every variant a unique name");
    }
    for (size_t i = 0; i < study.variants.size(); ++i) check_recipe(study.variants[i], str("variants[", i, "].recipe"));
    if (study.variants.empty() && study.mode != Mode::search && study.mode != Mode::stretch && !variants_unread_) {
      note("variants", "variants", "none, so there is nothing to compare the base with",
           "list architectures or changes");
    }
  }

  /// All runs must have the same data and seeds, so that they can be compared.
  void check_recipe(const Variant& variant, const std::string& path) {
    for (const std::string& change : variant.recipe) {
      for (const char* shared : {"data", "seed", "from", "architecture"}) {
        if (!change.starts_with(shared)) continue;
        note("recipe", path, "\"" + change + "\" must be the same for all variants",
             "change it in the study's recipe; change the architecture with set");
      }
    }
  }

  void check_numbers(const Study& study) {
    if (study.schema > kStudySchema) {
      note("read", "schema", str("the file has version ", study.schema, ", this program reads up to ", kStudySchema),
           "use a newer lamina");
    }
    if (study.seeds.empty()) note("seeds", "seeds", "none", "list at least one; three or more for a verdict");
    if (std::set<int64_t>(study.seeds.begin(), study.seeds.end()).size() != study.seeds.size()) {
      note("seeds", "seeds", "one is listed twice", "list different seeds; equal seeds give equal numbers");
    }
    for (size_t i = 1; i < study.learning_rates.size(); ++i) {
      if (study.learning_rates[i] > study.learning_rates[i - 1]) continue;
      note("learning_rates", "learning_rates", "not ascending", "list them from the lowest to the highest");
      break;
    }
  }

  void check_tuning(const Study& study) {
    const Tuning& tuning = study.tuning;
    if (tuning_changes(tuning).empty()) return;
    if (study.mode == Mode::search || study.mode == Mode::stretch) {
      note("tuning", "tuning", "given in mode search or stretch", "tune in mode versus, ablate or ladder");
    }
    if (tuning.seeds.empty()) note("tuning", "tuning.seeds", "none", "list at least one seed");
    for (const int64_t seed : tuning.seeds) {
      if (std::find(study.seeds.begin(), study.seeds.end(), seed) == study.seeds.end()) continue;
      note("tuning", "tuning.seeds", str(seed, " is also a seed of the study"),
           "tune with other seeds, so that the reported runs did not choose their own settings");
    }
  }

  void check_budget(const Study& study) {
    if (!study.budget) return;
    if (study.mode == Mode::search || study.mode == Mode::stretch) {
      note("budget", "budget", "given in mode search or stretch", "set recipe.steps there");
    }
    for (size_t i = 0; i < study.variants.size(); ++i) {
      for (const std::string& change : study.variants[i].recipe) {
        if (!change.starts_with("steps=")) continue;
        note("budget", str("variants[", i, "].recipe"), "\"" + change + "\" beside a budget",
             "remove one of them; the budget decides how many updates a variant gets");
      }
    }
  }

  void check_search(const Study& study) {
    if (study.mode != Mode::search) return;
    size_t choices = 0;
    for (const Axis& axis : study.search.space) choices += axis.choices.size();
    if (choices == 0) {
      note("search", "search.space", "has no choice", "name switch groups (`lamina compare --list`) or write axes");
    }
    if (std::find(study.seeds.begin(), study.seeds.end(), study.search.selection_seed) != study.seeds.end()) {
      note("search", "search.selection_seed", str(study.search.selection_seed, " is also a seed of the study"),
           "select with another seed, so that the reported runs did not choose themselves");
    }
  }

  void check_stretch(const Study& study) {
    const StretchSettings& settings = *study.stretch;
    std::vector<std::string> known;
    for (const ScalingKind& kind : rope_scalings()) known.emplace_back(kind.name);
    for (const std::string& name : settings.scalings) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      const std::string nearest = nearest_of(name.substr(0, 64), known);
      note("stretch", "stretch.scalings", "\"" + name + "\" is not a RoPE scaling",
           nearest.empty() ? "use pi, ntk, dynamic_ntk or yarn" : "did you mean " + nearest + "?");
    }
    if (!settings.passkey || !settings.model.empty()) return;
    collect_problems("stretch.passkey_recipe", Repeats::drop, problems_, [&] {
      const Study passkey = passkey_study(study);
      std::vector<arch::Problem> problems;
      check_variants(passkey, prepare_study_data(passkey.recipe, ""), problems);
      if (!problems.empty()) throw arch::SpecError(settings.passkey_recipe, std::move(problems));
    });
  }

  void check_claim(const Study& study, const Claim& claim, const std::string& path) {
    if (claim.text.empty()) note("claims", path + ".text", "missing", "write the claim as a sentence");
    check_claimed(study, claim.variant, path + ".variant");
    if (!claim.against.empty()) check_claimed(study, claim.against, path + ".against");
    if (claim.variant == (claim.against.empty() ? study.base_name : claim.against)) {
      note("claims", path, "\"" + claim.variant + "\" is compared with itself", "name two different variants");
    }
    if (claim.to && *claim.to < claim.from) {
      note("claims", path + ".to", str(*claim.to, " is below from (", claim.from, ")"), "set from ≤ to");
    }
    check_metric(study, claim.metric, path + ".metric");
  }

  void check_claimed(const Study& study, const std::string& name, const std::string& path) {
    if (study.mode == Mode::search || variants_unread_ || names_.contains(name)) return;
    const std::string nearest = nearest_of(name.substr(0, 64), {names_.begin(), names_.end()});
    note("claims", path, "\"" + name + "\" is not a variant",
         nearest.empty() ? "name one of the study's variants" : "did you mean " + nearest + "?");
  }

  /// A claim about a metric that the study does not measure would never get a verdict, so it is an error.
  void check_metric(const Study& study, const std::string& name, const std::string& path) {
    if (find_metric(name) == nullptr) {
      std::string known;
      for (const MetricInfo& metric : metrics()) known += (known.empty() ? "" : ", ") + std::string(metric.name);
      note("claims", path, "\"" + name + "\" is unknown", "one of " + known);
    } else if (name.starts_with("accuracy") && !study.recipe.data.task) {
      note("claims", path, "\"" + name + "\" is measured in tasks only", "set recipe.data.task, or another metric");
    } else if (name.starts_with("decode") && !study.decode) {
      note("claims", path, "\"" + name + "\" is not measured if decode is false", "set decode, or another metric");
    }
  }

  void note(const char* rule, const std::string& path, const std::string& message, const std::string& hint) {
    problems_.push_back({rule, path, message, hint});
  }

  std::vector<arch::Problem>& problems_;
  bool variants_unread_;  ///< some variants could not be parsed, so do not report references to them
  std::set<std::string> names_;
};

}  // namespace

void check_study(const Study& study, std::vector<arch::Problem>& problems) { Rules(problems).check(study); }

}  // namespace lamina::lab
