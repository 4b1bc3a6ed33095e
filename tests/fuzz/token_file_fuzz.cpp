// Reads any bytes as a token file: gives an Error, or a file whose tokens and documents can all be read.
#include <cstdint>
#include <cstring>
#include <vector>

#include "lamina/base/crc32c.h"
#include "lamina/base/error.h"
#include "lamina/data/batches.h"
#include "lamina/data/token_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // An exact-size copy, so that AddressSanitizer detects reads beyond its end.
  const std::shared_ptr<std::byte[]> bytes(new std::byte[size]);
  if (size > 0) std::memcpy(bytes.get(), data, size);
  if (size >= sizeof(lamina::data::TokenHeader)) {
    // A fuzzer cannot guess checksums. A valid one is inserted, so that it reaches the code after the check.
    const size_t checked = lamina::data::kCheckedHeaderBytes;
    const uint32_t checksum = lamina::crc32c(bytes.get(), checked);
    if (std::memcmp(bytes.get(), lamina::data::kTokenMagic, 8) == 0) std::memcpy(&bytes[checked], &checksum, 4);
  }
  try {
    const auto file = lamina::data::TokenFile::parse({{bytes.get(), size}, bytes}, "fuzz");
    for (int64_t document = 0; document < file.document_count(); ++document) {
      (void)file.document_of(file.document_start(document));
    }
    std::vector<int64_t> ids(static_cast<size_t>(file.size()));
    file.read(0, ids);
    (void)lamina::data::Batches(file, {2, 3, lamina::data::Order::packed, 1}).at(5);
  } catch (const lamina::Error&) {
  }
  return 0;
}
