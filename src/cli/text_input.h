#pragma once

#include <string>

#include "lamina/text/tokenizer.h"

namespace lamina::cli {

/// All of standard input.
std::string read_stdin();
/// The text of a file or pipe; "-" is standard input.
std::string read_input(const std::string& path);

/// Prints to standard error which characters of `source` the vocabulary does not have, and how often; nothing if it
/// has all of them.
void report_unknown(const std::string& source, const text::UnknownCharacters& unknown);

}  // namespace lamina::cli
