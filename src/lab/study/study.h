#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/train/recipe.h"

namespace lamina::lab {

/// Version of the study file format; also part of a run's hash.
inline constexpr int64_t kStudySchema = 1;

enum class Mode : uint8_t { versus, ablate, ladder, search };
constexpr std::array<std::string_view, 4> names_of(Mode) { return {"versus", "ablate", "ladder", "search"}; }

enum class Matching : uint8_t { none, parameters, compute };
constexpr std::array<std::string_view, 3> names_of(Matching) { return {"none", "parameters", "compute"}; }

enum class Metric : uint8_t { loss, accuracy };
constexpr std::array<std::string_view, 2> names_of(Metric) { return {"loss", "accuracy"}; }

enum class Strategy : uint8_t { random, product };
constexpr std::array<std::string_view, 2> names_of(Strategy) { return {"random", "product"}; }

/// A change of the base that a study compares.
struct Variant {
  std::string name;
  std::string label;
  std::vector<std::string> set;
  std::vector<std::string> recipe;
  /// In files `base`: a preset name, a file name, or an inline architecture. Default: the study's base. Not a visited
  /// field.
  std::optional<arch::ArchSpec> architecture;
  static void visit_fields(auto& self, auto&& field) {
    field("name", self.name, "short, of its own; default: from the changes");
    field("label", self.label, "for people; default: the name");
    field("set", self.set, "changes of the architecture, path=value each");
    field("recipe", self.recipe, "changes of the recipe for this variant alone, path=value each");
  }
  bool operator==(const Variant&) const = default;
};

/// One dimension of a search space: a candidate takes one of the choices or keeps the base's value.
struct Axis {
  std::string name;
  std::vector<Variant> choices;
  static void visit_fields(auto& self, auto&& field) {
    field("name", self.name, "for people");
    field("choices", self.choices, "each with name, label and set; leaving the base as it is always is one more");
  }
  bool operator==(const Axis&) const = default;
};

struct Search {
  std::vector<Axis> space;
  Strategy strategy = Strategy::random;
  int64_t candidates = 12;
  int64_t rungs = 3;
  double keep = 1.0 / 3.0;
  int64_t seed = 1;
  static void visit_fields(auto& self, auto&& field) {
    field("space", self.space, "axes, or names of groups of switches");
    field("strategy", self.strategy, "random: some combinations; product: all");
    field("candidates", self.candidates, "combinations drawn at random");
    field("rungs", self.rungs,
          "rounds; the last has the recipe's steps, each one before `keep` times those of the next",
          arch::Limits{1, 16});
    field("keep", self.keep, "share of the candidates that go on to the next round", arch::Limits{0.01, 0.99});
    field("seed", self.seed, "of the draw", arch::kCount);
  }
  bool operator==(const Search&) const = default;
};

/// Setting in which a claim was made. Missing values are not compared.
struct Setting {
  std::optional<double> parameters;
  std::optional<double> length;
  std::optional<double> steps;
  static void visit_fields(auto& self, auto&& field) {
    field("parameters", self.parameters, "of the models", arch::kPositive);
    field("length", self.length, "tokens in a sequence", arch::kPositive);
    field("steps", self.steps, "updates of the training", arch::kPositive);
  }
  bool operator==(const Setting&) const = default;
};

/// A published statement that the study's numbers confirm or refute.
struct Claim {
  std::string text;
  std::string variant;
  std::string against;
  std::string metric = "best_loss";
  double from = 0.0;
  std::optional<double> to;
  Setting setting;
  static void visit_fields(auto& self, auto&& field) {
    field("text", self.text, "the claim, and where it stands");
    field("variant", self.variant, "whose gain it is about");
    field("against", self.against, "over which variant; default: the base");
    field("metric", self.metric, "a key of the summaries; a gain is lower for losses, higher for speeds");
    field("from", self.from, "least relative gain that is claimed; -0.02: at most 2 % worse", arch::kAnyNumber);
    field("to", self.to, "largest relative gain that is claimed; default: any", arch::kAnyNumber);
    field("setting", self.setting, "where it was made; a verdict at another size says \"at our size\"");
  }
  bool operator==(const Claim&) const = default;
};

struct Study {
  int64_t schema = kStudySchema;
  std::string name;
  std::string question;
  Mode mode = Mode::versus;
  std::string base_name;
  std::string base_label;
  /// In files `base`. Not a visited field.
  arch::ArchSpec base;
  std::vector<Variant> variants;
  std::vector<int64_t> seeds = {1, 2, 3};
  train::Recipe recipe;
  Matching matching = Matching::none;
  Metric metric = Metric::loss;
  std::optional<double> target;
  bool decode = true;
  bool keep_weights = false;
  std::vector<double> learning_rates;
  int64_t sweep_steps = 0;
  Search search;
  std::vector<Claim> claims;
  int64_t jobs = 0;
  int64_t threads = 0;
  std::string device = "cpu";
  std::optional<double> expected_minutes;
  static void visit_fields(auto& self, auto&& field) {
    field("schema", self.schema, "version of this format");
    field("name", self.name, "of the study; default: the file's");
    field("question", self.question, "what is asked, in a sentence");
    field("mode", self.mode,
          "versus: each variant against the base; ablate: the base with each switch changed alone; ladder: one change "
          "on top of another; search: the best of a space of switches by successive halving");
    field("base_name", self.base_name, "short name of the base; default: the preset's, else base");
    field("base_label", self.base_label, "for people; default: the name");
    field("variants", self.variants,
          "what is compared; beside objects also names: architectures in versus, switches or groups of them elsewhere. "
          "Default: every switch in ablate, the order of adoption in ladder");
    field("seeds", self.seeds, "a list, or how many: 3 means 1, 2, 3", arch::kCount);
    field("recipe", self.recipe,
          "how every run is trained; keys as in docs/guides/training.md, without architecture, from, seed");
    field("matching", self.matching,
          "widths of variants are adjusted until they have the base's parameters, or its operations per token");
    field("metric", self.metric, "what decides: loss on the validation data, or accuracy in a task");
    field("target", self.target,
          "validation loss for steps and seconds to target; default: the worst of the base's best", arch::kPositive);
    field("decode", self.decode, "measure the speed of generating, after the training");
    field("keep_weights", self.keep_weights, "leave the models in the runs' folders");
    field("learning_rates", self.learning_rates,
          "rates of a short sweep for the highest stable one; default: no sweep");
    field("sweep_steps", self.sweep_steps, "updates of a run of that sweep; default 0: a fifth of the recipe's",
          arch::kCount);
    field("search", self.search, "of mode search");
    field("claims", self.claims, "sentences to be held against the results");
    field("jobs", self.jobs, "runs at the same time; default 0: a core each", arch::kCount);
    field("threads", self.threads, "of one run; default 0: cores / jobs", arch::kCount);
    field("device", self.device, "where runs are trained: cpu, cuda or cuda:N; on a GPU one run at a time by default");
    field("expected_minutes", self.expected_minutes, "how long it takes on two cores, for --list", arch::kPositive);
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

/// Reads a study and fills in everything: names become architectures and changes, and defaults become numbers. Also
/// accepts a results file and reads the study in it. Throws arch::SpecError with all problems.
Study read_study(std::string_view text, const std::string& name, const std::vector<std::string>& recipe_changes = {});
/// Loads a file (the argument ends in .json or has a slash), a study's folder, or one of study_files().
Study load_study(const std::string& name_or_file, const std::vector<std::string>& recipe_changes = {});
/// Whether the argument is a study for load_study, not an architecture for arch::load_arch.
bool names_study(const std::string& argument);
/// Writes JSON with every key; read_study reads it back.
std::string write_study(const Study& study);

/// The base and its variants with complete lists of changes; a ladder step includes the steps before it.
std::vector<Variant> variants_of(const Study& study);

/// Number of training runs, including the short runs of a sweep and of a search's rounds.
size_t run_count(const Study& study);

/// Generates the list of all study keys in docs/guides/lab.md.
std::string study_markdown();

}  // namespace lamina::lab
