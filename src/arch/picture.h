#pragma once

#include <string>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// One of several drawings of an architecture.
struct Picture {
  std::string name;  ///< "model", "block A", …
  std::string svg;
};
/// Separate drawings: the model from tokens to logits, then each different block. A page can place them next to or
/// below each other.
std::vector<Picture> draw_parts(const ArchSpec& resolved);

/// The drawings of draw_parts() one below the other, in characters for a terminal.
std::string draw_text(const ArchSpec& resolved, const std::string& title);

/// One SVG of a resolved architecture: the model from tokens to logits, and each different block.
std::string draw(const ArchSpec& resolved, const std::string& title);

}  // namespace lamina::arch
