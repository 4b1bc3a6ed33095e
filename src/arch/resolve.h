#pragma once

#include <string>

#include "lamina/arch/problem.h"
#include "lamina/arch/spec.h"

namespace lamina::arch {

/// Fills every option that has a default or follows from others (head_dim, d_ff, a layer's norm and position, …) and
/// checks all rules. Throws SpecError with every violation; its message starts with `name`. In the result only options
/// that mean "none" are unset. Idempotent.
ArchSpec resolve(const ArchSpec& spec, const std::string& name = "architecture");

/// Fills defaults without checks: never throws, and leaves unset what cannot be derived, for the rules to report.
ArchSpec fill_defaults(ArchSpec spec);

}  // namespace lamina::arch
