#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lamina/tensor/tensor.h"

namespace lamina::io {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using Metadata = std::map<std::string, std::string>;
/// Called with the bytes done so far and the bytes in all; may be empty.
using Progress = std::function<void(int64_t done, int64_t total)>;

/// A safetensors file: 8 bytes of little-endian header length, a JSON object {name: {dtype, shape, data_offsets}}, then
/// the elements. Opening checks everything the header says, so that a damaged or hostile file is an Error that names
/// the file and the tensor, and no tensor reaches outside the data.
/// https://huggingface.co/docs/safetensors
class SafetensorsFile {
 public:
  /// Maps the file into memory; nothing is read until a tensor's elements are. `device` must be a cpu: tensors are
  /// views of the mapping there (a write into one stays private to this process). A file that another process shortens
  /// while it is mapped cannot be guarded against; replace files by renaming, as write_safetensors does.
  static SafetensorsFile open(const std::string& path, const Device& device);
  /// The same for bytes in memory, kept alive by `owner`; `name` stands in messages.
  static SafetensorsFile parse(std::span<std::byte> bytes, const std::string& name, const Device& device,
                               std::shared_ptr<void> owner);

  /// In the order of their data.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(const std::string& name) const { return entries_.count(name) > 0; }
  DType dtype(const std::string& name) const { return entry(name).dtype; }
  const Shape& shape(const std::string& name) const { return entry(name).shape; }
  /// A view of the mapping, or a copy where the file does not align the elements.
  Tensor tensor(const std::string& name) const;
  /// Every tensor, in the order of names().
  NamedTensors tensors() const;
  const Metadata& metadata() const { return metadata_; }
  /// Gives the memory of a tensor's elements back to the system, for one that was copied: they are read from the file
  /// again when needed. No view of it may have been written to. Does nothing for bytes that are no mapped file.
  void release(const std::string& name) const;

  struct Entry {
    DType dtype = DType::f32;
    Shape shape;
    uint64_t begin = 0;  ///< bytes from the start of the data
    uint64_t end = 0;
  };

 private:
  SafetensorsFile(std::string path, const Device& device) : path_(std::move(path)), device_(device) {}
  const Entry& entry(const std::string& name) const;

  std::string path_;
  Device device_;
  std::shared_ptr<void> owner_;
  std::byte* data_ = nullptr;
  bool mapped_ = false;
  std::map<std::string, Entry> entries_;
  std::vector<std::string> names_;
  Metadata metadata_;
};

/// Writes the tensors to `path` atomically: a temporary file in the same folder, flushed to the disk and renamed, so
/// that a reader or a crash sees the old file or the new one and nothing between. Elements are laid out by descending
/// element size, then by name, so that each is aligned and equal contents give equal files.
void write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {},
                       const Progress& progress = {});

}  // namespace lamina::io
