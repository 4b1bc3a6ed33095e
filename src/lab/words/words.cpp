#include "lamina/lab/words/words.h"

#include <nlohmann/json.hpp>

#include "lamina/base/error.h"
#include "lamina/base/json.h"

namespace lamina::lab {

Language language_named(const std::string& name) {
  LAMINA_CHECK(name == "en" || name == "zh", "language \"", name, "\": expected en or zh");
  return name == "zh" ? Language::zh : Language::en;
}

std::string name_of(Language language) { return language == Language::zh ? "zh" : "en"; }

Words::Words(Language language) : language_(language) {
  for (const WordsFile& file : words_files()) {
    if (file.name != name_of(language)) continue;
    const auto json = parse_json<nlohmann::ordered_json>(file.text, "presets/words");
    for (const auto& [key, value] : json.items()) texts_[key] = value.get<std::string>();
  }
}

std::string Words::operator()(const std::string& key, const Values& values) const {
  const auto found = texts_.find(key);
  LAMINA_CHECK(found != texts_.end(), "presets/words/", name_of(language_), ".json has no \"", key,
               "\" (internal error, please report it)");
  return values.empty() ? found->second : filled(found->second, values);
}

std::string Words::or_else(const std::string& key, const std::string& otherwise) const {
  const auto found = texts_.find(key);
  return found == texts_.end() ? otherwise : found->second;
}

std::string filled(const std::string& text, const Words::Values& values) {
  std::string result;
  size_t at = 0;
  while (at < text.size()) {
    const size_t open = std::min(text.find('{', at), text.size());
    const size_t close = text.find('}', open);
    result += text.substr(at, open - at);
    if (close == std::string::npos) return result + text.substr(open);
    const std::string name = text.substr(open + 1, close - open - 1);
    bool known = false;
    for (const auto& [key, value] : values) {
      if (name != key) continue;
      result += value;
      known = true;
    }
    if (!known) result += text.substr(open, close + 1 - open);
    at = close + 1;
  }
  return result;
}

const Words& words_of(Language language) {
  static const Words en(Language::en);
  static const Words zh(Language::zh);
  return language == Language::zh ? zh : en;
}

}  // namespace lamina::lab
