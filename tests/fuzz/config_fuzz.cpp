// Reads any bytes as a Hugging Face config.json and as an architecture file: gives an architecture or an Error. If a
// family can express the result, it is written and read back unchanged.
#include <cstdint>
#include <string>

#include "lamina/arch/json.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/io/hf/family.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const lamina::io::hf::Config config = lamina::io::hf::read_config(text, "fuzz");
    const std::string written =
        lamina::io::hf::write_config(*config.family, config.spec, config.tokens, lamina::DType::f32);
    lamina::arch::ArchSpec again = lamina::io::hf::read_config(written, "fuzz").spec;
    if (!config.family->states_context) again.context = config.spec.context;
    if (!(lamina::io::hf::canonical(again) == lamina::io::hf::canonical(config.spec))) __builtin_trap();
  } catch (const lamina::Error&) {
  }
  try {
    const lamina::arch::ArchSpec spec = lamina::arch::resolve(lamina::arch::read_arch(text, "fuzz"));
    const std::string written = lamina::arch::write_spec(spec, lamina::arch::Defaults::write);
    if (!(lamina::arch::read_spec(written, "fuzz") == spec)) __builtin_trap();
  } catch (const lamina::Error&) {
  }
  return 0;
}
