// String tables of reports and advice: every language has every key, with the same placeholders.
#include "lamina/lab/words/words.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "lamina/base/files.h"
#include "lamina/lab/advise/advise.h"
#include "lamina/lab/advise/guide.h"
#include "lamina/lab/report/report.h"
#include "support/error_of.h"

namespace lamina::lab {
namespace {

using lamina::testing::error_of;

std::multiset<std::string> names_in(const std::string& text) {
  static const std::regex kName("\\{(\\w+)\\}");
  std::multiset<std::string> names;
  for (std::sregex_iterator at(text.begin(), text.end(), kName), end; at != end; ++at) names.insert((*at)[1]);
  return names;
}

TEST(WordsTest, NoLanguageMissesAKeyOrAPlaceholder) {
  const auto& english = words_of(Language::en).all();
  const auto& chinese = words_of(Language::zh).all();
  ASSERT_GT(english.size(), 200U);
  for (const auto& [key, text] : english) {
    ASSERT_TRUE(chinese.contains(key)) << key;
    EXPECT_FALSE(chinese.at(key).empty()) << key;
    EXPECT_EQ(names_in(text), names_in(chinese.at(key))) << key;
  }
  for (const auto& [key, text] : chinese) EXPECT_TRUE(english.contains(key)) << key;
}

// Keys in the sources: words("key") and words()("key") in C++, t("key") in the scripts.
TEST(WordsTest, EveryKeyOfTheSourcesExists) {
  const std::string root = LAMINA_SOURCE_DIR;
  const std::regex used("(?:words|words\\(\\)|words_of\\([^)]*\\)|[^a-z]t)\\(\"([a-z_. ]+)\"[,)]");
  size_t found = 0;
  for (const char* folder : {"/src/lab", "/web/charts"}) {
    for (const auto& file : std::filesystem::recursive_directory_iterator(root + folder)) {
      if (!file.is_regular_file()) continue;
      const std::string text = read_text(file.path().string());
      for (std::sregex_iterator at(text.begin(), text.end(), used), end; at != end; ++at) {
        const std::string key = (*at)[1];
        if (key.ends_with(".")) continue;  // the start of a key
        ++found;
        EXPECT_TRUE(words_of(Language::en).all().contains(key)) << key << " in " << file.path();
      }
    }
  }
  EXPECT_GT(found, 100U);
}

TEST(WordsTest, PlaceholdersAreFilledOnceAndUnknownKeysAreErrors) {
  EXPECT_EQ(filled("{a} and {b} and {c}", {{"a", "{b}"}, {"b", "2"}}), "{b} and 2 and {c}");
  EXPECT_EQ(words_of(Language::en)("interval", {{"low", "1"}, {"high", "2"}}), "1 to 2");
  EXPECT_NE(error_of([] { words_of(Language::zh)("no.such"); }).find("no.such"), std::string::npos);
  EXPECT_NE(error_of([] { language_named("fr"); }).find("expected en or zh"), std::string::npos);
}

/// Whether a text has a Chinese character.
bool is_chinese(const std::string& text) { return std::regex_search(text, std::regex("[\xE4-\xE9][\x80-\xBF]{2}")); }

TEST(WordsTest, TheTranslatedGuideHasEveryText) {
  const Guide& english = guide(Language::en);
  const Guide& chinese = guide(Language::zh);
  ASSERT_EQ(english.rules.size(), chinese.rules.size());
  for (size_t i = 0; i < english.rules.size(); ++i) {
    const Reason& said = chinese.rules[i].said;
    EXPECT_TRUE(is_chinese(said.advice)) << said.subject;
    EXPECT_TRUE(is_chinese(said.reason)) << said.subject;
    EXPECT_EQ(said.evidence.size(), english.rules[i].said.evidence.size());
    EXPECT_EQ(chinese.rules[i].assignments, english.rules[i].assignments);
  }
  // A translation that lost a rule, a text or a placeholder is refused.
  const auto refused = [&](const char* path, const nlohmann::json& value) {
    return error_of([&] {
      nlohmann::json json =
          nlohmann::json::parse(read_text(std::string(LAMINA_SOURCE_DIR) + "/presets/advice/guide-zh.json"));
      json[nlohmann::json::json_pointer(path)] = value;
      Guide copy = english;
      translate(copy, json.dump());
    });
  };
  EXPECT_EQ(refused("/about", "x"), "");
  EXPECT_NE(refused("/rules/tied/evidence", nlohmann::json::array()).find("pieces of evidence"), std::string::npos);
  EXPECT_NE(refused("/rules/start-quality/advice", "x").find("other placeholders"), std::string::npos);
  EXPECT_NE(refused("/rules/another", nlohmann::json::object()).find("rules"), std::string::npos);
}

TEST(WordsTest, AdviceInChineseIsTheSameAdvice) {
  Question question{.parameters = 1e7, .context = 256};
  const Recommendation english = advise(question);
  question.language = Language::zh;
  const Recommendation chinese = advise(question);
  EXPECT_EQ(english.assignments, chinese.assignments);
  const std::string text = to_text(chinese);
  EXPECT_TRUE(text.starts_with("推荐：LLaMA 风格")) << text;
  for (const char* word : {"WHY", "NEXT", "COSTS", "measured here", "published", "rule of thumb", "{"}) {
    EXPECT_EQ(text.find(word), std::string::npos) << word;
  }
  EXPECT_NE(text.find("lamina train"), std::string::npos);
}

TEST(WordsTest, AReportInChineseHasTheSameNumbers) {
  const std::string results = read_text(std::string(LAMINA_SOURCE_DIR) + "/docs/studies/norms/results.json");
  const std::string english = report_markdown(results, "norms");
  const std::string chinese = report_markdown(results, "norms", Columns::standard, Language::zh);
  const auto numbers = [](const std::string& text) {
    // Up to the study's description, which is not translated.
    const std::string body = text.substr(0, text.find("<details>"));
    static const std::regex kNumber("[0-9]+\\.[0-9]+");
    std::multiset<std::string> all;
    for (std::sregex_iterator at(body.begin(), body.end(), kNumber), end; at != end; ++at) all.insert(at->str());
    return all;
  };
  EXPECT_GT(numbers(english).size(), 60U);
  EXPECT_EQ(numbers(english), numbers(chinese));
  for (const char* word : {"Best loss", "cannot tell", "Repeat it", "Effects"}) {
    EXPECT_EQ(chinese.find(word), std::string::npos) << word;
  }
  const std::string page = report_html(results, "norms", Language::zh);
  EXPECT_NE(page.find("<html lang=\"zh-CN\">"), std::string::npos);
  EXPECT_NE(page.find("无法判断"), std::string::npos);
}

}  // namespace
}  // namespace lamina::lab
