#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "lamina/base/error.h"

namespace lamina::cli {

/// A command line that cannot be meant: the program prints the message and exits with kUsage, as for an unknown option.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// Exit codes of the program.
enum ExitCode : int { kSuccess = 0, kFailure = 1, kUsage = 2 };

/// Validator of a whole number. Refuses it while the command line is read, before the command prints anything.
CLI::Validator at_least(int64_t least);
/// Validator of a number in [low, high], or in (low, high] with `above_low`.
CLI::Validator between(double low, double high, bool above_low = false);

/// Throws a UsageError that names the nearest command if `arguments` names a command that `program` does not have.
void check_command(const CLI::App& program, const std::vector<std::string>& arguments);
/// Adds `help [COMMAND…]`, which prints what COMMAND --help prints.
void add_help(CLI::App& program);
/// The message for a command line that CLI11 refused, with the nearest option if one was misspelled.
std::string message_of(const CLI::App& program, const CLI::ParseError& error);

}  // namespace lamina::cli
