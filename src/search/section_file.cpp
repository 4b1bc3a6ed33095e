#include "lamina/search/section_file.h"

#include <algorithm>
#include <fstream>

#include "lamina/base/crc32c.h"

namespace lamina::search {
namespace {

uint32_t checksum_of(SectionHeader header) {
  header.checksum = 0;
  return crc32c(&header, sizeof(header));
}

}  // namespace

SectionWriter::SectionWriter(const std::string& path, std::string_view kind) : file_(path) {
  std::memcpy(header_.magic, kSectionMagic, sizeof(kSectionMagic));
  header_.version = kSectionVersion;
  std::memcpy(header_.kind, kind.data(), std::min(kind.size(), sizeof(header_.kind)));
  file_.write(&header_, sizeof(header_));
  end_ = sizeof(header_);
}

void SectionWriter::add_bytes(std::string_view name, const void* from, size_t bytes) {
  LAMINA_CHECK(header_.sections < kMaxSections && !name.empty() && name.size() <= sizeof(SectionEntry::name),
               "section ", name, ": too many sections or a wrong name (internal error, please report it)");
  constexpr std::array<char, kSectionAlign> kZeros{};
  const uint64_t padding = (kSectionAlign - end_ % kSectionAlign) % kSectionAlign;
  file_.write(kZeros.data(), padding);
  end_ += padding;
  SectionEntry& entry = header_.table[header_.sections++];
  std::memcpy(entry.name, name.data(), name.size());
  entry.offset = end_;
  entry.bytes = bytes;
  entry.checksum = crc32c(from, bytes);
  if (bytes > 0) file_.write(from, bytes);
  end_ += bytes;
}

void SectionWriter::publish() {
  header_.file_bytes = end_;
  header_.checksum = checksum_of(header_);
  file_.write_at(0, &header_, sizeof(header_));
  file_.publish();
}

SectionFile SectionFile::open(const std::string& path, std::string_view kind) {
  return parse(map_file(path, "a file of an index"), path, kind);
}

bool is_section_file(const std::string& path, std::string_view kind) {
  std::array<char, 16> start{};
  std::ifstream file(path, std::ios::binary);
  file.read(start.data(), start.size());
  const std::string_view text(start.data(), start.size());
  return file.good() && text.starts_with(std::string_view(kSectionMagic, sizeof(kSectionMagic))) &&
         text.substr(12) == kind;
}

SectionFile SectionFile::parse(MappedFile mapped, const std::string& name, std::string_view kind) {
  SectionHeader header;
  LAMINA_CHECK(mapped.bytes.size() >= sizeof(header), name, ": has ", mapped.bytes.size(), " bytes, expected at least ",
               sizeof(header), "; the file is cut off or no index file");
  std::memcpy(&header, mapped.bytes.data(), sizeof(header));
  LAMINA_CHECK(std::memcmp(header.magic, kSectionMagic, sizeof(kSectionMagic)) == 0, name,
               ": does not begin with LAMINDEX; expected a file that `lamina index` wrote");
  LAMINA_CHECK(header.version == kSectionVersion, name, ": has format version ", header.version,
               ", this program reads ", kSectionVersion, "; build the index again with this version");
  LAMINA_CHECK(header.checksum == checksum_of(header), name, ": the header is damaged; build the index again");
  LAMINA_CHECK(std::string_view(header.kind, sizeof(header.kind)) == kind, name, ": is of kind ",
               std::string(header.kind, 4), ", expected ", kind, "; give another file");
  LAMINA_CHECK(header.file_bytes == mapped.bytes.size(), name, ": has ", mapped.bytes.size(),
               " bytes, its header says ", header.file_bytes, "; the file is cut off. Build the index again");
  LAMINA_CHECK(header.sections <= kMaxSections, name, ": has ", header.sections, " sections, expected at most ",
               kMaxSections, "; build the index again");
  SectionFile file;
  for (size_t i = 0; i < header.sections; ++i) {
    const SectionEntry& entry = header.table[i];
    const std::string title(entry.name, std::find(entry.name, entry.name + sizeof(entry.name), '\0'));
    LAMINA_CHECK(entry.offset % kSectionAlign == 0 && entry.offset <= mapped.bytes.size() &&
                     entry.bytes <= mapped.bytes.size() - entry.offset,
                 name, ": section ", i, " lies outside the file; build the index again");
    const std::span<const std::byte> bytes = mapped.bytes.subspan(entry.offset, entry.bytes);
    LAMINA_CHECK(crc32c(bytes.data(), bytes.size()) == entry.checksum, name, ": section ", i,
                 " has another checksum than the file says; it is damaged. Build the index again");
    LAMINA_CHECK(file.sections_.emplace(title, bytes).second, name, ": has two sections of one name");
  }
  file.mapped_ = std::move(mapped);
  file.name_ = name;
  return file;
}

std::span<const std::byte> SectionFile::find(const std::string& name) const {
  const auto found = sections_.find(name);
  LAMINA_CHECK(found != sections_.end(), name_, ": has no section ", name, "; build the index again");
  return found->second;
}

}  // namespace lamina::search
