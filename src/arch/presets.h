#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// A file of presets/, held inside the library.
struct PresetFile {
  std::string_view name;  ///< without .json
  std::string_view text;
};
/// Sorted by name; made by cmake/EmbedPresets.cmake.
std::span<const PresetFile> preset_files();

std::vector<std::string> preset_names();

/// An architecture file: a whole architecture, or {"base": preset, "about": …, "set": {path: value, …}}.
/// Throws SpecError with every problem; not resolved.
ArchSpec read_arch(std::string_view text, const std::string& name);

/// A preset by name; an unknown one is an Error that names the nearest.
ArchSpec load_preset(const std::string& name);

/// A file where the argument ends in .json or holds a slash, a preset otherwise.
ArchSpec load_arch(const std::string& preset_or_file);

}  // namespace lamina::arch
