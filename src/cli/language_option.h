#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace lamina::cli {

/// Adds --lang en|zh.
inline void add_language_option(CLI::App& command, std::string& language) {
  command.add_option("--lang", language, "Language: en or zh (Chinese)")
      ->capture_default_str()
      ->check(CLI::IsMember({"en", "zh"}));
}

}  // namespace lamina::cli
