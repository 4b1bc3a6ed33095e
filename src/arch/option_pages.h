#pragma once

#include <string>
#include <vector>

namespace lamina::arch {

/// A page of docs/options: one switch of the architecture file. Formula, paper, cost and measured results are written
/// by hand; keys, values and presets are generated and stand between two markers.
struct OptionPage {
  std::string name;       ///< file name without .md
  std::string title;      ///< first heading
  std::string generated;  ///< Markdown between the markers
};

/// All pages, in the order of the architecture file.
std::vector<OptionPage> option_pages();

/// The text of a page with its generated part replaced. An empty text gives a new page with its title only. Throws
/// Error if a marker is missing; `name` begins the message.
std::string with_generated_part(const std::string& text, const OptionPage& page, const std::string& name);

/// The index, docs/options/README.md: every page with its title and paths.
std::string option_index();

}  // namespace lamina::arch
