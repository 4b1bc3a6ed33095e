#pragma once

#include <optional>
#include <string>

#include "lamina/arch/advice.h"
#include "lamina/arch/cost.h"
#include "lamina/arch/count.h"

namespace lamina::arch {

/// Sizes and types that a plan is computed for.
struct PlanOptions {
  int64_t batch = 1;         ///< number of sequences at once
  int64_t length = 0;        ///< 0: the model's context, at most 4096
  int bytes_per_number = 4;  ///< size of a weight or activation
};

/// Everything that can be computed about an architecture without building the model.
struct Plan {
  std::string name;                      ///< name of the preset or file
  ArchSpec spec;                         ///< resolved
  PlanOptions options;                   ///< the given options, with the length filled in
  int64_t layers = 0;                    ///< number of layers
  ParameterCount parameters;             ///< exact, by component
  Flops flops;                           ///< per token
  std::vector<CacheRow> cache;           ///< KV cache or state, by layer group
  std::optional<TrainingMemory> memory;  ///< filled in by train/memory.h
  std::vector<Advice> advice;            ///< rules of thumb about the architecture's shape
};

/// Throws an Error if an option is out of range.
Plan make_plan(const std::string& name, const ArchSpec& resolved, PlanOptions options);

std::string to_text(const Plan& plan);       ///< The plan as `lamina plan` prints it.
std::string to_json_text(const Plan& plan);  ///< The plan as JSON, as `lamina plan --json` prints it.

/// Human-readable numbers: "1,234,567", "6.74B", "13.5 GB".
std::string with_commas(int64_t value);
std::string short_number(double value);  ///< "6.74B"
std::string short_bytes(double value);   ///< "13.5 GB"

}  // namespace lamina::arch
