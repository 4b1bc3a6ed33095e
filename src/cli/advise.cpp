#include "lamina/lab/advise/advise.h"

#include <cstdio>

#include "lamina/base/files.h"
#include "lamina/cli/amounts.h"
#include "lamina/cli/commands.h"
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
};

void run(AdviseArguments arguments) {
  lab::Question& question = arguments.question;
  if (!arguments.parameters.empty()) question.parameters = count_from(arguments.parameters, "--parameters");
  if (!arguments.data.empty()) question.data = count_from(arguments.data, "--data");
  if (arguments.memory == "here") {
    question.memory = train::available_memory();
    LAMINA_CHECK(question.memory, "--memory here: this system does not say what it has; give a size such as 8GB");
  } else if (!arguments.memory.empty()) {
    question.memory = static_cast<double>(bytes_from(arguments.memory, "--memory"));
  }
  LAMINA_CHECK(arguments.out.empty() || arguments.out.ends_with(".json"), "--out ", arguments.out,
               ": expected a name ending in .json");
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
      "advise",
      "From what you need to an architecture, with the reasons and how sure they are (docs/guides/report.md)");
  command->add_option("--parameters", arguments->parameters, "At most so many: 10M, 1.5B");
  command->add_option("--memory", arguments->memory, "Of the machine that trains: 8GB; `here` for this one's");
  command->add_option("--data", arguments->data, "Tokens to learn from: 300k, 10B");
  command->add_option("--context", question.context, "Tokens it must see at once")
      ->capture_default_str()
      ->check(at_least(1));
  command->add_option("--vocabulary", question.vocabulary, "Tokens of a tokenizer you have (default: by the size)")
      ->check(at_least(1));
  command->add_option("--first", question.first, "What matters most: quality, speed or simple")->capture_default_str();
  command->add_flag("--extrapolate", question.extrapolate, "It must read texts longer than those it was trained with");
  command->add_flag("--generate", question.generate, "The memory is that of a machine that generates, not trains");
  command->add_option("--out", arguments->out, "Also write the architecture into this .json file, for every command");
  command->add_flag("--json", arguments->json, "Print everything as JSON");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
