#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lamina/tensor/named_tensor.h"

namespace lamina::io {

using Metadata = std::map<std::string, std::string>;  ///< Free text, by key.
/// Called with the number of bytes done and the total. May be empty.
using Progress = std::function<void(int64_t done, int64_t total)>;

/// A safetensors file: an 8-byte little-endian header length, a JSON object {name: {dtype, shape, data_offsets}}, then
/// the elements (https://huggingface.co/docs/safetensors). Opening it validates the whole header. A damaged or hostile
/// file is an Error that names the file and the tensor; no tensor can reach outside the data.
class SafetensorsFile {
 public:
  /// Maps the file; pages are read on first access. `device` must be a CPU. Tensors are copy-on-write views of the
  /// mapping. If another process truncates the file, reading a view crashes. To replace a file safely, rename a new one
  /// over it, as write_safetensors() does.
  static SafetensorsFile open(const std::string& path, const Device& device);
  /// Like open(), for bytes in memory that `owner` keeps alive. `name` is used in messages.
  static SafetensorsFile parse(std::span<std::byte> bytes, const std::string& name, const Device& device,
                               std::shared_ptr<void> owner);

  /// Names of the tensors, in the order of their data.
  const std::vector<std::string>& names() const { return names_; }
  /// Whether there is a tensor of this name.
  bool contains(const std::string& name) const { return entries_.count(name) > 0; }
  DType dtype(const std::string& name) const { return entry(name).dtype; }         ///< type of a tensor in the file
  const Shape& shape(const std::string& name) const { return entry(name).shape; }  ///< shape of a tensor in the file
  /// A view of the mapping, or a copy if the elements are not aligned in the file.
  Tensor tensor(const std::string& name) const;
  /// All tensors, in the order of names().
  NamedTensors tensors() const;
  const Metadata& metadata() const { return metadata_; }  ///< the file's __metadata__
  /// Releases the mapped pages of a tensor that was copied. Later reads load them from the file again. No view of it
  /// may have been written to. Does nothing if the bytes are not a mapped file.
  void release(const std::string& name) const;

  /// Position and type of one tensor in the file.
  struct Entry {
    DType dtype = DType::f32;  ///< element type
    Shape shape;               ///< extents
    uint64_t begin = 0;        ///< bytes from the start of the data
    uint64_t end = 0;          ///< end of the tensor: one past its last byte
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

/// Size and checksum of a file that was written.
struct WrittenFile {
  uint64_t bytes = 0;   ///< size of the file
  uint32_t crc32c = 0;  ///< checksum of all bytes (base/crc32c.h)
};

/// Writes the tensors to `path` atomically: to a temporary file in the same folder, which is flushed to disk and
/// renamed. A reader sees the old or the new file, even after a crash. Tensors are sorted by descending element size,
/// then by name. So each one is aligned, and equal contents give equal files.
WrittenFile write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {},
                              const Progress& progress = {});

}  // namespace lamina::io
