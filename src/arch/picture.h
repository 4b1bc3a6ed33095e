#pragma once

#include <string>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// An SVG of a resolved architecture: the model from tokens to logits, and each different block as it is wired.
std::string draw(const ArchSpec& resolved, const std::string& title);

}  // namespace lamina::arch
