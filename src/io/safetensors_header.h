#pragma once

#include <string_view>

#include "lamina/io/safetensors.h"

namespace lamina::io {

/// The contents of a validated header.
struct SafetensorsHeader {
  std::map<std::string, SafetensorsFile::Entry> entries;
  std::vector<std::string> names;  ///< in the order of their data
  Metadata metadata;
};

/// Parses and validates the JSON header of a file with `data_bytes` bytes of data. `path` is used in messages.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes, const std::string& path);

/// The name of an element type in safetensors files.
std::string_view safetensors_name(DType dtype);

}  // namespace lamina::io
