#include <algorithm>
#include <nlohmann/json.hpp>

#include "lamina/base/crc32c.h"
#include "lamina/base/files.h"
#include "lamina/io/safetensors.h"
#include "lamina/io/safetensors_header.h"

namespace lamina::io {
namespace {

/// Sorts by descending element size, which keeps every tensor aligned.
NamedTensors in_file_order(const std::string& path, NamedTensors tensors) {
  for (const auto& [name, tensor] : tensors) {
    LAMINA_CHECK(tensor.defined(), path, ": tensor '", name, "' is undefined; leave it out or give it a value");
    LAMINA_CHECK(!tensor.is_meta(), path, ": tensor '", name, "' is on meta and has no values to write");
    LAMINA_CHECK(name != "__metadata__", path, ": a tensor cannot be called __metadata__; rename it");
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    const size_t size_a = size_of(a.tensor.dtype());
    const size_t size_b = size_of(b.tensor.dtype());
    return size_a != size_b ? size_a > size_b : a.name < b.name;
  });
  return tensors;
}

std::string header_of(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    LAMINA_CHECK(!header.contains(name), path, ": two tensors are called '", name, "'; names must differ");
    const int64_t end = offset + tensor.nbytes();
    nlohmann::json& entry = header[name];
    entry["dtype"] = safetensors_name(tensor.dtype());
    entry["shape"] = std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end());
    entry["data_offsets"] = {offset, end};
    offset = end;
  }
  try {
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    return text;
  } catch (const nlohmann::json::exception& error) {
    throw Error(str(path, ": a name or the metadata cannot be written as JSON (", error.what(), "); use UTF-8"));
  }
}

}  // namespace

WrittenFile write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata,
                              const Progress& progress) {
  const NamedTensors ordered = in_file_order(path, tensors);
  const std::string header = header_of(path, ordered, metadata);
  const auto length = static_cast<uint64_t>(header.size());
  const Device host = Device::cpu(1);
  NewFile file(path);
  WrittenFile written;
  const auto write = [&](const void* from, size_t bytes) {
    file.write(from, bytes);
    written.bytes += bytes;
    written.crc32c = crc32c(from, bytes, written.crc32c);
  };
  write(&length, sizeof length);
  write(header.data(), header.size());
  int64_t done = 0;
  int64_t total = 0;
  for (const auto& [name, tensor] : ordered) total += tensor.nbytes();
  for (const auto& [name, tensor] : ordered) {
    const Tensor dense = tensor.detach().to(host).contiguous();
    if (dense.numel() > 0) write(dense.raw(), static_cast<size_t>(dense.nbytes()));
    done += dense.nbytes();
    if (progress) progress(done, total);
  }
  file.publish();
  return written;
}

}  // namespace lamina::io
