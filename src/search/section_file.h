#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/base/mapped_file.h"

namespace lamina::search {

// A file of named sections, memory-mapped for reading (docs/reference/index-format.md). All numbers are little-endian.

inline constexpr char kSectionMagic[8] = {'L', 'A', 'M', 'I', 'N', 'D', 'E', 'X'};
inline constexpr uint32_t kSectionVersion = 1;
inline constexpr size_t kMaxSections = 32;
inline constexpr size_t kSectionAlign = 64;

/// An entry of the table after the header.
struct SectionEntry {
  char name[16] = {};   ///< padded with zeros
  uint64_t offset = 0;  ///< from the start of the file; a multiple of kSectionAlign
  uint64_t bytes = 0;
  uint32_t checksum = 0;  ///< CRC-32C of the bytes
  uint32_t reserved = 0;
};

/// The start of the file, including the table of sections.
struct SectionHeader {
  char magic[8] = {};
  uint32_t version = 0;
  char kind[4] = {};  ///< "SEGM" or "KNNS"
  uint32_t sections = 0;
  uint32_t checksum = 0;  ///< CRC-32C of the header, with this field set to 0
  uint64_t file_bytes = 0;
  std::array<SectionEntry, kMaxSections> table;
};
static_assert(sizeof(SectionEntry) == 40 && sizeof(SectionHeader) == 32 + 40 * kMaxSections);

/// Writes a section file atomically (NewFile).
class SectionWriter {
 public:
  /// `kind` must have four characters.
  SectionWriter(const std::string& path, std::string_view kind);

  template <class T>
  void add(std::string_view name, std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    add_bytes(name, values.data(), values.size_bytes());
  }
  /// Completes the file. Without this call no file appears.
  void publish();

 private:
  void add_bytes(std::string_view name, const void* from, size_t bytes);

  NewFile file_;
  SectionHeader header_;
  uint64_t end_ = 0;
};

/// A memory-mapped section file. open() verifies all checksums.
class SectionFile {
 public:
  SectionFile() = default;
  /// Throws an Error unless the file is complete, undamaged and of this kind.
  static SectionFile open(const std::string& path, std::string_view kind);
  /// Like open(), for bytes in memory. `name` is used in messages.
  static SectionFile parse(MappedFile mapped, const std::string& name, std::string_view kind);

  bool has(const std::string& name) const { return sections_.contains(name); }
  /// A section as values of type T. Throws an Error if it is missing, ends with a partial value, or has fewer than
  /// `least` values.
  template <class T>
  std::span<const T> section(const std::string& name, size_t least = 0) const {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::span<const std::byte> bytes = find(name);
    LAMINA_CHECK(bytes.size() % sizeof(T) == 0 && bytes.size() / sizeof(T) >= least, name_, ": section ", name, " has ",
                 bytes.size(), " bytes, expected values of ", sizeof(T), " bytes, at least ", least,
                 "; build the index again");
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  /// Like section(), but requires exactly `count` values.
  template <class T>
  std::span<const T> section_of(const std::string& name, size_t count) const {
    const std::span<const T> values = section<T>(name);
    LAMINA_CHECK(values.size() == count, name_, ": section ", name, " has ", values.size(), " values, expected ", count,
                 "; build the index again");
    return values;
  }
  const std::string& name() const { return name_; }
  size_t bytes() const { return mapped_.bytes.size(); }

 private:
  std::span<const std::byte> find(const std::string& name) const;

  MappedFile mapped_;
  std::string name_;
  std::map<std::string, std::span<const std::byte>> sections_;
};

/// Whether a file begins as one of this kind; it may be damaged.
bool is_section_file(const std::string& path, std::string_view kind);

/// Throws an Error unless `starts` ascends from 0 to `end`. `what` is its name in messages.
template <class T>
void check_starts(std::span<const T> starts, uint64_t end, const std::string& name, const char* what) {
  bool right = !starts.empty() && starts.front() == 0 && starts.back() == end;
  for (size_t i = 1; right && i < starts.size(); ++i) right = starts[i - 1] <= starts[i];
  LAMINA_CHECK(right, name, ": section ", what, " does not ascend from 0 to ", end, "; build the index again");
}

}  // namespace lamina::search
