// Reads the chat template of a model folder.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/base/json.h"
#include "lamina/text/template/chat_template.h"

namespace lamina::text {
namespace {

std::vector<std::filesystem::path> jinja_files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".jinja") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

/// Adds a template that is given as text, a list of {"name", "template"}, or an object of names and templates.
void ChatTemplate::add_json(const nlohmann::ordered_json& value, const std::string& file) {
  if (value.is_string()) {
    add("default", value.get_ref<const std::string&>(), file);
  } else if (value.is_array()) {
    for (const auto& entry : value) {
      const bool valid = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                         entry.contains("template") && entry["template"].is_string();
      LAMINA_CHECK(valid, file,
                   ": \"chat_template\" has an entry without name and template: ", entry.dump().substr(0, 80));
      add(entry["name"].get<std::string>(), entry["template"].get_ref<const std::string&>(), file);
    }
  } else {
    LAMINA_CHECK(value.is_object(), file, ": \"chat_template\" is ", value.type_name(),
                 "; expected a text or a list of named templates");
    for (const auto& [name, source] : value.items()) {
      LAMINA_CHECK(source.is_string(), file, ": the chat template \"", name, "\" is ", source.type_name(),
                   "; expected a text");
      add(name, source.get_ref<const std::string&>(), file);
    }
  }
}

void ChatTemplate::read_tokenizer_config(const nlohmann::ordered_json& config) {
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const auto found = config.find(name);
    if (found == config.end()) continue;
    if (found->is_string()) special_tokens_[name] = found->get<std::string>();
    if (found->is_object() && found->contains("content") && (*found)["content"].is_string()) {
      special_tokens_[name] = (*found)["content"].get<std::string>();
    }
  }
}

std::optional<ChatTemplate> ChatTemplate::from_folder(const std::string& folder) {
  using nlohmann::ordered_json;
  const std::filesystem::path path(folder);
  const std::string jinja_file = (path / "chat_template.jinja").string();
  const std::string json_file = (path / "chat_template.json").string();
  const std::string config_file = (path / "tokenizer_config.json").string();
  ordered_json config = ordered_json::object();
  if (file_exists(config_file)) {
    config = read_json_file<ordered_json>(config_file);
    LAMINA_CHECK(config.is_object(), config_file, ": expected a JSON object");
  }
  ChatTemplate result;
  result.read_tokenizer_config(config);
  if (file_exists(jinja_file)) {
    result.add("default", read_text(jinja_file), jinja_file);
    for (const auto& file : jinja_files_in(path / "additional_chat_templates")) {
      result.add(file.stem().string(), read_text(file.string()), file.string());
    }
  } else if (file_exists(json_file)) {
    const auto tree = read_json_file<ordered_json>(json_file);
    LAMINA_CHECK(tree.is_object() && tree.contains("chat_template"), json_file,
                 ": expected a JSON object with \"chat_template\"");
    result.add_json(tree["chat_template"], json_file);
  } else if (config.contains("chat_template") && !config["chat_template"].is_null()) {
    result.add_json(config["chat_template"], config_file);
  }
  if (result.templates_.empty()) return {};
  return result;
}

}  // namespace lamina::text
