#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "lamina/cli/columns_option.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/study_command.h"
#include "lamina/cli/usage.h"
#include "lamina/lab/run/untrained.h"
#include "lamina/lab/study/switches.h"

namespace lamina::cli {
namespace {

using Json = nlohmann::ordered_json;

struct CompareArguments {
  std::vector<std::string> what;
  std::string mode;
  std::vector<std::string> switches;
  std::vector<std::string> variants;
  std::string data;
  int64_t steps = 0;
  std::vector<int64_t> seeds;
  std::vector<std::string> overrides;
  std::string matching;
  std::string scaling;
  double target = 0;
  std::vector<double> learning_rates;
  std::vector<double> tuned_rates;
  std::vector<double> tuned_decays;
  std::vector<int64_t> tuned_warmups;
  std::vector<int64_t> tuning_seeds;
  double margin = 0;
  std::string budget;
  bool no_decode = false;
  bool keep_weights = false;
  int64_t jobs = -1;
  int64_t threads = -1;
  std::string device;
  std::string out;
  std::string columns = "standard";
  bool no_train = false;
  std::vector<int64_t> lengths = {128};
  int64_t vocabulary = 0;
  bool list = false;
  bool show = false;
  bool fields = false;
};

/// Parses "name: path=value; path=value".
Json variant_of(const std::string& text) {
  const size_t colon = text.find(':');
  LAMINA_CHECK(colon != std::string::npos && colon > 0, "--variant \"", text,
               "\": expected \"name: path=value; path=value\"");
  Json set = Json::array();
  for (size_t at = colon + 1; at < text.size();) {
    const size_t end = std::min(text.find(';', at), text.size());
    const size_t first = text.find_first_not_of(' ', at);
    if (first < end) set.push_back(text.substr(first, text.find_last_not_of(' ', end - 1) - first + 1));
    at = end + 1;
  }
  return {{"name", text.substr(0, colon)}, {"set", set}};
}

/// Builds a study from architectures and flags, without a file.
Json study_of_flags(const CompareArguments& arguments) {
  const std::string mode = !arguments.mode.empty()                                    ? arguments.mode
                           : arguments.what.size() > 1 || !arguments.variants.empty() ? "versus"
                                                                                      : "ablate";
  LAMINA_CHECK(mode == "versus" || arguments.what.size() == 1, "--mode ", mode,
               " takes one architecture, the base; given: ", arguments.what.size());
  Json study{{"name", mode}, {"mode", mode}, {"base", arguments.what[0]}};
  Json variants = Json::array();
  for (size_t i = 1; i < arguments.what.size(); ++i) variants.push_back(arguments.what[i]);
  if (mode == "search") {
    const std::vector<std::string> space = arguments.switches.empty() ? lab::switch_groups() : arguments.switches;
    study["search"] = {{"space", space}};
  } else {
    for (const std::string& name : arguments.switches) variants.push_back(name);
  }
  for (const std::string& text : arguments.variants) variants.push_back(variant_of(text));
  study["variants"] = variants;
  study["name"] = mode == "versus" && arguments.what.size() > 1 ? "versus" : mode + "-" + arguments.what[0];
  return study;
}

lab::Study load(const CompareArguments& arguments) {
  LAMINA_CHECK(
      !arguments.what.empty(),
      "nothing to compare; name a study (`lamina compare --list`, a file, a study's folder), or architectures: "
      "lamina compare gpt2-1m llama-1m");
  std::vector<std::string> changes;
  if (!arguments.data.empty()) changes.push_back("data.train=" + arguments.data);
  if (arguments.steps > 0) changes.push_back(str("steps=", arguments.steps));
  changes.insert(changes.end(), arguments.overrides.begin(), arguments.overrides.end());
  const bool named = arguments.what.size() == 1 && lab::names_study(arguments.what[0]);
  LAMINA_CHECK(
      !named || (arguments.mode.empty() && arguments.switches.empty() && arguments.variants.empty()), arguments.what[0],
      " is a study and sets mode and variants itself; remove --mode, --switch and --variant, or edit its file");
  lab::Study study = named ? lab::load_study(arguments.what[0], changes)
                           : lab::read_study(study_of_flags(arguments).dump(), "the study", changes);
  return study;
}

/// Parses "flops=1e15".
lab::Budget budget_of(const std::string& text) {
  constexpr auto kUnits = names_of(lab::BudgetUnit{});
  const size_t equals = text.find('=');
  const auto unit = std::find(kUnits.begin(), kUnits.end(), text.substr(0, equals));
  char* end = nullptr;
  const double amount = equals == std::string::npos ? 0 : std::strtod(text.c_str() + equals + 1, &end);
  LAMINA_CHECK(unit != kUnits.end() && amount > 0 && *end == '\0', "--budget \"", text,
               "\": expected updates, tokens, flops or seconds with a number, as in flops=1e15");
  return {static_cast<lab::BudgetUnit>(unit - kUnits.begin()), amount, {}};
}

/// Applies the flags to a study from a file or from flags.
lab::Study changed(lab::Study study, const CompareArguments& arguments) {
  if (arguments.seeds.size() == 1) {
    LAMINA_CHECK(arguments.seeds[0] >= 1 && arguments.seeds[0] <= 1000, "--seeds ", arguments.seeds[0],
                 ": expected a count (1 to 1000), or a list such as 1,2,7");
    study.seeds.clear();
    for (int64_t seed = 1; seed <= arguments.seeds[0]; ++seed) study.seeds.push_back(seed);
  } else if (!arguments.seeds.empty()) {
    study.seeds = arguments.seeds;
  }
  if (!arguments.matching.empty()) {
    study.matching = arguments.matching == "parameters" ? lab::Matching::parameters
                     : arguments.matching == "compute"  ? lab::Matching::compute
                                                        : lab::Matching::none;
  }
  if (!arguments.scaling.empty()) {
    if (!study.scaling) study.scaling.emplace();
    study.scaling->against = arguments.scaling == "compute" ? lab::ScalingSize::compute : lab::ScalingSize::parameters;
  }
  if (arguments.target > 0) study.target = arguments.target;
  if (!arguments.learning_rates.empty()) study.learning_rates = arguments.learning_rates;
  if (!arguments.tuned_rates.empty()) study.tuning.learning_rates = arguments.tuned_rates;
  if (!arguments.tuned_decays.empty()) study.tuning.weight_decays = arguments.tuned_decays;
  if (!arguments.tuned_warmups.empty()) study.tuning.warmups = arguments.tuned_warmups;
  if (!arguments.tuning_seeds.empty()) study.tuning.seeds = arguments.tuning_seeds;
  if (!arguments.budget.empty()) study.budget = budget_of(arguments.budget);
  if (arguments.margin != 0) study.margin = arguments.margin;
  if (arguments.no_decode) study.decode = false;
  if (arguments.keep_weights) study.keep_weights = true;
  if (arguments.jobs >= 0) study.jobs = arguments.jobs;
  if (arguments.threads >= 0) study.threads = arguments.threads;
  if (!arguments.device.empty()) study.device = arguments.device;
  // Writes and reads the study again, so that every rule is checked on its final version.
  return lab::read_study(lab::write_study(study), study.name);
}

std::string minutes_text(std::optional<double> minutes) {
  if (!minutes) return "-";
  char text[32];
  const bool hours = *minutes >= 90;
  const double value = hours ? *minutes / 60 : *minutes;
  std::snprintf(text, sizeof text, value < 10 ? "%.1f %s" : "%.0f %s", value, hours ? "h" : "min");
  return text;
}

void list() {
  std::printf("studies, with the number of runs and the expected duration on 2 CPU cores and on an H200\n");
  for (const lab::StudyFile& file : lab::study_files()) {
    const std::string name(file.name);
    const lab::Study study = lab::load_study(name);
    std::printf("  %-16s %3zu runs %9s %9s  %s\n", name.c_str(), lab::run_count(study),
                minutes_text(study.expected_minutes).c_str(), minutes_text(study.expected_gpu_minutes).c_str(),
                study.question.c_str());
  }
  std::string group;
  std::printf("\nswitches, by group\n");
  for (const lab::Switch& choice : lab::switches()) {
    if (group != choice.group) std::printf("  %s\n", choice.group);
    group = choice.group;
    std::printf("    %-16s %s\n", choice.name, choice.label);
  }
}

void run(const CompareArguments& arguments) {
  if (arguments.list) return list();
  if (arguments.fields) return static_cast<void>(std::fputs(lab::study_markdown().c_str(), stdout));
  const lab::Study study = changed(load(arguments), arguments);
  if (arguments.show) return static_cast<void>(std::fputs(lab::write_study(study).c_str(), stdout));
  if (arguments.no_train) {
    const Device device = Device::named(study.device, static_cast<int>(study.threads));
    const auto variants = lab::run_untrained(study, arguments.lengths, arguments.vocabulary, device);
    return static_cast<void>(std::fputs(lab::untrained_text(variants, arguments.lengths).c_str(), stdout));
  }
  // An argument that is the folder of an existing study resumes that study.
  const bool folder = arguments.what.size() == 1 && ::access((arguments.what[0] + "/study.json").c_str(), F_OK) == 0;
  const std::string out = !arguments.out.empty() ? arguments.out : folder ? arguments.what[0] : "studies/" + study.name;
  run_study_command(study, out, columns_from(arguments.columns));
}

}  // namespace

void add_compare(CLI::App& program) {
  auto arguments = std::make_shared<CompareArguments>();
  CLI::App* command = program.add_subcommand(
      "compare", "Compare architectures: train each with several seeds and test the differences for significance");
  command->add_option("what", arguments->what,
                      "A study (--list, a .json file, a results.json, or a study's folder to resume), or architectures "
                      "to compare with the first one");
  command->add_option("--mode", arguments->mode,
                      "versus, ablate, ladder or search (default: versus for several architectures, ablate for one)");
  command
      ->add_option("--switch", arguments->switches, "Switch or switch group (--list) to change in the base; repeatable")
      ->allow_extra_args(false)
      ->take_all();
  command
      ->add_option("--variant", arguments->variants,
                   "The base with changes: \"name: path=value; path=value\"; repeatable")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--data", arguments->data,
                      "Training text: short for --set data.train=FILE (default: a synthetic play)");
  command->add_option("--steps", arguments->steps, "Updates per run: short for --set steps=N")->check(at_least(1));
  command
      ->add_option("--budget", arguments->budget,
                   "What every run may spend, instead of --steps: updates=N, tokens=N, flops=N or seconds=N")
      ->excludes(command->get_option("--steps"));
  command->add_option("--seeds", arguments->seeds, "Number of seeds, or a list: 3 or 1,2,7")->delimiter(',');
  command->add_option("--set", arguments->overrides, "Change the recipe: path=value, as in lamina train; repeatable")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--match", arguments->matching, "Adjust widths to the base's size: none, parameters or compute")
      ->check(CLI::IsMember({"none", "parameters", "compute"}));
  command
      ->add_option("--scaling", arguments->scaling,
                   "Fit loss = E + A · size^-alpha to at least three sizes: parameters or compute (training FLOPs)")
      ->check(CLI::IsMember({"parameters", "compute"}));
  command->add_option("--target", arguments->target, "Target loss of the columns steps and seconds to target")
      ->check(between(0, std::numeric_limits<double>::max(), /*above_low=*/true));
  command
      ->add_option("--learning-rates", arguments->learning_rates,
                   "Learning rates of a short sweep for the highest stable one, ascending: 1e-3,3e-3,1e-2")
      ->delimiter(',');
  command
      ->add_option("--tune-rates", arguments->tuned_rates,
                   "Learning rates to tune every variant over before it is compared: 1e-3,3e-3,1e-2")
      ->delimiter(',');
  command->add_option("--tune-decays", arguments->tuned_decays, "Weight decays to tune every variant over")
      ->delimiter(',');
  command->add_option("--tune-warmups", arguments->tuned_warmups, "Warm-up updates to tune every variant over")
      ->delimiter(',');
  command
      ->add_option("--tune-seeds", arguments->tuning_seeds,
                   "Seeds of the tuning runs; none may be a seed of the study (default: 101)")
      ->delimiter(',');
  command
      ->add_option("--margin", arguments->margin,
                   "Largest relative difference that counts as none (default: 0.005, 0.5 % of the loss)")
      ->check(between(0, 1, /*above_low=*/true));
  command->add_flag("--no-decode", arguments->no_decode, "Do not measure generation speed");
  command->add_flag("--keep-weights", arguments->keep_weights, "Keep checkpoints in the run folders");
  command->add_option("--jobs", arguments->jobs, "Concurrent runs; 0: one per core (default)")->check(at_least(0));
  command->add_option("--device", arguments->device, "Training device: cpu (default), cuda or cuda:N");
  command->add_option("--threads", arguments->threads, "Threads per run; 0: cores / jobs (default)")
      ->check(at_least(0));
  command->add_option("--out", arguments->out, "The study's folder (default: studies/NAME)");
  add_columns_option(*command, arguments->columns);
  command->add_flag("--no-train", arguments->no_train,
                    "Train nothing: print parameters, their difference, and the loss of an untrained forward pass");
  command
      ->add_option("--length", arguments->lengths,
                   "With --no-train: tokens of the forward pass, one or several: 128,512 (default: 128)")
      ->delimiter(',')
      ->check(at_least(1));
  command->add_option("--vocab", arguments->vocabulary, "With --no-train: vocabulary size of every architecture")
      ->check(at_least(2));
  command->add_flag("--list", arguments->list,
                    "List the built-in studies with question, runs and expected duration, and the switches");
  command->add_flag("--show", arguments->show, "Print the study with every key and exit");
  command->add_flag("--fields", arguments->fields,
                    "Print every key of a study, as in docs/reference/study-file.md, and exit");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
