// Any bytes as a chat template: text or a TemplateError, in bounded time. The template and a conversation are separated
// by a zero byte; without one the conversation is fixed.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "lamina/base/error.h"
#include "lamina/base/json.h"
#include "lamina/text/template/chat_template.h"

namespace {

using nlohmann::ordered_json;

const ordered_json& conversation() {
  static const ordered_json fixed = ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "é 漢"}]},
                 {"role": "assistant", "content": null, "tool_calls": [{"name": "f", "arguments": {"a": [1, 2.5, true]}}]}],
    "tools": [{"name": "f", "parameters": {"properties": {"a": {"type": "array"}}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})");
  return fixed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const size_t zero = bytes.find('\0');
  lamina::text::RenderOptions options;
  options.limits.max_work = 200'000;
  options.limits.max_output = size_t{1} << 20;
  options.now.emplace();
  options.now->tm_mday = 1;
  try {
    const auto chat = lamina::text::ChatTemplate::parse(bytes.substr(0, zero));
    const auto context = zero == std::string::npos
                             ? conversation()
                             : lamina::parse_json<ordered_json>(bytes.substr(zero + 1), "conversation");
    const std::string text = chat.render(context, options);
    if (chat.render(context, options) != text) __builtin_trap();
  } catch (const lamina::Error&) {
  }
  return 0;
}
