#pragma once

#include <string>
#include <vector>

namespace lamina::lab::report {

// A results file may contain any character. These functions escape text for its output format.

/// Escapes for HTML text and quoted attributes.
std::string html(const std::string& text);
/// Escapes JSON for a <script> element, which "</script" would end even inside a JSON string.
std::string script_json(const std::string& json);
/// Escapes for a Markdown table cell or a line of text.
std::string markdown(const std::string& text);
/// Escapes a CSV field (RFC 4180).
std::string csv(const std::string& text);
/// A line of a CSV file.
std::string csv_line(const std::vector<std::string>& fields);
/// Encodes bytes as a data: URL.
std::string data_address(const std::string& type, const std::string& bytes);

}  // namespace lamina::lab::report
