#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "lamina/base/error.h"

namespace lamina::cli {

/// An invalid command line. The program prints the message and exits with kUsage, as for an unknown option.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// Exit codes of the program.
enum ExitCode : int {
  kSuccess = 0,
  kFailure = 1,
  kUsage = 2,
  kRestart = 75,  ///< another process of the job was lost: start all again (EX_TEMPFAIL of sysexits.h)
};

/// Validator of an integer. Runs while the command line is parsed, before the command prints anything.
CLI::Validator at_least(int64_t least);
/// Validator of a number in [low, high], or in (low, high] with `above_low`.
CLI::Validator between(double low, double high, bool above_low = false);

/// Throws UsageError with the nearest command if `arguments` names an unknown command of `program`.
void check_command(const CLI::App& program, const std::vector<std::string>& arguments);
/// Adds `help [COMMAND…]`, equivalent to COMMAND --help.
void add_help(CLI::App& program);
/// Message for a command line that CLI11 rejected, with the nearest option if one was misspelled.
std::string message_of(const CLI::App& program, const CLI::ParseError& error);

}  // namespace lamina::cli
