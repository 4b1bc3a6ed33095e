#pragma once

#include <optional>
#include <string>

#include "lamina/arch/advice.h"
#include "lamina/arch/cost.h"
#include "lamina/arch/count.h"

namespace lamina::arch {

struct PlanOptions {
  int64_t batch = 1;
  int64_t length = 0;  ///< 0: the context, at most 4096
  int bytes_per_number = 4;
};

/// Everything that can be said of an architecture before it is built.
struct Plan {
  std::string name;
  ArchSpec spec;  ///< resolved
  PlanOptions options;
  int64_t layers = 0;
  ParameterCount parameters;
  Flops flops;
  std::vector<CacheRow> cache;
  std::optional<TrainingMemory> memory;  ///< given by who can train (train/memory.h)
  std::vector<Advice> advice;
};

/// Throws Error when an option is out of range.
Plan make_plan(const std::string& name, const ArchSpec& resolved, PlanOptions options);

std::string to_text(const Plan& plan);
std::string to_json_text(const Plan& plan);

/// "1,234,567", "6.74B", "13.5 GB": numbers as people read them.
std::string with_commas(int64_t value);
std::string short_number(double value);
std::string short_bytes(double value);

}  // namespace lamina::arch
