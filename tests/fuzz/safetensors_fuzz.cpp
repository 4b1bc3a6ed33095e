// Reads any bytes as a safetensors file: gives an Error, or tensors whose elements can all be read.
#include <cstdint>
#include <cstring>

#include "lamina/io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const lamina::Device device = lamina::Device::cpu(1);
  // An exact-size copy, so that AddressSanitizer detects reads beyond its end.
  const std::shared_ptr<std::byte[]> bytes(new std::byte[size]);
  if (size > 0) std::memcpy(bytes.get(), data, size);
  try {
    const auto file = lamina::io::SafetensorsFile::parse({bytes.get(), size}, "fuzz", device, bytes);
    for (const auto& entry : file.tensors()) {
      lamina::visit_dtype(entry.tensor.dtype(),
                          [&](auto tag) { (void)entry.tensor.template to_vector<typename decltype(tag)::type>(); });
    }
  } catch (const lamina::Error&) {
  }
  return 0;
}
