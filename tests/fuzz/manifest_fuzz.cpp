// Reads any bytes as a sharded checkpoint: a manifest, then the bytes of a safetensors file with its pieces, divided by
// a zero byte. Gives an Error, or tensors whose elements can all be read.
#include <cstdint>
#include <cstring>
#include <string_view>

#include "lamina/io/piece_set.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const lamina::Device device = lamina::Device::cpu(1);
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(all.find('\0'), size);
  try {
    const lamina::io::Manifest manifest = lamina::io::parse_manifest(all.substr(0, end), "fuzz");
    if (lamina::io::parse_manifest(lamina::io::manifest_text(manifest), "again") != manifest) __builtin_trap();
    const size_t begin = std::min(end + 1, size);
    const std::shared_ptr<std::byte[]> bytes(new std::byte[size - begin]);
    if (size > begin) std::memcpy(bytes.get(), data + begin, size - begin);
    const auto file = lamina::io::SafetensorsFile::parse({bytes.get(), size - begin}, "file", device, bytes);
    for (const auto& [name, group] : manifest.groups) {
      const lamina::io::PieceSet set = lamina::io::PieceSet::assemble(group, {file}, "fuzz");
      for (const std::string& tensor : set.names()) {
        const lamina::Tensor whole = set.tensor(tensor);
        lamina::visit_dtype(whole.dtype(),
                            [&](auto tag) { (void)whole.template to_vector<typename decltype(tag)::type>(); });
      }
    }
  } catch (const lamina::Error&) {
  }
  return 0;
}
