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

/// Converts a conversation to one text, in the format that a model expects. Consists of one or several named Jinja
/// templates ("default", "tool_use", "rag"), special tokens as their variables, and stop strings. Immutable: threads
/// share one without locks.
class ChatTemplate {
 public:
  /// Throws TemplateError.
  static ChatTemplate parse(std::string_view source, const std::string& name = "chat template");

  /// Reads the template of a model folder from the first of these that exists: chat_template.jinja (others in
  /// additional_chat_templates), chat_template.json, "chat_template" in tokenizer_config.json. Returns nullopt if there
  /// is none.
  static std::optional<ChatTemplate> from_folder(const std::string& folder);

  /// The default for models without a template: chatml() if the vocabulary has <|im_start|> and <|im_end|>, otherwise
  /// plain().
  static ChatTemplate default_for(const Tokenizer& tokenizer);
  static ChatTemplate chatml();  ///< "<|im_start|>user\n…<|im_end|>\n"
  static ChatTemplate plain();   ///< "user: …\n", which a base model can continue

  /// Renders a conversation. `context` is a JSON object with "messages" (required), "tools", "documents",
  /// "add_generation_prompt", and any other variable. "chat_template_kwargs" is an object with more variables. `name`
  /// selects a named template; by default it is tool_use if there are tools, and default otherwise. Throws
  /// TemplateError.
  std::string render(const nlohmann::ordered_json& context, const RenderOptions& options = {},
                     const std::string& name = "") const;

  std::vector<std::string> names() const;  ///< names of the templates, sorted
  /// Texts at which generation ends, in addition to the EOS token.
  const std::vector<std::string>& stop_strings() const { return stop_strings_; }
  /// Special tokens by the names that templates use: bos_token, eos_token and others.
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
