#include "lamina/arch/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lamina/arch/presets.h"
#include "support/error_of.h"

namespace lamina::arch {
namespace {

std::vector<Problem> problems_of(const std::string& text) {
  try {
    read_spec(text, "mine");
  } catch (const SpecError& error) {
    return error.problems();
  }
  return {};
}

std::string message_of(const std::string& text) {
  return testing::error_of([&] { read_spec(text, "mine"); });
}

TEST(ReadSpec, everyProblemIsReportedWithItsPathAndTheNearestKey) {
  const std::vector<Problem> problems = problems_of(R"({
    "vocab_sz": 1, "d_model": "wide", "position": {"kind": "rop"}, "norm": {"kind": "rms", "epss": 1},
    "layers": [{"patern": [], "pattern": [{"mixer": {"kind": "attention", "n_head": 3}, "ffn": 7}]}],
    "head": {"tied": 1}})");
  const auto has = [&problems](const std::string& path, const std::string& words) {
    for (const Problem& problem : problems) {
      if (problem.path == path && (problem.message + problem.hint).find(words) != std::string::npos) return true;
    }
    return false;
  };
  EXPECT_EQ(problems.size(), 8U);
  EXPECT_TRUE(has("vocab_sz", "did you mean vocab_size?"));
  EXPECT_TRUE(has("d_model", "given \"wide\", expected a whole number"));
  EXPECT_TRUE(has("position.kind", "did you mean rope?"));
  EXPECT_TRUE(has("norm.epss", "did you mean eps?"));
  EXPECT_TRUE(has("layers[0].patern", "did you mean pattern?"));
  EXPECT_TRUE(has("layers[0].pattern[0].mixer.n_head", "did you mean n_heads?"));
  EXPECT_TRUE(has("layers[0].pattern[0].ffn", "one of gated, plain, moe, none"));
  EXPECT_TRUE(has("head.tied", "given 1, expected true or false"));
}

TEST(ReadSpec, aKeyOfAnotherKindIsUnknown) {
  const std::vector<Problem> problems = problems_of(R"({"position": {"kind": "alibi", "theta": 3}})");
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].path, "position.theta");
}

TEST(ReadSpec, numbersAreTakenByValue) {
  EXPECT_EQ(read_spec(R"({"d_model": 1e3})", "mine").d_model, 1000);
  EXPECT_EQ(read_spec(R"({"context": 4096.0})", "mine").context, 4096);
  EXPECT_EQ(problems_of(R"({"d_model": 1.5})").size(), 1U);
  EXPECT_EQ(problems_of(R"({"d_model": 1e300})").size(), 1U);
  EXPECT_EQ(problems_of(R"({"d_model": 18446744073709551615})").size(), 1U);
  EXPECT_EQ(problems_of(R"({"d_model": true})").size(), 1U);
  EXPECT_EQ(problems_of(R"({"position": {"kind": "rope", "theta": "1"}})").size(), 1U);
}

TEST(ReadSpec, switchesMayBeGivenAllAtOnce) {
  const auto bias_of = [](const std::string& bias) {
    const ArchSpec spec =
        read_spec(R"({"layers": [{"pattern": [{"mixer": {"kind": "attention", "bias": )" + bias + "}}]}]}", "mine");
    return std::get<Attention>(spec.layers[0].pattern[0].mixer).bias;
  };
  EXPECT_EQ(bias_of("true"), (AttentionBias{true, true, true, true}));
  EXPECT_EQ(bias_of("false"), AttentionBias{});
  EXPECT_EQ(bias_of(R"({"q": true})"), (AttentionBias{true, false, false, false}));
}

TEST(ReadSpec, whatIsNoJsonSaysWhere) {
  EXPECT_NE(message_of("{\n  \"d_model\": }").find("line 2"), std::string::npos) << message_of("{\n  \"d_model\": }");
  EXPECT_NE(message_of("").find("not JSON"), std::string::npos);
  EXPECT_NE(message_of("[]").find("expected an object"), std::string::npos);
  EXPECT_NE(message_of(R"({"d_model": 3, "d_model": 4})").find("given twice"), std::string::npos);
  EXPECT_NE(message_of(R"({"d_model": 1e999})").find("not JSON"), std::string::npos);
  EXPECT_NE(message_of(R"({"schema": 99})").find("newer lamina"), std::string::npos);
}

TEST(ReadSpec, depthAndSizeAreBounded) {
  EXPECT_NE(message_of(std::string(100000, '[')).find("levels deep"), std::string::npos);
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_NE(message_of(objects).find("levels deep"), std::string::npos);
  EXPECT_NE(message_of(std::string(kMaxJsonBytes + 1, ' ')).find("at most"), std::string::npos);
  std::string list = R"({"layers": [{}])";
  list.pop_back();
  for (int i = 0; i < 20000; ++i) list += ",{}";
  EXPECT_NE(message_of(list + "]}").find("use repeat"), std::string::npos);
}

TEST(WriteSpec, defaultsAreOmittedOrWritten) {
  ArchSpec spec;
  spec.vocab_size = 7;
  spec.position = Rope{};
  EXPECT_EQ(write_spec(spec), "{\n  \"schema\": 1,\n  \"vocab_size\": 7,\n  \"position\": \"rope\"\n}\n");
  const Json full = spec_to_json(spec, Defaults::write);
  EXPECT_EQ(full["position"]["theta"], 10000.0);
  EXPECT_EQ(full.begin().key(), "schema");
  EXPECT_FALSE(full["position"].contains("rotary_dim")) << "unset options are not written";
}

}  // namespace
}  // namespace lamina::arch
