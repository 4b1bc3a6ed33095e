#pragma once

#include <cstdint>
#include <string>

namespace lamina::cli {

/// Parses a number of bytes: "5GB", "300MB", "1000000". Errors name the option.
int64_t bytes_from(const std::string& text, const std::string& option);
/// Parses a count: "10M", "1.5B", "300k", "1000000". Errors name the option.
double count_from(const std::string& text, const std::string& option);

}  // namespace lamina::cli
