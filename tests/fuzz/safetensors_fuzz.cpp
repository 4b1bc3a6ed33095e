// Any bytes: either an Error or tensors whose every element can be read.
#include <cstdint>
#include <cstring>

#include "lamina/io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const lamina::Device device = lamina::Device::cpu(1);
  // A buffer of its own, exactly as long, so that AddressSanitizer sees a read beyond its end.
  const std::shared_ptr<std::byte[]> bytes(new std::byte[size]);
  if (size > 0) std::memcpy(bytes.get(), data, size);
  try {
    const auto file = lamina::io::SafetensorsFile::parse({bytes.get(), size}, "fuzz", device, bytes);
    for (const auto& [name, tensor] : file.tensors()) {
      lamina::visit_dtype(tensor.dtype(),
                          [&](auto tag) { (void)tensor.template to_vector<typename decltype(tag)::type>(); });
    }
  } catch (const lamina::Error&) {
  }
  return 0;
}
