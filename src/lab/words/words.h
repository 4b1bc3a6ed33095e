#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lamina::lab {

/// Language of reports and advice.
enum class Language : uint8_t { en, zh };
/// Parses "en" or "zh". Throws an Error for another name.
Language language_named(const std::string& name);
/// "en", "zh".
std::string name_of(Language language);

/// A file of presets/words, embedded in the library by cmake/EmbedPresets.cmake.
struct WordsFile {
  std::string_view name;
  std::string_view text;
};
std::span<const WordsFile> words_files();

/// The texts of one language. All languages have the same keys and the same placeholders (tests/lab/words_test.cpp).
class Words {
 public:
  using Values = std::vector<std::pair<const char*, std::string>>;

  explicit Words(Language language);
  Language language() const { return language_; }
  /// The text with this key, with each {name} replaced by its value. Values may contain braces, which are not replaced.
  std::string operator()(const std::string& key, const Values& values = {}) const;
  /// The text with this key, or `otherwise` if there is none.
  std::string or_else(const std::string& key, const std::string& otherwise) const;
  const std::map<std::string, std::string>& all() const { return texts_; }

 private:
  Language language_;
  std::map<std::string, std::string> texts_;
};
const Words& words_of(Language language);

/// Replaces each {name} in `text` by its value.
std::string filled(const std::string& text, const Words::Values& values);

}  // namespace lamina::lab
