// The hand-written scanners against the regular expressions that they replace, and splitting of invalid UTF-8.
#include "lamina/text/split.h"

#include <gtest/gtest.h>

#include <random>

#include "lamina/text/patterns.h"
#include "support/error_of.h"

namespace lamina::text {
namespace {

std::vector<std::string> pieces_of(const Splitter& splitter, std::string_view text) {
  std::vector<std::string> all;
  std::vector<std::string_view> some;
  for (Splitter::Pieces pieces(splitter, text); pieces.next(some);) all.insert(all.end(), some.begin(), some.end());
  return all;
}

std::vector<std::string> split(const std::string& regex, const std::string& text,
                               SplitStep::Behavior behavior = SplitStep::Behavior::isolated, bool invert = false) {
  return pieces_of(Splitter({{regex, false, behavior, invert}}, "test"), text);
}

class Scanner : public ::testing::TestWithParam<const char*> {};

TEST_P(Scanner, EqualsTheRegularExpression) {
  const std::string regex = pattern_named(GetParam()).regex;
  ASSERT_TRUE(AsciiScanner::of(regex));
  const Splitter by_hand({{regex}}, "test");
  const Splitter by_regex({{regex}}, "test", false);
  // Characters that the patterns tell apart, and some beyond ASCII of each class: letter, digit, space, mark, symbol,
  // the long s that equals s without case, and bytes that are no UTF-8.
  const std::vector<std::string> alphabet = {
      "a",    "Z", "s", "S",  "t",      "r",      "e",      "v", "L", "l",  "d",    "m",    "0",   "7",
      " ",    " ", " ", "\n", "\r",     "\t",     "\v",     "'", "'", "!",  "_",    "\\",   "\0",  "\x1C",
      "\x7F", "é", "ß", "٣",  "\u00A0", "\u3000", "\u0301", "€", "ſ", "漢", "\x85", "\xFF", "\xC3"};
  std::mt19937 random(5);
  for (int round = 0; round < 12000; ++round) {
    // Two thirds are all ASCII, so that scanning by hand is not left at once.
    const size_t letters = round % 3 == 0 ? alphabet.size() : 29;
    std::string text;
    for (size_t n = random() % 24 + 1; n > 0; --n) text += alphabet[random() % letters];
    ASSERT_EQ(pieces_of(by_hand, text), pieces_of(by_regex, text)) << ::testing::PrintToString(text);
  }
}
INSTANTIATE_TEST_SUITE_P(Patterns, Scanner, ::testing::Values("gpt2", "cl100k", "one-digit"));

TEST(Splitter, BytesThatAreNoTextArePiecesOfTheirOwn) {
  EXPECT_EQ(split(pattern_named("gpt2").regex, "ab\xFF\xFE cd\xE2\x82"),
            (std::vector<std::string>{"ab", "\xFF\xFE", " cd", "\xE2\x82"}));
  EXPECT_TRUE(pieces_of(Splitter({}, "test"), "").empty());
}

TEST(Splitter, Behaviors) {
  using Behavior = SplitStep::Behavior;
  using Pieces = std::vector<std::string>;
  const std::string text = "the-final--countdown";
  EXPECT_EQ(split("-", text), (Pieces{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split("-", text, Behavior::removed), (Pieces{"the", "final", "countdown"}));
  EXPECT_EQ(split("-", text, Behavior::merged_with_previous), (Pieces{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(split("-", text, Behavior::merged_with_next), (Pieces{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(split("-", text, Behavior::contiguous), (Pieces{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(split("[a-z]+", text, Behavior::removed, true), (Pieces{"the", "final", "countdown"}));
}

TEST(Splitter, WhatOtherLibrariesReadDifferentlyIsAnError) {
  EXPECT_NE(testing::error_of([] { split(R"(\h+)", "a"); }).find("\\h"), std::string::npos);
  EXPECT_NE(testing::error_of([] { split(R"([a-z&&[^b]])", "a"); }).find("set within a set"), std::string::npos);
  EXPECT_NE(testing::error_of([] { split("(", "a"); }).find("not a regular expression"), std::string::npos);
  // U+180E is no white space in Unicode, though it is to PCRE2.
  EXPECT_EQ(split(R"(\s+)", "a\u180E b"), (std::vector<std::string>{"a\u180E", " ", "b"}));
}

}  // namespace
}  // namespace lamina::text
