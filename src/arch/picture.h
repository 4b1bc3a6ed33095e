#pragma once

#include <string>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// One drawing of an architecture.
struct Picture {
  std::string name;  ///< "model", "block A", …
  std::string svg;
};
/// The model from tokens to logits, then each different block as it is wired, as drawings of their own: a page can set
/// them side by side or one below the other.
std::vector<Picture> draw_parts(const ArchSpec& resolved);

/// The same drawings one below the other, in characters for a terminal.
std::string draw_text(const ArchSpec& resolved, const std::string& title);

/// An SVG of a resolved architecture: the model from tokens to logits, and each different block as it is wired.
std::string draw(const ArchSpec& resolved, const std::string& title);

}  // namespace lamina::arch
