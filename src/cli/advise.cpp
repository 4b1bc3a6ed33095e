#include "lamina/lab/advise/advise.h"

#include <cstdio>

#include "lamina/base/files.h"
#include "lamina/cli/amounts.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/language_option.h"
#include "lamina/cli/usage.h"
#include "lamina/train/memory.h"

namespace lamina::cli {
namespace {

struct AdviseArguments {
  lab::Question question;
  std::string parameters;
  std::string memory;
  std::string data;
  std::string out;
  bool json = false;
  std::string language = "en";
};

void run(AdviseArguments arguments) {
  lab::Question& question = arguments.question;
  if (!arguments.parameters.empty()) question.parameters = count_from(arguments.parameters, "--parameters");
  if (!arguments.data.empty()) question.data = count_from(arguments.data, "--data");
  if (arguments.memory == "here") {
    question.memory = train::available_memory();
    LAMINA_CHECK(question.memory, "--memory here: cannot determine this machine's memory; give a size such as 8GB");
  } else if (!arguments.memory.empty()) {
    question.memory = static_cast<double>(bytes_from(arguments.memory, "--memory"));
  }
  LAMINA_CHECK(arguments.out.empty() || arguments.out.ends_with(".json"), "--out ", arguments.out,
               ": expected a file name ending in .json");
  question.language = lab::language_named(arguments.language);
  lab::Recommendation advised = lab::advise(question);
  advised.file = arguments.out;
  if (!advised.file.empty()) write_text(advised.file, advised.architecture_file());
  std::fputs((arguments.json ? lab::to_json_text(advised) : lab::to_text(advised)).c_str(), stdout);
}

}  // namespace

void add_advise(CLI::App& program) {
  auto arguments = std::make_shared<AdviseArguments>();
  lab::Question& question = arguments->question;
  CLI::App* command = program.add_subcommand(
      "advise", "Recommend an architecture for your requirements, with reasons and evidence (docs/guides/report.md)");
  command->add_option("--parameters", arguments->parameters, "Parameter limit: 10M, 1.5B");
  command->add_option("--memory", arguments->memory, "Memory of the training machine: 8GB; `here` for this machine");
  command->add_option("--data", arguments->data, "Training tokens: 300k, 10B");
  command->add_option("--context", question.context, "Context length in tokens")
      ->capture_default_str()
      ->check(at_least(1));
  command
      ->add_option("--vocabulary", question.vocabulary, "Vocabulary of your tokenizer (default: chosen by model size)")
      ->check(at_least(1));
  command->add_option("--first", question.first, "Priority: quality, balanced, speed or simple")->capture_default_str();
  command->add_flag("--extrapolate", question.extrapolate, "The model must read texts longer than its training length");
  command->add_flag("--generate", question.generate, "The memory limit is for generation, not for training");
  command->add_option("--out", arguments->out,
                      "Also write the architecture to this .json file, which every command accepts");
  command->add_flag("--json", arguments->json, "Print everything as JSON");
  add_language_option(*command, arguments->language);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
