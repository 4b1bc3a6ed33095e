#include <gtest/gtest.h>

#include "lamina/base/error.h"
#include "lamina/text/grammar/grammar.h"

namespace lamina::text {
namespace {

std::string message_of_gbnf(const std::string& grammar) {
  try {
    Grammar::gbnf(grammar);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// From llama.cpp's documentation.
constexpr const char* kArithmetic = R"gbnf(
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*   # left to right
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
)gbnf";

TEST(Gbnf, MatchesArithmetic) {
  const Grammar grammar = Grammar::gbnf(kArithmetic);
  EXPECT_TRUE(grammar.matches("a +(2 *b )=  3\n"));
  EXPECT_TRUE(grammar.matches("((((x))))=y\nz=1\n"));
  EXPECT_FALSE(grammar.matches("a +(2 *b =  3\n"));
  EXPECT_FALSE(grammar.matches("a = 3"));
  EXPECT_FALSE(grammar.matches(""));
}

TEST(Gbnf, ReadsEveryConstruct) {
  const Grammar grammar = Grammar::gbnf(
      "root ::= \"\\x41\\u00e9\\U0001F600\\\"\\\\\" [^a-c\\]] .? item{2} item{1,} item{,2}\n"
      "  | \"second\"\n"
      "item ::= (\n    \"x\"\n    | [y-z]\n  )\n");
  EXPECT_TRUE(grammar.matches("Aé😀\"\\d.xyz"));
  EXPECT_TRUE(grammar.matches("Aé😀\"\\dxyzyx"));
  EXPECT_FALSE(grammar.matches("Aé😀\"\\bxyz"));
  EXPECT_FALSE(grammar.matches("Aé😀\"\\dxy"));
  EXPECT_TRUE(grammar.matches("second"));
}

TEST(Gbnf, CountsLargeRepetitions) {
  const Grammar grammar = Grammar::gbnf("root ::= \"[\" pair{3,5000} \"]\"\npair ::= [ab] [cd]\n");
  const auto text = [](size_t n) {
    std::string pairs = "[";
    for (size_t i = 0; i < n; ++i) pairs += i % 2 == 0 ? "ac" : "bd";
    return pairs + "]";
  };
  EXPECT_FALSE(grammar.matches(text(2)));
  EXPECT_TRUE(grammar.matches(text(3)));
  EXPECT_TRUE(grammar.matches(text(5000)));
  EXPECT_FALSE(grammar.matches(text(5001)));
  EXPECT_TRUE(Grammar::gbnf("root ::= \"a\"{1,100000000}").matches("aaa"));
  EXPECT_TRUE(Grammar::gbnf("root ::= (\"a\"?){2,40} \"b\"").matches("b"));
  EXPECT_TRUE(Grammar::gbnf("root ::= \"a\"{100,}").matches(std::string(321, 'a')));
  EXPECT_FALSE(Grammar::gbnf("root ::= \"a\"{100,}").matches(std::string(99, 'a')));
}

TEST(Gbnf, NamesErrors) {
  EXPECT_NE(message_of_gbnf("start ::= \"a\"").find("no rule root"), std::string::npos);
  EXPECT_NE(message_of_gbnf("root ::= itme\nitem ::= \"a\"").find("did you mean item"), std::string::npos);
  EXPECT_NE(message_of_gbnf("root ::= \"a\"\nroot ::= \"b\"").find("twice"), std::string::npos);
  EXPECT_NE(message_of_gbnf("root ::= \"a").find("not closed"), std::string::npos);
  EXPECT_NE(message_of_gbnf("root ::= (\"a\"").find("not closed"), std::string::npos);
  EXPECT_NE(message_of_gbnf("root ::= [a").find("not closed"), std::string::npos);
  EXPECT_NE(message_of_gbnf("root ::= \"\\q\"").find("escape"), std::string::npos);
  EXPECT_NE(message_of_gbnf("root ::= <think>").find("tokens"), std::string::npos);
  EXPECT_NE(message_of_gbnf("root := \"a\"").find("::="), std::string::npos);
  EXPECT_NE(message_of_gbnf("root ::= \"a\" )").find("unexpected"), std::string::npos);
  EXPECT_NE(message_of_gbnf("root ::= \"a\"\nroot2 ::= \"a").find("line 2, column"), std::string::npos);
}

TEST(Gbnf, RefusesLeftRecursion) {
  EXPECT_NE(message_of_gbnf("root ::= root \"a\" | \"b\"").find("root refers to itself"), std::string::npos);
  const std::string hidden = message_of_gbnf("root ::= x root \"a\" | \"b\"\nx ::= \"c\"?\n");
  EXPECT_NE(hidden.find("refers to itself"), std::string::npos);
  const std::string cycle = message_of_gbnf("root ::= one\none ::= two \"a\" | \"x\"\ntwo ::= one | \"b\"\n");
  EXPECT_NE(cycle.find("one → two → one"), std::string::npos) << cycle;
  EXPECT_NE(message_of_gbnf("root ::= root").find("matches no text"), std::string::npos);
}

TEST(Gbnf, HasLimits) {
  EXPECT_NE(message_of_gbnf("root ::= " + std::string(60'000, '(')).find("nested"), std::string::npos);
  EXPECT_NE(message_of_gbnf("root ::= (((\"a\"?){9999}){9999}){9999}").find("states"), std::string::npos);
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 10'000; ++i) chain += "r" + std::to_string(i) + " ::= \"a\" r" + std::to_string(i + 1) + "\n";
  EXPECT_TRUE(Grammar::gbnf(chain + "r10000 ::= \"b\"\n").matches(std::string(10'000, 'a') + "b"));
  // Ambiguous without bound: every "x" may be followed by "b" or "c" later.
  const Grammar ambiguous = Grammar::gbnf("root ::= \"x\" root \"b\" | \"x\" root \"c\" | \"\"\n");
  EXPECT_TRUE(ambiguous.matches("xxxbcb"));
  // Stacks of both kinds of rules double with every "x": an Error, not endless work.
  const Grammar doubling =
      Grammar::gbnf("root ::= a | b\na ::= \"x\" root \"1\" | \"y\"\nb ::= \"x\" root \"2\" | \"y\"\n");
  EXPECT_TRUE(doubling.matches("xxy12"));
  EXPECT_THROW(doubling.matches(std::string(100, 'x')), Error);
}

}  // namespace
}  // namespace lamina::text
