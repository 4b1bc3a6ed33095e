#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "lamina/io/hf.h"
#include "lamina/io/hf/family.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace lamina::testing {

inline std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_all(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// Type, shape and bytes of every tensor.
using Contents = std::map<std::string, std::string>;
inline Contents contents_of(const NamedTensors& tensors) {
  Contents contents;
  for (const auto& [name, tensor] : tensors) {
    const Tensor dense = tensor.contiguous();
    std::string bytes(static_cast<size_t>(dense.nbytes()), '\0');
    if (!bytes.empty()) std::memcpy(bytes.data(), dense.raw(), bytes.size());
    contents[name] = str(dense.dtype(), dense.shape()) + bytes;
  }
  return contents;
}
inline Contents contents_of(const std::string& file) {
  return contents_of(io::SafetensorsFile::open(file, Device::cpu(1)).tensors());
}

/// A tensor of consecutive numbers that start at `first`, so that every element is distinct.
inline Tensor numbered(const Shape& shape, float first = 0, DType dtype = DType::f32) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  return Tensor::from(values, shape, Device::cpu(1)).to(dtype);
}

/// Writes a folder for the configuration with every tensor that its family stores. Tensors in `given` are used as they
/// are; others are numbered.
inline void write_folder(const std::string& folder, const std::string& config, const NamedTensors& given = {}) {
  std::filesystem::create_directory(folder);
  write_all(folder + "/config.json", config);
  const io::hf::Config read = io::hf::read_config(config, "config.json");
  NamedTensors tensors;
  float first = 0;
  for (const io::hf::Stored& stored : io::hf::stored_tensors(read.family->names, read.spec)) {
    Tensor tensor = numbered(stored.shape, first += 1000);
    for (const auto& [name, values] : given) {
      if (name == stored.name) tensor = values;
    }
    tensors.push_back({stored.name, tensor});
  }
  io::write_safetensors(folder + "/model.safetensors", tensors);
}

inline Tensor tensor_of(const io::Checkpoint& checkpoint, const std::string& name) {
  for (const auto& [key, tensor] : checkpoint.tensors) {
    if (key == name) return tensor;
  }
  throw Error("no tensor " + name);
}

/// The first element of each row of a matrix.
inline std::vector<float> first_column(const Tensor& matrix) {
  return matrix.slice(1, 0, 1).contiguous().to_vector<float>();
}

}  // namespace lamina::testing
