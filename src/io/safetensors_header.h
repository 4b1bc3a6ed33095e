#pragma once

#include <string_view>

#include "lamina/io/safetensors.h"

namespace lamina::io {

struct SafetensorsHeader {
  std::map<std::string, SafetensorsFile::Entry> entries;
  std::vector<std::string> names;  ///< in the order of their data
  Metadata metadata;
};

/// Reads and checks the JSON header of a file whose data has `data_bytes` bytes. `path` stands in messages.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes, const std::string& path);

/// The format's name of an element type.
std::string_view safetensors_name(DType dtype);

}  // namespace lamina::io
