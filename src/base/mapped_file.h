#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace lamina {

/// A file in memory: nothing is read until its bytes are. Private and writable: an operator that writes into a tensor
/// over it changes its own copy of the page, never the file.
struct MappedFile {
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;  ///< keeps the bytes valid
};
/// What is not a regular file that may be read is an Error. `expected` says in messages what it should be.
MappedFile map_file(const std::string& path, const char* expected);

}  // namespace lamina
