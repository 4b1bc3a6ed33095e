#pragma once

#include <optional>
#include <string>

#include "lamina/arch/advice.h"
#include "lamina/arch/cost.h"
#include "lamina/arch/count.h"

namespace lamina::arch {

struct PlanOptions {
  int64_t batch = 1;
  int64_t length = 0;  ///< 0: the model's context, at most 4096
  int bytes_per_number = 4;
};

/// Everything that can be computed about an architecture without building it.
struct Plan {
  std::string name;
  ArchSpec spec;  ///< resolved
  PlanOptions options;
  int64_t layers = 0;
  ParameterCount parameters;
  Flops flops;
  std::vector<CacheRow> cache;
  std::optional<TrainingMemory> memory;  ///< filled in by train/memory.h
  std::vector<Advice> advice;
};

/// Throws Error if an option is out of range.
Plan make_plan(const std::string& name, const ArchSpec& resolved, PlanOptions options);

std::string to_text(const Plan& plan);
std::string to_json_text(const Plan& plan);

/// Human-readable numbers: "1,234,567", "6.74B", "13.5 GB".
std::string with_commas(int64_t value);
std::string short_number(double value);
std::string short_bytes(double value);

}  // namespace lamina::arch
