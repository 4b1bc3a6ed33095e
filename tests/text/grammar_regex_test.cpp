// Regular expressions as grammars, against PCRE2 on random expressions and texts.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <gtest/gtest.h>
#include <pcre2.h>

#include <memory>
#include <random>

#include "lamina/base/error.h"
#include "lamina/text/grammar/grammar.h"

namespace lamina::text {
namespace {

std::string message_of_regex(const std::string& pattern) {
  try {
    Grammar::regex(pattern);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(GrammarRegex, MatchesTheWholeText) {
  const auto matches = [](const char* pattern, const char* text) { return Grammar::regex(pattern).matches(text); };
  EXPECT_TRUE(matches("ab+c?", "abb"));
  EXPECT_FALSE(matches("ab+c?", "abbcc"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_TRUE(matches("(foo|ba[rz])*", "foobazbar"));
  EXPECT_TRUE(matches("^a{2,3}$", "aaa"));
  EXPECT_FALSE(matches("^a{2,3}$", "aaaa"));
  EXPECT_TRUE(matches("(^a|b)c", "ac"));
  EXPECT_FALSE(matches("x(^a|b)c", "xac"));
  EXPECT_TRUE(matches("(a$|b)c?", "a"));
  EXPECT_FALSE(matches("(a$|b)c?", "ac"));
  EXPECT_TRUE(matches("[^a-z]", "é"));
  EXPECT_FALSE(matches("[^a-z]", "\xC3"));  // half a character
  EXPECT_TRUE(matches("\\p{Lu}\\p{Ll}+", "Ärger"));
  EXPECT_FALSE(matches("\\p{Lu}\\p{Ll}+", "ärger"));
  EXPECT_TRUE(matches("\\u00e9\\x41\\t\\.", "éA\t."));
  EXPECT_TRUE(matches("\\uD83D\\uDE00", "😀"));
  EXPECT_TRUE(matches(".", "\xF4\x8F\xBF\xBF"));
  EXPECT_TRUE(matches("a{,3}", "a{,3}"));  // not a repetition
  EXPECT_TRUE(matches("(?<year>\\d{4})-(?:0[1-9]|1[0-2])", "2024-12"));
}

TEST(GrammarRegex, NamesWhatIsNotSupported) {
  EXPECT_NE(message_of_regex("(?=a)b").find("look-ahead"), std::string::npos);
  EXPECT_NE(message_of_regex("(?<!a)b").find("look-behind"), std::string::npos);
  EXPECT_NE(message_of_regex("(a)\\1").find("back-reference"), std::string::npos);
  EXPECT_NE(message_of_regex("\\bword").find("\\b"), std::string::npos);
  EXPECT_NE(message_of_regex("a++").find("possessive"), std::string::npos);
  EXPECT_NE(message_of_regex("(?i)a").find("group"), std::string::npos);
  EXPECT_NE(message_of_regex("[[:alpha:]]").find("POSIX"), std::string::npos);
  EXPECT_NE(message_of_regex("*a").find("nothing to repeat"), std::string::npos);
  EXPECT_NE(message_of_regex("(a").find("not closed"), std::string::npos);
  EXPECT_NE(message_of_regex("a)").find("unmatched"), std::string::npos);
  EXPECT_NE(message_of_regex("[a").find("not closed"), std::string::npos);
  EXPECT_NE(message_of_regex("[z-a]").find("ends before"), std::string::npos);
  EXPECT_NE(message_of_regex("a{3,2}").find("below its minimum"), std::string::npos);
  EXPECT_NE(message_of_regex("\\p{Klingon}").find("Klingon"), std::string::npos);
  EXPECT_NE(message_of_regex("[]").find("matches no text"), std::string::npos);
  EXPECT_NE(message_of_regex("\xFF").find("UTF-8"), std::string::npos);
}

TEST(GrammarRegex, HasLimits) {
  EXPECT_NE(message_of_regex("a{1,100000000}").find("states"), std::string::npos);
  EXPECT_NE(message_of_regex("((a{1000}){1000}){1000}").find("states"), std::string::npos);
  EXPECT_NE(message_of_regex(std::string(60'000, '(')).find("nested"), std::string::npos);
  EXPECT_NE(message_of_regex(std::string(30'000, '(') + std::string(30'000, ')')).find("nested"), std::string::npos);
  EXPECT_NE(message_of_regex(std::string(100'000, 'a')).find("bytes"), std::string::npos);
  // A deterministic automaton would have 2^20 states; only those that a text needs are made.
  const Grammar grammar = Grammar::regex("(a|b)*a(a|b){20}");
  EXPECT_TRUE(grammar.matches("bbba" + std::string(20, 'b')));
  EXPECT_FALSE(grammar.matches("bbbb" + std::string(20, 'b')));
}

class RandomRegex {
 public:
  explicit RandomRegex(uint32_t seed) : random_(seed) {}
  std::string make(int depth) {
    switch (depth <= 0 ? below(5) : below(12)) {
      case 0: return "a";
      case 1: return "b";
      case 2: return "é";
      case 3: return below(2) == 0 ? "[ab]" : "[^b漢]";
      case 4: return below(2) == 0 ? "\\d" : "[a-c0-3é]";
      case 5: return "(?:" + make(depth - 1) + "|" + make(depth - 1) + ")";
      case 6: return "(" + make(depth - 1) + "|" + make(depth - 1) + "|)";
      case 7: return "(?:" + make(depth - 1) + ")*";
      case 8: return "(?:" + make(depth - 1) + ")" + (below(2) == 0 ? "+" : "+?");
      case 9:
        return "(?:" + make(depth - 1) + "){" + std::to_string(below(3)) + "," + std::to_string(2 + below(3)) + "}";
      case 10: return below(6) == 0 ? (below(2) == 0 ? "^" : "$") : make(depth - 1);
      default: return make(depth - 1) + make(depth - 1);
    }
  }
  std::string text() {
    static const char* const kPieces[] = {"a", "b", "é", "漢", "1", "c"};
    std::string result;
    for (size_t n = below(7); n > 0; --n) result += kPieces[below(6)];
    return result;
  }
  size_t below(size_t n) { return random_() % n; }

 private:
  std::mt19937 random_;
};

TEST(GrammarRegex, AgreesWithPcre2) {
  RandomRegex random(7);
  int compared = 0;
  int matched = 0;
  for (int i = 0; i < 1500; ++i) {
    const std::string pattern = random.make(4);
    int code = 0;
    PCRE2_SIZE offset = 0;
    const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> regex(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                      PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_DOLLAR_ENDONLY, &code, &offset, nullptr),
        pcre2_code_free);
    ASSERT_NE(regex, nullptr) << pattern;
    const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
        pcre2_match_data_create_from_pattern(regex.get(), nullptr), pcre2_match_data_free);
    std::unique_ptr<Grammar> grammar;
    try {
      grammar = std::make_unique<Grammar>(Grammar::regex(pattern));
    } catch (const Error& error) {  // an anchor in the middle may leave nothing
      EXPECT_NE(std::string(error.what()).find("matches no text"), std::string::npos)
          << pattern << ": " << error.what();
    }
    for (int t = 0; t < 12; ++t) {
      const std::string text = random.text();
      const int found =
          pcre2_match(regex.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, data.get(), nullptr);
      if (found < PCRE2_ERROR_NOMATCH) continue;  // PCRE2 gave up at its backtracking limit
      const bool ours = grammar != nullptr && grammar->matches(text);
      ASSERT_EQ(ours, found >= 0) << pattern << " on \"" << text << '"';
      ++compared;
      matched += ours ? 1 : 0;
    }
  }
  EXPECT_GT(compared, 10'000);
  EXPECT_GT(matched, 1'000);
}

}  // namespace
}  // namespace lamina::text
