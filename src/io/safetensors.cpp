#include "lamina/io/safetensors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstring>

#include "lamina/base/mapped_file.h"
#include "lamina/io/safetensors_header.h"

namespace lamina::io {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors holds little-endian elements");

constexpr uint64_t kLengthBytes = 8;
/// Size limit of a header, as in the reference reader. Enough for about a million tensors.
constexpr uint64_t kLargestHeader = 100'000'000;

}  // namespace

SafetensorsFile SafetensorsFile::parse(std::span<std::byte> bytes, const std::string& name, const Device& device,
                                       std::shared_ptr<void> owner) {
  LAMINA_CHECK(device.kind() == DeviceKind::cpu, name, ": opened on ", device,
               "; open it on a cpu device and move the tensors with to(device)");
  LAMINA_CHECK(bytes.size() >= kLengthBytes, name, ": has ", bytes.size(), " bytes; a safetensors file has at least ",
               kLengthBytes, "; it is cut short, fetch it again");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  LAMINA_CHECK(length <= kLargestHeader && length <= bytes.size() - kLengthBytes, name, ": claims a header of ", length,
               " bytes in a file of ", bytes.size(),
               "; it is cut short or not a safetensors file, check the name or fetch it again");
  const std::string_view json(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  SafetensorsHeader header = parse_safetensors_header(json, bytes.size() - kLengthBytes - length, name);
  SafetensorsFile file(name, device);
  file.owner_ = std::move(owner);
  file.data_ = bytes.data() + kLengthBytes + length;
  file.entries_ = std::move(header.entries);
  file.names_ = std::move(header.names);
  file.metadata_ = std::move(header.metadata);
  return file;
}

SafetensorsFile SafetensorsFile::open(const std::string& path, const Device& device) {
  MappedFile mapped = map_file(path, "a safetensors file");
  SafetensorsFile file = parse(mapped.bytes, path, device, std::move(mapped.owner));
  file.mapped_ = true;
  return file;
}

const SafetensorsFile::Entry& SafetensorsFile::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found != entries_.end()) return found->second;
  std::string hint;
  for (const std::string& candidate : names_) {
    if (hint.empty() && is_near(name, candidate)) hint = str("; did you mean '", candidate, "'?");
  }
  throw Error(str(path_, ": has no tensor '", name, "' among its ", names_.size(), hint));
}

Tensor SafetensorsFile::tensor(const std::string& name) const {
  const Entry& found = entry(name);
  if (found.begin == found.end) return Tensor::empty(found.shape, found.dtype, device_);
  std::byte* first = data_ + found.begin;
  if (reinterpret_cast<uintptr_t>(first) % size_of(found.dtype) == 0) {
    return Tensor::borrow(first, found.shape, found.dtype, device_, owner_);
  }
  Tensor copy = Tensor::empty(found.shape, found.dtype, device_);
  std::memcpy(copy.raw(), first, found.end - found.begin);
  return copy;
}

void SafetensorsFile::release(const std::string& name) const {
  const Entry& found = entry(name);
  if (!mapped_) return;
  // Release only whole pages inside the tensor: the first and last page may also hold other tensors.
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data_ + found.begin) + page - 1) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(data_ + found.end) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // NOLINT
}

NamedTensors SafetensorsFile::tensors() const {
  NamedTensors all;
  for (const std::string& name : names_) all.push_back({name, tensor(name)});
  return all;
}

}  // namespace lamina::io
