#pragma once

#include <string>

namespace lamina::lab::report {

// Everything in a results file may hold any character: these make texts harmless where they come to stand.

/// For the text and the quoted attributes of HTML.
std::string html(const std::string& text);
/// JSON inside a <script> element, which would end at "</script" even within a JSON string.
std::string script_json(const std::string& json);
/// A cell of a Markdown table, or a line of text.
std::string markdown(const std::string& text);
/// A field of CSV (RFC 4180).
std::string csv(const std::string& text);
/// An address that holds the bytes themselves.
std::string data_address(const std::string& type, const std::string& bytes);

}  // namespace lamina::lab::report
