// Input from other processes and launchers: messages of the store, call headers, node lists.
#include <cstring>

#include "lamina/comm/environment.h"
#include "lamina/comm/store.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lamina;
  const std::string text(reinterpret_cast<const char*>(data), size);
  comm::first_host(text);
  comm::decode_hello(text.substr(0, comm::kHelloBytes));
  comm::CallHeader header;
  std::memcpy(&header, data, std::min(size, sizeof header));
  comm::mismatch({}, header, 16);
  try {
    comm::read_environment([&](const char*) { return std::optional(text); });
  } catch (const Error&) {
  }
  return 0;
}
