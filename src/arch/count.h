#pragma once

#include <string>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// One row of the parameter table.
struct CountRow {
  std::string where;      ///< "layers[0].pattern[1]", or empty for what stands outside the layers
  std::string component;  ///< "q", "norms", "experts", …
  int64_t each = 0;       ///< parameters in one layer
  int64_t layers = 1;     ///< layers that have it
  int64_t total = 0;      ///< each · layers
  int64_t active = 0;     ///< of total, what one token meets; less only where experts are chosen
  bool product = false;   ///< holds a matrix that is multiplied with every token
};

struct ParameterCount {
  std::vector<CountRow> rows;
  int64_t total = 0;
  int64_t active = 0;
  int64_t embedding = 0;  ///< of total, the token table
};

/// The exact table of a resolved architecture, by component, in the order of the forward pass.
ParameterCount count_parameters(const ArchSpec& spec);

}  // namespace lamina::arch
