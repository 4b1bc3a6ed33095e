// Reads any bytes as a Hugging Face config.json, as an architecture file, and as the settings of sentence-transformers:
// gives a result or an Error. If a family can express the architecture, it is written and read back unchanged.
#include <cstdint>
#include <string>

#include "lamina/arch/json.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/io/hf/family.h"
#include "lamina/io/hf/sentence_transformers.h"

namespace {

void read_settings(const std::string& text) {
  namespace io = lamina::io;
  const auto tolerate = [](const auto& read) {
    try {
      read();
    } catch (const lamina::Error&) {
    }
  };
  io::VectorRecipe recipe;
  tolerate([&] {
    if (io::parse_modules(text, "fuzz").size() < 2) __builtin_trap();
  });
  tolerate([&] { io::parse_pooling(text, "fuzz", 32, recipe); });
  tolerate([&] {
    io::parse_text_limits(text, "fuzz", recipe);
    if (recipe.max_tokens && *recipe.max_tokens < 1) __builtin_trap();
  });
  tolerate([&] {
    io::VectorRecipe prompts;
    io::parse_prompts(text, "fuzz", prompts);
    if (!prompts.default_prompt.empty() && !prompts.prompts.contains(prompts.default_prompt)) __builtin_trap();
  });
}

}  // namespace

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
  read_settings(text);
  return 0;
}
