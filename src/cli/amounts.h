#pragma once

#include <cstdint>
#include <string>

namespace lamina::cli {

/// "5GB", "300MB", "1000000": bytes. An Error names the option.
int64_t bytes_from(const std::string& text, const std::string& option);
/// "10M", "1.5B", "300k", "1000000": how many. An Error names the option.
double count_from(const std::string& text, const std::string& option);

}  // namespace lamina::cli
