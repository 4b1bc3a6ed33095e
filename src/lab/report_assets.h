#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lamina::lab {

/// A file of web/ as a page carries it, held inside the library: report.css, page.js, and charts.js where the chart
/// library could be bundled when the library was built (docs/dependencies.md).
struct ReportAsset {
  std::string_view name;
  std::string_view text;
};
/// Made by cmake/EmbedPresets.cmake.
std::span<const ReportAsset> report_assets();

}  // namespace lamina::lab
