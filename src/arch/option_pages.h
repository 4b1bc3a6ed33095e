#pragma once

#include <string>
#include <vector>

namespace lamina::arch {

/// A page of docs/options, which describes one switch of the architecture file. Formula, paper, cost and measured
/// results are written by hand. Keys, values and presets are generated, between two markers.
struct OptionPage {
  std::string name;       ///< file name without .md
  std::string title;      ///< first heading
  std::string generated;  ///< Markdown between the markers
};

/// All pages, in the order of the architecture file.
std::vector<OptionPage> option_pages();

/// Replaces the generated part in a page's text. An empty text gives a new page with only its title. Throws an Error
/// that begins with `name` if a marker is missing.
std::string with_generated_part(const std::string& text, const OptionPage& page, const std::string& name);

/// The index, docs/options/README.md: every page with its title and its paths.
std::string option_index();

}  // namespace lamina::arch
