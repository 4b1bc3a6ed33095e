#include "lamina/lab/stretch/options.h"

#include <filesystem>
#include <memory>

#include "lamina/cli/commands.h"
#include "lamina/cli/study_command.h"
#include "lamina/cli/usage.h"

namespace lamina::cli {
namespace {

struct StretchArguments {
  lab::StretchOptions options;
  bool no_passkey = false;
  std::string device = "cpu";
  int64_t jobs = 0;
  int64_t threads = 0;
  std::string out;
  bool show = false;
};

std::string default_folder(const std::string& model) {
  if (model.empty()) return "studies/stretch";
  return "studies/stretch-" + std::filesystem::path(model).lexically_normal().filename().string();
}

void run(StretchArguments& arguments) {
  lab::StretchSettings& settings = arguments.options.settings;
  settings.passkey = !arguments.no_passkey;
  lab::Study study = lab::stretch_study(arguments.options);
  study.device = arguments.device;
  study.jobs = arguments.jobs;
  study.threads = arguments.threads;
  // Writes and reads the study again, so that every rule is checked.
  study = lab::read_study(lab::write_study(study), study.name);
  if (arguments.show) return static_cast<void>(std::fputs(lab::write_study(study).c_str(), stdout));
  run_study_command(study, arguments.out.empty() ? default_folder(settings.model) : arguments.out,
                    lab::Columns::standard);
}

void add_training(CLI::App& command, StretchArguments& arguments) {
  lab::StretchOptions& options = arguments.options;
  command.add_option("--recipe", options.recipe, "Recipe of the models trained on the text (lamina train --list)")
      ->capture_default_str();
  command.add_option("--set", options.changes, "Change that recipe: path=value, as in lamina train; repeatable")
      ->allow_extra_args(false)
      ->take_all();
  command.add_option("--passkey-recipe", options.settings.passkey_recipe, "Recipe of the passkey models")
      ->capture_default_str();
  command.add_option("--set-passkey", options.settings.passkey_set, "Change that recipe: path=value; repeatable")
      ->allow_extra_args(false)
      ->take_all();
  command.add_option("--jobs", arguments.jobs, "Concurrent runs; 0: one per core (default)")->check(at_least(0));
  command.add_option("--threads", arguments.threads, "Threads per run; 0: cores / jobs (default)")->check(at_least(0));
  command.add_option("--device", arguments.device, "Training device: cpu, cuda or cuda:N")->capture_default_str();
}

}  // namespace

void add_stretch(CLI::App& program) {
  auto arguments = std::make_shared<StretchArguments>();
  lab::StretchOptions& options = arguments->options;
  CLI::App* command = program.add_subcommand(
      "stretch",
      "Measure models beyond their training length: every position kind, or RoPE scalings of an existing model");
  command->add_option("--data", options.data, "Text or token file (.bin)")->required();
  command->add_option("--model", options.settings.model,
                      "Existing model, as in generate: nothing is trained, RoPE scalings are applied to it");
  command->add_option("--tokenizer", options.settings.tokenizer,
                      "Tokenizer of that model (default: the one next to it)");
  command->add_option("--out", arguments->out, "The study's folder (default: studies/stretch)");
  command
      ->add_option("--kinds", options.kinds,
                   "learned, sinusoidal, t5, rope, alibi, none, window; pi, ntk, dynamic_ntk, yarn (default: all)")
      ->delimiter(',');
  command->add_option("--length", options.length, "Training length (default: the recipe's, or the model's context)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command->add_option("--times", options.settings.times, "Lengths double up to this multiple of the training length")
      ->capture_default_str()
      ->check(at_least(1));
  command
      ->add_option("--tokens", options.settings.tokens,
                   "Tokens to predict at each length (default: four times the longest length)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command->add_flag("--no-passkey", arguments->no_passkey, "Measure perplexity only");
  command->add_option("--examples", options.settings.examples, "Passkeys per length and depth")
      ->capture_default_str()
      ->check(at_least(1));
  command->add_option("--depths", options.settings.depths, "Passkey depths, from the start to the end of the context")
      ->capture_default_str()
      ->check(at_least(2));
  add_training(*command, *arguments);
  command->add_flag("--show", arguments->show, "Print the study with every key and exit");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
