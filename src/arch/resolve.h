#pragma once

#include <string>

#include "lamina/arch/problem.h"
#include "lamina/arch/spec.h"

namespace lamina::arch {

/// Fills every option that has a default or follows from others (head_dim, d_ff, a layer's norm and position, …), and
/// checks all rules. Throws a SpecError that starts with `name` and lists every violation. In the result, an option is
/// unset only if that means "none". Idempotent.
ArchSpec resolve(const ArchSpec& spec, const std::string& name = "architecture");

/// Fills defaults without checks. Never throws. Leaves unset what it cannot derive; the rules report that.
ArchSpec fill_defaults(ArchSpec spec);

}  // namespace lamina::arch
