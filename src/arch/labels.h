#pragma once

#include <string>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// Describes a part of a resolved architecture in a few short lines. The first line names it.
std::vector<std::string> mixer_labels(const Mixer& mixer);
std::vector<std::string> cross_labels(const CrossAttention& cross, const std::string& title);
std::vector<std::string> ffn_labels(const Ffn& ffn);
std::string norm_label(const Norm& norm);
std::string position_label(const Position& position);

}  // namespace lamina::arch
