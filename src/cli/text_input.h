#pragma once

#include <string>

#include "lamina/text/tokenizer.h"

namespace lamina::cli {

/// Reads all of standard input.
std::string read_stdin();
/// Reads a file or pipe; "-" is standard input.
std::string read_input(const std::string& path);

/// Prints to standard error which characters of `source` are not in the vocabulary, and how often they occur. Prints
/// nothing if there are none.
void report_unknown(const std::string& source, const text::UnknownCharacters& unknown);

}  // namespace lamina::cli
