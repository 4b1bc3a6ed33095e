#pragma once

#include <string>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// One row of the parameter table.
struct CountRow {
  std::string where;      ///< "layers[0].pattern[1]", "encoder", or empty for weights outside the layers
  std::string component;  ///< "q", "norms", "experts", …
  int64_t each = 0;       ///< parameters per layer
  int64_t layers = 1;     ///< number of layers that have it
  int64_t total = 0;      ///< each · layers
  int64_t active = 0;     ///< part of `total` that one token uses; smaller only for routed experts
  bool product = false;   ///< contains a matrix that multiplies every token
};

/// The parameter table of a model.
struct ParameterCount {
  std::vector<CountRow> rows;  ///< by component, in forward order
  int64_t total = 0;           ///< all parameters
  int64_t active = 0;          ///< parameters that one token uses; smaller than total only for routed experts
  int64_t embedding = 0;       ///< token table, part of total
};

/// The exact parameter table of a resolved architecture.
ParameterCount count_parameters(const ArchSpec& spec);

}  // namespace lamina::arch
