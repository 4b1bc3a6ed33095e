#pragma once

#include <string>

#include "lamina/arch/problem.h"
#include "lamina/arch/spec.h"

namespace lamina::arch {

/// Fills every option that has a default or follows from others (head_dim, d_ff, a layer's norm and position, …) and
/// checks all rules. Throws SpecError with every violation; `name` begins its message.
/// What is returned has no unset option left but those that mean "none". Resolving twice changes nothing.
ArchSpec resolve(const ArchSpec& spec, const std::string& name = "architecture");

/// The filling alone: never throws, leaves unset what cannot be derived, for the rules to report.
ArchSpec fill_defaults(ArchSpec spec);

}  // namespace lamina::arch
