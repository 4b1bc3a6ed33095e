#include "lamina/cli/usage.h"

#include <charconv>
#include <cmath>
#include <iostream>
#include <limits>

#include "lamina/base/suggest.h"

namespace lamina::cli {
namespace {

template <class T>
bool parse(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && last == end;
}

/// did_you_mean() with the given name in quotes, for commands and options.
std::string hint_for(const std::string& given, const std::vector<std::string>& candidates) {
  const std::string nearest = nearest_of(given.substr(0, 64), candidates);
  return nearest.empty() ? did_you_mean(given, candidates) : "did you mean '" + nearest + "'?";
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

const CLI::App* command_named(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

bool takes_words(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) return true;
  }
  return false;
}

/// Full name of a command, such as "lamina bench".
std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : full_name(*app.get_parent()) + " " + app.get_name();
}

[[noreturn]] void refuse_command(const CLI::App& app, const std::string& name) {
  const std::string hint = hint_for(name, command_names(app));
  const std::string parent = app.get_parent() == nullptr ? "" : " of `" + full_name(app) + "`";
  throw UsageError(str("unknown command '", name, "'", parent, "; ",
                       hint.empty() ? "`" + full_name(app) + " --help` lists the commands" : hint));
}

/// The innermost subcommand on the command line.
const CLI::App& command_read(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? app : command_read(*commands.front());
}

void print_help(const CLI::App& program, const std::vector<std::string>& path) {
  const CLI::App* app = &program;
  for (const std::string& name : path) {
    const CLI::App* next = command_named(*app, name);
    if (next == nullptr) refuse_command(*app, name);
    app = next;
  }
  // program.help() would print the help of the `help` command itself.
  std::cout << app->get_formatter()->make_help(app, full_name(*app), CLI::AppFormatMode::Normal);
}

}  // namespace

CLI::Validator at_least(int64_t least) {
  return {[least](const std::string& text) -> std::string {
            int64_t value = 0;
            if (parse(text, value) && value >= least) return {};
            return str(text, "; expected a whole number, at least ", least);
          },
          ""};
}

CLI::Validator between(double low, double high, bool above_low) {
  return {[=](const std::string& text) -> std::string {
            double value = 0;
            if (parse(text, value) && std::isfinite(value) && (above_low ? value > low : value >= low) && value <= high)
              return {};
            const std::string bound = str(above_low ? "above " : "at least ", low);
            return str(text, "; expected a number ", bound,
                       high < std::numeric_limits<double>::max() ? str(" and at most ", high) : "");
          },
          ""};
}

void check_command(const CLI::App& program, const std::vector<std::string>& arguments) {
  const CLI::App* app = &program;
  for (const std::string& word : arguments) {
    if (word.starts_with("-") || command_names(*app).empty()) return;
    const CLI::App* next = command_named(*app, word);
    if (next == nullptr && !takes_words(*app)) refuse_command(*app, word);
    if (next == nullptr) return;
    app = next;
  }
  if (app->get_require_subcommand_min() == 0) return;
  std::string names;
  for (const std::string& name : command_names(*app)) names += (names.empty() ? "" : ", ") + name;
  throw UsageError(str("`", full_name(*app), "` needs a command: ", names));
}

void add_help(CLI::App& program) {
  auto path = std::make_shared<std::vector<std::string>>();
  CLI::App* command = program.add_subcommand("help", "Print the help of a command: lamina help train");
  command->add_option("command", *path, "The command; without one, all commands are listed");
  command->callback([&program, path] { print_help(program, *path); });
}

std::string message_of(const CLI::App& program, const CLI::ParseError& error) {
  const CLI::App& command = command_read(program);
  std::string message = error.what();
  constexpr std::string_view kRequired = " is required";
  if (message.ends_with(kRequired)) {
    const std::string name = message.substr(0, message.size() - kRequired.size());
    const CLI::Option* option = command.get_option_no_throw(name);
    if (option != nullptr) message = str(name, " is missing: ", option->get_description());
  }
  for (const std::string& word : program.remaining(/*recurse=*/true)) {
    if (!word.starts_with("--") || word == "--") continue;
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    const std::string name = word.substr(0, word.find('='));
    std::string hint = hint_for(name, names);
    if (hint.empty() && command.get_option_no_throw("--set") != nullptr) {
      hint = str("values without an option of their own are set with --set ", name.substr(2), "=VALUE");
    }
    message = str("unknown option '", word, "'", hint.empty() ? "" : "; ", hint);
    break;
  }
  return str(message, "\n`", full_name(command), " --help` lists what it takes");
}

}  // namespace lamina::cli
