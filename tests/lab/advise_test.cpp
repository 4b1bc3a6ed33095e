// The answers of `lamina advise` must meet the request, and the printed architecture must build.
#include "lamina/lab/advise/advise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lamina/arch/edit.h"
#include "lamina/arch/layers.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/lab/advise/guide.h"
#include "support/error_of.h"

namespace lamina::lab {
namespace {

using testing::error_of;

arch::ArchSpec built(const Recommendation& advised) {
  return arch::resolve(arch::with_overrides(arch::load_preset(advised.base), advised.assignments));
}

const arch::Attention& attention(const arch::ArchSpec& spec) {
  return std::get<arch::Attention>(arch::layer_blocks(spec).front()->mixer);
}

bool says(const Recommendation& advised, const std::string& subject) {
  return std::any_of(advised.reasons.begin(), advised.reasons.end(),
                     [&](const Reason& reason) { return reason.subject == subject; });
}

TEST(Advise, KeepsTheParametersAndUsesMostOfThem) {
  for (const double wanted : {1e6, 1e7, 1.3e8, 7e9}) {
    const Recommendation advised = advise({.parameters = wanted});
    const auto count = static_cast<double>(arch::count_parameters(built(advised)).total);
    EXPECT_EQ(count, static_cast<double>(advised.plan.parameters.total));
    EXPECT_LE(count, wanted);
    EXPECT_GE(count, 0.75 * wanted) << to_text(advised);
  }
}

TEST(Advise, FollowsTheDecisionGuide) {
  const arch::ArchSpec quality = built(advise({.parameters = 1e8}));
  EXPECT_TRUE(std::holds_alternative<arch::Rope>(quality.position));
  EXPECT_TRUE(std::holds_alternative<arch::RmsNorm>(quality.norm));
  EXPECT_TRUE(std::holds_alternative<arch::GatedFfn>(arch::layer_blocks(quality).front()->ffn));
  EXPECT_LT(*attention(quality).n_kv_heads, attention(quality).n_heads);

  const arch::ArchSpec speed = built(advise({.parameters = 1e8, .first = "speed"}));
  EXPECT_TRUE(std::holds_alternative<arch::Alibi>(speed.position));
  EXPECT_EQ(*attention(speed).n_kv_heads, 1);
  EXPECT_TRUE(std::holds_alternative<arch::PlainFfn>(arch::layer_blocks(speed).front()->ffn));

  const arch::ArchSpec balanced = built(advise({.parameters = 1e8, .first = "balanced"}));
  EXPECT_EQ(balanced.position.index(), quality.position.index());
  EXPECT_LT(*attention(balanced).n_kv_heads, attention(balanced).n_heads);
  EXPECT_TRUE(std::holds_alternative<arch::PlainFfn>(arch::layer_blocks(balanced).front()->ffn));
  const arch::ArchSpec simple = built(advise({.parameters = 1e8, .first = "simple"}));
  EXPECT_EQ(*attention(simple).n_kv_heads, attention(simple).n_heads);
  EXPECT_EQ(arch::layer_blocks(simple).front()->placement, arch::Placement::pre);

  const arch::ArchSpec far = built(advise({.parameters = 1e8, .extrapolate = true}));
  EXPECT_TRUE(std::holds_alternative<arch::Alibi>(far.position));
}

TEST(Advise, FitsIntoTheMemory) {
  for (const bool generate : {false, true}) {
    const Recommendation advised = advise({.memory = 8e9, .context = 4096, .generate = generate});
    EXPECT_LE(advised.memory_needed, 0.8 * 8e9);
    EXPECT_GE(advised.memory_needed, 0.4 * 8e9) << to_text(advised);
    EXPECT_TRUE(says(advised, "memory"));
  }
  const auto training = advise({.memory = 8e9}).plan.parameters.total;
  EXPECT_GT(advise({.memory = 8e9, .generate = true}).plan.parameters.total, 2 * training);
}

TEST(Advise, TranslatesWhatThePlanFound) {
  const std::string text = to_text(advise({.parameters = 1e7, .first = "balanced", .language = Language::zh}));
  const std::string looks = text.substr(text.find("不寻常之处"));
  EXPECT_NE(looks.find("4096 个词元；"), std::string::npos) << looks;
  EXPECT_NE(looks.find("激活函数：不带门控的前馈层；"), std::string::npos) << looks;
}

TEST(Advise, LooksAtTheData) {
  const Recommendation sized = advise({.data = 1e9});
  EXPECT_LE(static_cast<double>(sized.plan.parameters.total), 1e9 / 5);
  EXPECT_TRUE(says(sized, "data"));
  EXPECT_TRUE(says(advise({.parameters = 1e7, .data = 1e6}), "little-data"));
  EXPECT_TRUE(says(advise({.parameters = 1e7, .data = 1e11}), "much-data"));
  EXPECT_FALSE(says(advise({.parameters = 1e7}), "little-data"));
}

TEST(Advise, LongContexts) {
  const arch::ArchSpec quality = built(advise({.parameters = 1e8, .context = 32768}));
  EXPECT_EQ(quality.context, 32768);
  EXPECT_EQ(std::get<arch::Rope>(quality.position).theta, 500000.0);
  const arch::ArchSpec speed = built(advise({.parameters = 1e8, .context = 32768, .first = "speed"}));
  EXPECT_TRUE(std::holds_alternative<arch::WindowPattern>(attention(speed).pattern));
}

TEST(Advise, WritesAnArchitectureFileThatSaysTheSame) {
  const Recommendation advised = advise({.parameters = 2e7, .vocabulary = 5000});
  const arch::ArchSpec file = arch::resolve(arch::read_arch(advised.architecture_file(), "advised"));
  EXPECT_EQ(file.vocab_size, 5000);
  EXPECT_EQ(arch::count_parameters(file).total, advised.plan.parameters.total);
}

TEST(Advise, TextAndJsonSayHowSureAndWhatIsNext) {
  const Recommendation advised = advise({.parameters = 1e7, .context = 256});
  const std::string text = to_text(advised);
  EXPECT_NE(text.find("[published]"), std::string::npos);
  EXPECT_NE(text.find("[rule of thumb]"), std::string::npos);
  EXPECT_NE(text.find("lamina plan llama-7b \\\n  --set vocab_size="), std::string::npos);
  const auto json = nlohmann::json::parse(to_json_text(advised));
  EXPECT_EQ(json["parameters"], advised.plan.parameters.total);
  EXPECT_EQ(json["set"].size(), advised.assignments.size());
  EXPECT_EQ(json["reasons"][0]["how_sure"], "measured here");
  EXPECT_EQ(json["reasons"][0]["evidence"][0]["where"], "docs/studies/headline");
}

// Every number in a sentence is the advised model's own.
TEST(Advise, WordsAgreeWithNumbers) {
  for (const double wanted : {2e5, 1e6, 3e6, 1e7, 5e7, 1e9}) {
    const Recommendation advised = advise({.parameters = wanted, .context = 256});
    const arch::ArchSpec spec = built(advised);
    const arch::Attention& heads = attention(spec);
    const std::string text = to_text(advised);
    EXPECT_EQ(text.find('{'), std::string::npos) << text;
    const std::string queries = str(heads.n_heads / *heads.n_kv_heads, " queries per key-value head");
    EXPECT_NE(advised.reasons[0].advice.find(queries), std::string::npos) << advised.reasons[0].advice;
    const auto count = static_cast<double>(advised.plan.parameters.total);
    EXPECT_TRUE(spec.vocab_size == 256 || static_cast<double>(spec.vocab_size * spec.d_model) <= 0.25 * count) << text;
    EXPECT_EQ(advised.name, str("LLaMA style, ", spec.layers[0].repeat, " layers of ", spec.d_model));
    EXPECT_NE(text.find(str("f32, batch ", advised.batch)), std::string::npos);
    EXPECT_NE(text.find(str("--set batch=", advised.batch)), std::string::npos);
  }
}

TEST(Advise, LittleDataStillGetsAModel) {
  const Recommendation advised = advise({.data = 1000});
  EXPECT_LE(advised.plan.parameters.total, 200000);
  EXPECT_NE(to_text(advised).find("at most 200,000 parameters for this data"), std::string::npos);
}

TEST(Advise, TheTokenizerIsTheVocabularys) {
  EXPECT_NE(to_text(advise({.parameters = 2e5, .context = 64})).find("data.tokenizer=byte"), std::string::npos);
  EXPECT_NE(to_text(advise({.parameters = 1e6, .context = 64})).find("data.tokenizer=bpe:1024"), std::string::npos);
  EXPECT_NE(to_text(advise({.parameters = 2e6, .vocabulary = 5000})).find("data.tokenizer=YOUR-TOKENIZER.json"),
            std::string::npos);
}

TEST(Advise, WhatCannotBeIsSaid) {
  EXPECT_NE(error_of([] { advise({}); }).find("give --parameters, --memory or --data"), std::string::npos);
  EXPECT_NE(error_of([] {
              advise({.parameters = 1e7, .first = "cheap"});
            }).find("expected quality, balanced, speed or simple"),
            std::string::npos);
  EXPECT_NE(
      error_of([] { advise({.parameters = 2e4, .vocabulary = 50000}); }).find("reduce the context or the vocabulary"),
      std::string::npos);
}

// A rule with evidence that was measured here must say where: how sure it is shown depends on it.
TEST(AdviseGuide, WrongFilesAreNamed) {
  const auto error = [](const std::string& rule) {
    return error_of([&] { read_guide(R"({"recipe":"r","sizing":{},"rules":[)" + rule + "]}"); });
  };
  EXPECT_EQ(error(R"({"id":"a","when":{},"reason":"r","evidence":[]})"), "");
  EXPECT_NE(error(R"({"id":"a","when":{"moon":1},"reason":"r","evidence":[]})").find("moon is not a condition"),
            std::string::npos);
  EXPECT_NE(error(R"({"id":"a","when":{},"reason":"r","evidence":[{"kind":"measured here","text":"t"}]})")
                .find("without a source"),
            std::string::npos);
  EXPECT_NE(error(R"({"id":"a","whem":{},"reason":"r","evidence":[]})").find("unknown key whem"), std::string::npos);
}

TEST(AdviseGuide, AConditionHoldsOnItsSideOnly) {
  const Guide read = read_guide(R"({"recipe":"r","sizing":{},"rules":[
    {"id":"a","when":{"context_above":8192,"first":"speed"},"reason":"r","evidence":[]}]})");
  EXPECT_FALSE(read.rules[0].holds({.first = "speed", .context = 8192}));
  EXPECT_TRUE(read.rules[0].holds({.first = "speed", .context = 8193}));
  EXPECT_FALSE(read.rules[0].holds({.first = "quality", .context = 8193}));
}

}  // namespace
}  // namespace lamina::lab
