#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "lamina/base/error.h"

namespace lamina::cli {

/// An invalid command line. The program prints the message and exits with kUsage, as it does for an unknown option.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// Exit codes of the program.
enum ExitCode : int {
  kSuccess = 0,
  kFailure = 1,
  kUsage = 2,
  kRestart = 75,  ///< another process of the job was lost, so restart all of them (EX_TEMPFAIL of sysexits.h)
};

/// Validator for an integer. Validators run while the command line is parsed, before the command prints anything.
CLI::Validator at_least(int64_t least);
/// Validator for a number in [low, high] or, with `above_low`, in (low, high].
CLI::Validator between(double low, double high, bool above_low = false);

/// Throws a UsageError that suggests the nearest command if `arguments` names an unknown command of `program`.
void check_command(const CLI::App& program, const std::vector<std::string>& arguments);
/// Adds `help [COMMAND…]`, equivalent to COMMAND --help.
void add_help(CLI::App& program);
/// The message for a command line that CLI11 rejected. Suggests the nearest option if one was misspelled.
std::string message_of(const CLI::App& program, const CLI::ParseError& error);

}  // namespace lamina::cli
