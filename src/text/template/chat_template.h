#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lamina/text/template/template.h"
#include "lamina/text/tokenizer.h"

namespace lamina::text {

using jinja::RenderOptions;
using jinja::TemplateError;

/// How a model writes a conversation as one text: one or several named Jinja templates ("default", "tool_use", "rag"),
/// its special tokens as variables, and the stop strings that go with it. Immutable: threads share one without locks.
class ChatTemplate {
 public:
  /// Throws TemplateError.
  static ChatTemplate parse(std::string_view source, const std::string& name = "chat template");

  /// Reads the template of a model folder: chat_template.jinja (others in additional_chat_templates),
  /// chat_template.json or "chat_template" in tokenizer_config.json, the first that exists. nullopt if there is none.
  static std::optional<ChatTemplate> from_folder(const std::string& folder);

  /// For models without a template: chatml() if the vocabulary has <|im_start|> and <|im_end|>, otherwise plain().
  static ChatTemplate default_for(const Tokenizer& tokenizer);
  static ChatTemplate chatml();  ///< "<|im_start|>user\n…<|im_end|>\n"
  static ChatTemplate plain();   ///< "user: …\n", which a base model can continue

  /// Renders a conversation. `context` is a JSON object: "messages" (required), "tools", "documents",
  /// "add_generation_prompt" and any other variable; "chat_template_kwargs" is an object with more of them. `name`
  /// selects a named template; without it, tool_use serves if there are tools, and default otherwise. Throws
  /// TemplateError.
  std::string render(const nlohmann::ordered_json& context, const RenderOptions& options = {},
                     const std::string& name = "") const;

  std::vector<std::string> names() const;  ///< of the templates, in alphabetical order
  /// Texts at which generation ends, besides the EOS token.
  const std::vector<std::string>& stop_strings() const { return stop_strings_; }
  /// bos_token, eos_token and others, by the name under which templates know them.
  const std::map<std::string, std::string>& special_tokens() const { return special_tokens_; }

 private:
  ChatTemplate() = default;
  void add(const std::string& name, std::string_view source, const std::string& file);
  void add_json(const nlohmann::ordered_json& value, const std::string& file);
  void read_tokenizer_config(const nlohmann::ordered_json& config);
  const jinja::Template& choose(const std::string& name, bool has_tools) const;

  std::map<std::string, jinja::Template> templates_;
  std::map<std::string, std::string> special_tokens_;
  std::vector<std::string> stop_strings_;
};

}  // namespace lamina::text
