#include "lamina/text/template/chat_template.h"

#include <nlohmann/json.hpp>

#include "lamina/base/error.h"

namespace lamina::text {
namespace {

using nlohmann::ordered_json;

/// A macro for both default templates. Gives the text of a message's content: text, null, or a list of parts.
constexpr const char* kContentMacro =
    "{%- macro text_of(content) -%}\n"
    "{%- if content is string -%}{{ content }}\n"
    "{%- elif content is iterable -%}\n"
    "{%- for part in content -%}\n"
    "{%- if part is mapping and part.type == 'text' -%}{{ part.text }}\n"
    "{%- else -%}{{ raise_exception('The default chat template takes text only.') }}{%- endif -%}\n"
    "{%- endfor -%}\n"
    "{%- endif -%}\n"
    "{%- endmacro -%}\n"
    "{%- if tools -%}{{ raise_exception('The default chat template has no tools; give the model a chat template.') }}"
    "{%- endif -%}\n";

constexpr const char* kChatMl =
    "{%- for message in messages -%}\n"
    "{{ '<|im_start|>' + message.role + '\\n' + text_of(message.content) + '<|im_end|>\\n' }}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}\n";

constexpr const char* kPlain =
    "{%- for message in messages -%}\n"
    "{{ message.role + ': ' + text_of(message.content) + '\\n' }}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{ 'assistant:' }}{%- endif -%}\n";

bool is_given(const ordered_json& context, const char* key) {
  const auto found = context.find(key);
  return found != context.end() && !found->is_null();
}

/// The variables that templates can use; the same as in transformers' apply_chat_template.
ordered_json variables_for(const ordered_json& context, const std::map<std::string, std::string>& special_tokens) {
  ordered_json variables = {{"tools", nullptr}, {"documents", nullptr}, {"add_generation_prompt", false}};
  for (const auto& [name, token] : special_tokens) variables[name] = token;
  for (const auto& [key, value] : context.items()) {
    if (key != "chat_template_kwargs") variables[key] = value;
  }
  if (is_given(context, "chat_template_kwargs")) {
    const ordered_json& more = context["chat_template_kwargs"];
    LAMINA_CHECK(more.is_object(), "chat_template_kwargs: expected an object, got ", more.type_name());
    for (const auto& [key, value] : more.items()) {
      LAMINA_CHECK(key != "messages",
                   "chat_template_kwargs: \"messages\" is not allowed here; move it to the top level of the request");
      variables[key] = value;
    }
  }
  return variables;
}

}  // namespace

void ChatTemplate::add(const std::string& name, std::string_view source, const std::string& file) {
  const std::string label = name == "default" ? file : file + " (" + name + ")";
  templates_.insert_or_assign(name, jinja::Template::parse(source, label));
}

ChatTemplate ChatTemplate::parse(std::string_view source, const std::string& name) {
  ChatTemplate result;
  result.add("default", source, name);
  return result;
}

ChatTemplate ChatTemplate::chatml() {
  ChatTemplate result = parse(std::string(kContentMacro) + kChatMl, "default chat template (ChatML)");
  result.stop_strings_ = {"<|im_end|>"};
  return result;
}

ChatTemplate ChatTemplate::plain() {
  ChatTemplate result = parse(std::string(kContentMacro) + kPlain, "default chat template (plain)");
  result.stop_strings_ = {"\nuser:", "\nsystem:", "\nassistant:"};
  return result;
}

ChatTemplate ChatTemplate::default_for(const Tokenizer& tokenizer) {
  return tokenizer.id_of("<|im_start|>") && tokenizer.id_of("<|im_end|>") ? chatml() : plain();
}

const jinja::Template& ChatTemplate::choose(const std::string& name, bool has_tools) const {
  const auto found =
      templates_.find(name.empty() ? (has_tools && templates_.contains("tool_use") ? "tool_use" : "default") : name);
  if (found != templates_.end()) return found->second;
  std::string known;
  for (const std::string& one : names()) known += (known.empty() ? "" : ", ") + one;
  throw Error(str("chat template '", name.empty() ? "default" : name, "' does not exist; this model has: ", known));
}

std::string ChatTemplate::render(const ordered_json& context, const RenderOptions& options,
                                 const std::string& name) const {
  LAMINA_CHECK(context.is_object(), "chat template: expected a JSON object with \"messages\", got ",
               context.type_name());
  LAMINA_CHECK(context.contains("messages") && context["messages"].is_array(),
               "messages: expected a list of objects with \"role\" and \"content\"");
  const ordered_json variables = variables_for(context, special_tokens_);
  const bool has_tools = is_given(variables, "tools");
  return choose(name, has_tools).render(variables, options);
}

std::vector<std::string> ChatTemplate::names() const {
  std::vector<std::string> all;
  for (const auto& [name, one] : templates_) all.push_back(name);
  return all;
}

}  // namespace lamina::text
