#pragma once

#include <CLI/CLI.hpp>

#include "lamina/lab/report/report.h"

namespace lamina::cli {

/// --columns, for commands that print a study's table.
inline void add_columns_option(CLI::App& command, std::string& columns) {
  command
      .add_option("--columns", columns,
                  "Table columns: standard (loss, perplexity, tokens/s, memory, parameters) or all")
      ->check(CLI::IsMember({"standard", "all"}))
      ->capture_default_str();
}
inline lab::Columns columns_from(const std::string& columns) {
  return columns == "all" ? lab::Columns::all : lab::Columns::standard;
}

}  // namespace lamina::cli
