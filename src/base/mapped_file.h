#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace lamina {

/// A memory-mapped file. Pages are read on first access. The mapping is private and writable (copy-on-write), so an
/// operator that writes into a tensor over it never changes the file.
struct MappedFile {
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;  ///< keeps `bytes` valid
};
/// Throws Error unless `path` is a readable regular file. `expected` names the expected kind in messages.
MappedFile map_file(const std::string& path, const char* expected);

}  // namespace lamina
