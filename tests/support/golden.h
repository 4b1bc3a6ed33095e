#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lamina/base/error.h"

namespace lamina::testing {

/// f32 values of one tensor of a safetensors file, read without the library's own reader.
inline std::vector<float> golden_f32(const std::string& path, const std::string& name) {
  std::ifstream file(path, std::ios::binary);
  LAMINA_CHECK(file.good(), "cannot open ", path);
  uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof length);
  std::string header(length, ' ');
  file.read(header.data(), static_cast<std::streamsize>(length));
  const auto entry = nlohmann::json::parse(header).at(name);
  LAMINA_CHECK(entry.at("dtype") == "F32", name, " is not f32");
  const auto begin = entry.at("data_offsets").at(0).get<uint64_t>();
  const auto end = entry.at("data_offsets").at(1).get<uint64_t>();
  std::vector<float> values((end - begin) / sizeof(float));
  file.seekg(static_cast<std::streamoff>(sizeof length + length + begin));
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(end - begin));
  return values;
}

}  // namespace lamina::testing
