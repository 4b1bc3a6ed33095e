#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/train/recipe.h"

namespace lamina::lab {

/// Version of the study file format. It is also part of a run's hash.
inline constexpr int64_t kStudySchema = 1;

enum class Mode : uint8_t { versus, ablate, ladder, search, stretch };
constexpr std::array<std::string_view, 5> names_of(Mode) { return {"versus", "ablate", "ladder", "search", "stretch"}; }

enum class Matching : uint8_t { none, parameters, compute };
constexpr std::array<std::string_view, 3> names_of(Matching) { return {"none", "parameters", "compute"}; }

enum class Metric : uint8_t { loss, accuracy };
constexpr std::array<std::string_view, 2> names_of(Metric) { return {"loss", "accuracy"}; }

enum class Strategy : uint8_t { random, product };
constexpr std::array<std::string_view, 2> names_of(Strategy) { return {"random", "product"}; }

/// A change of the base that a study evaluates.
struct Variant {
  std::string name;
  std::string label;
  std::vector<std::string> set;
  std::vector<std::string> recipe;
  /// `base` in files: a preset name, a file name, or an inline architecture. Default: the study's base. Read
  /// separately, not by visit_fields.
  std::optional<arch::ArchSpec> architecture;
  static void visit_fields(auto& self, auto&& field) {
    field("name", self.name, "short and unique; default: from the changes");
    field("label", self.label, "display name; default: the name");
    field("set", self.set, "architecture changes, path=value each");
    field("recipe", self.recipe, "recipe changes for this variant only, path=value each");
  }
  bool operator==(const Variant&) const = default;
};

/// One dimension of a search space: a candidate has one of the choices, or the base's value.
struct Axis {
  std::string name;
  std::vector<Variant> choices;
  static void visit_fields(auto& self, auto&& field) {
    field("name", self.name, "display name");
    field("choices", self.choices,
          "variants with name, label and set; keeping the base's value is always one more choice");
  }
  bool operator==(const Axis&) const = default;
};

/// Mode search: the choices and the successive halving.
struct Search {
  std::vector<Axis> space;
  Strategy strategy = Strategy::random;
  int64_t candidates = 12;
  int64_t rungs = 3;
  double keep = 1.0 / 3.0;
  int64_t seed = 1;
  int64_t selection_seed = 101;
  static void visit_fields(auto& self, auto&& field) {
    field("space", self.space, "axes, or names of switch groups");
    field("strategy", self.strategy, "random: a sample of the combinations; product: all");
    field("candidates", self.candidates, "number of random combinations");
    field("rungs", self.rungs,
          "rounds; the last uses the recipe's steps, each earlier one `keep` times the steps of the next",
          arch::Limits{1, 16});
    field("keep", self.keep, "share of the candidates kept for the next round", arch::Limits{0.01, 0.99});
    field("seed", self.seed, "seed of the random sample", arch::kCount);
    field("selection_seed", self.selection_seed,
          "seed of the rounds that drop candidates; may not be a seed of the study", arch::kCount);
  }
  bool operator==(const Search&) const = default;
};

/// Mode stretch: how variants are measured at multiples of their training length.
struct StretchSettings {
  std::vector<std::string> scalings = {"pi", "ntk", "dynamic_ntk", "yarn"};
  int64_t times = 16;
  int64_t tokens = 0;
  bool passkey = true;
  int64_t examples = 16;
  int64_t depths = 5;
  std::string passkey_recipe = "stretch-passkey";
  std::vector<std::string> passkey_set;
  std::string model;
  std::string tokenizer;
  static void visit_fields(auto& self, auto&& field) {
    field("scalings", self.scalings, "RoPE scalings that the base is also measured with: pi, ntk, dynamic_ntk, yarn");
    field("times", self.times, "lengths double up to this multiple of the training length", arch::Limits{1, 1024});
    field("tokens", self.tokens, "tokens to predict at each length; default 0: four times the longest length",
          arch::kCount);
    field("passkey", self.passkey, "also measure passkey retrieval");
    field("examples", self.examples, "passkeys per length and depth");
    field("depths", self.depths, "passkey depths, from the start to the end of the context", arch::Limits{2, 100});
    field("passkey_recipe", self.passkey_recipe, "recipe of the passkey models: a name or a file");
    field("passkey_set", self.passkey_set, "changes of that recipe, path=value each");
    field("model", self.model, "measure this model (a folder or a file) and train nothing");
    field("tokenizer", self.tokenizer, "tokenizer of that model; default: the one next to it");
  }
  bool operator==(const StretchSettings&) const = default;
};

enum class BudgetUnit : uint8_t { updates, tokens, flops, seconds };
constexpr std::array<std::string_view, 4> names_of(BudgetUnit) { return {"updates", "tokens", "flops", "seconds"}; }

/// What every run may spend. The updates of each variant are computed when the study starts and stored in it, so that a
/// second run of the study is bit-identical.
struct Budget {
  BudgetUnit unit = BudgetUnit::updates;
  double amount = 0;
  std::vector<int64_t> steps;
  static void visit_fields(auto& self, auto&& field) {
    field(
        "unit", self.unit,
        "updates; tokens read; FLOPs of training; or seconds of training, by the speed of 20 updates on this machine");
    field("amount", self.amount, "budget of a run in that unit", arch::kPositive);
    field("steps", self.steps, "updates of the base and of each variant; computed when the study starts", arch::kCount);
  }
  bool operator==(const Budget&) const = default;
};

/// Tuning of every variant before the comparison, for a fair comparison. Each combination of the listed values is
/// trained with the tuning seeds. The one with the lowest mean of best validation losses is used.
struct Tuning {
  std::vector<double> learning_rates;
  std::vector<double> weight_decays;
  std::vector<int64_t> warmups;
  std::vector<int64_t> seeds = {101};
  static void visit_fields(auto& self, auto&& field) {
    field("learning_rates", self.learning_rates, "values of optimizer.lr; default: the recipe's only", arch::kPositive);
    field("weight_decays", self.weight_decays, "values of optimizer.weight_decay; default: the recipe's only",
          arch::kNotNegative);
    field("warmups", self.warmups, "values of schedule.warmup; default: the recipe's only", arch::kCount);
    field("seeds", self.seeds, "seeds of the tuning runs; none may be a seed of the study", arch::kCount);
  }
  bool operator==(const Tuning&) const = default;
};

/// The setting in which a claim was made. Missing values are not compared.
struct Setting {
  std::optional<double> parameters;
  std::optional<double> length;
  std::optional<double> steps;
  static void visit_fields(auto& self, auto&& field) {
    field("parameters", self.parameters, "parameters of the models", arch::kPositive);
    field("length", self.length, "tokens per sequence", arch::kPositive);
    field("steps", self.steps, "training updates", arch::kPositive);
  }
  bool operator==(const Setting&) const = default;
};

/// A published statement that the study's numbers may confirm or refute.
struct Claim {
  std::string text;
  std::string variant;
  std::string against;
  std::string metric = "best_loss";
  double from = 0.0;
  std::optional<double> to;
  Setting setting;
  static void visit_fields(auto& self, auto&& field) {
    field("text", self.text, "the claim and its source");
    field("variant", self.variant, "variant that the claim is about");
    field("against", self.against, "variant it is compared with; default: the base");
    field("metric", self.metric, "key of a summary; lower is a gain for losses, higher for speeds");
    field("from", self.from, "smallest claimed relative gain; -0.02: at most 2 % worse", arch::kAnyNumber);
    field("to", self.to, "largest claimed relative gain; default: any", arch::kAnyNumber);
    field("setting", self.setting, "sizes at which it was made; a verdict at another size says \"at our size\"");
  }
  bool operator==(const Claim&) const = default;
};

enum class ScalingSize : uint8_t { parameters, compute };
constexpr std::array<std::string_view, 2> names_of(ScalingSize) { return {"parameters", "compute"}; }

/// Variants of one kind in several sizes, to which one scaling law is fitted.
struct ScalingGroup {
  std::string name;
  std::vector<std::string> variants;
  static void visit_fields(auto& self, auto&& field) {
    field("name", self.name, "display name");
    field("variants", self.variants, "names of at least three variants of different sizes; the base may be one");
  }
  bool operator==(const ScalingGroup&) const = default;
};

/// Fits loss = E + A · size^−α to variants of different sizes.
struct ScalingSettings {
  ScalingSize against = ScalingSize::parameters;
  std::vector<ScalingGroup> groups;
  static void visit_fields(auto& self, auto&& field) {
    field("against", self.against, "size of a model: its parameters, or the FLOPs of its training");
    field("groups", self.groups, "one fit per group; default: one group of the base and all variants");
  }
  bool operator==(const ScalingSettings&) const = default;
};

/// A study, read from its file and completed.
struct Study {
  int64_t schema = kStudySchema;
  std::string name;
  std::string question;
  Mode mode = Mode::versus;
  std::string base_name;
  std::string base_label;
  /// `base` in files. Read separately, not by visit_fields.
  arch::ArchSpec base;
  std::vector<Variant> variants;
  std::vector<int64_t> seeds = {1, 2, 3};
  train::Recipe recipe;
  Matching matching = Matching::none;
  Metric metric = Metric::loss;
  double margin = 0.005;
  double spread = 0.006;
  std::optional<double> target;
  bool decode = true;
  bool keep_weights = false;
  std::vector<double> learning_rates;
  int64_t sweep_steps = 0;
  std::optional<Budget> budget;
  Tuning tuning;
  Search search;
  std::optional<StretchSettings> stretch;
  std::vector<Claim> claims;
  std::optional<ScalingSettings> scaling;
  int64_t jobs = 0;
  int64_t threads = 0;
  std::string device = "cpu";
  std::optional<double> expected_minutes;
  std::optional<double> expected_gpu_minutes;
  static void visit_fields(auto& self, auto&& field) {
    field("schema", self.schema, "version of this format");
    field("name", self.name, "study name; default: the file name");
    field("question", self.question, "the question, in one sentence");
    field("mode", self.mode,
          "versus: each variant against the base; ablate: the base with one switch changed at a time; ladder: each "
          "change on top of the previous ones; search: the best of a space of switches by successive halving; "
          "stretch: perplexity and passkeys beyond the training length");
    field("base_name", self.base_name, "short name of the base; default: the preset's name, or base");
    field("base_label", self.base_label, "display name; default: the name");
    field("variants", self.variants,
          "what is compared: objects or names (architectures in versus, switches or switch groups elsewhere). "
          "Default: every switch in ablate, the usual order of adoption in ladder");
    field("seeds", self.seeds, "a list, or a count: 3 means 1, 2, 3", arch::kCount);
    field("recipe", self.recipe,
          "recipe of every run; keys as in docs/reference/recipe-file.md, without architecture, from, seed");
    field("matching", self.matching,
          "adjust the widths of variants to the base's parameters, or to its FLOPs per token");
    field("metric", self.metric, "what variants are judged by: validation loss, or accuracy of a task");
    field("margin", self.margin,
          "largest relative difference that counts as none, for the equivalence test; 0.005: 0.5 % of the reference",
          arch::kPositive);
    field("spread", self.spread,
          "expected standard deviation of paired differences relative to the loss, for the power estimate before the "
          "start; the default is the median of the shipped studies",
          arch::kPositive);
    field("target", self.target,
          "validation loss for steps and seconds to target; default: the highest best loss of the base's runs",
          arch::kPositive);
    field("decode", self.decode, "measure generation speed after training");
    field("keep_weights", self.keep_weights, "keep checkpoints in the run folders");
    field("learning_rates", self.learning_rates,
          "learning rates of a short sweep for the highest stable one, ascending; default: no sweep");
    field("sweep_steps", self.sweep_steps, "updates per run of that sweep; default 0: a fifth of the recipe's",
          arch::kCount);
    field(
        "budget", self.budget,
        "what every run may spend; each variant then has its own updates, with evaluations and warm-up in proportion; "
        "default: the recipe's steps");
    field("tuning", self.tuning, "values tried for each variant before it is compared; default: none");
    field("search", self.search, "settings of mode search");
    field("stretch", self.stretch, "settings of mode stretch");
    field("claims", self.claims, "published claims to check against the results");
    field("scaling", self.scaling, "fit a scaling law to variants of at least three sizes; default: no fit");
    field("jobs", self.jobs, "concurrent runs; default 0: one per core", arch::kCount);
    field("threads", self.threads, "threads per run; default 0: cores / jobs", arch::kCount);
    field("device", self.device, "training device: cpu, cuda or cuda:N; on a GPU one run at a time by default");
    field("expected_minutes", self.expected_minutes, "expected duration on two cores, for --list", arch::kPositive);
    field("expected_gpu_minutes", self.expected_gpu_minutes, "expected duration on one H200, for --list",
          arch::kPositive);
  }
  bool operator==(const Study&) const = default;
};

/// A file of presets/studies, embedded in the library.
struct StudyFile {
  std::string_view name;
  std::string_view text;
};
/// Sorted by name. Generated by cmake/EmbedPresets.cmake.
std::span<const StudyFile> study_files();

/// Reads a study and completes it: names become architectures and changes, and defaults become explicit values. Also
/// accepts a results file, and reads the study in it. Throws an arch::SpecError that lists all problems.
Study read_study(std::string_view text, const std::string& name, const std::vector<std::string>& recipe_changes = {});
/// Checks everything about a study that does not need its data. Adds failures to `problems`. Builds every variant, with
/// a placeholder vocabulary if the base has none.
void check_study(const Study& study, std::vector<arch::Problem>& problems);
/// Loads a file (if the argument ends in .json or has a slash), a study's folder, or one of study_files().
Study load_study(const std::string& name_or_file, const std::vector<std::string>& recipe_changes = {});
/// Whether the argument names a study for load_study(), and not an architecture for arch::load_arch().
bool names_study(const std::string& argument);
/// Writes a study as JSON with every key. read_study() can read it.
std::string write_study(const Study& study);

/// The base and its variants, with complete lists of changes. A step of a ladder includes the steps before it. With a
/// budget whose updates are known, recipes have them.
std::vector<Variant> variants_of(const Study& study);

/// Sets a recipe's steps, and evaluations, checkpoints and warm-up in proportion.
void set_length(train::Recipe& recipe, int64_t steps);

/// The groups of a scaling fit, including the default group. Empty if the study has no fit.
std::vector<ScalingGroup> scaling_groups(const Study& study);

/// The combinations of tuning values, as recipe changes. Empty if there is nothing to tune.
std::vector<std::vector<std::string>> tuning_changes(const Tuning& tuning);

/// Number of training runs, including tuning, the short runs of a sweep, and the rounds of a search.
size_t run_count(const Study& study);

/// The list of all study keys for docs/reference/study-file.md.
std::string study_markdown();

}  // namespace lamina::lab
