// generate_text: from a model's folder and a prompt to text, as `lamina generate` does it.
#include "lamina/infer/generate_text.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/text/load.h"
#include "lamina/text/simple.h"
#include "support/error_of.h"

namespace lamina::infer {
namespace {

namespace fs = std::filesystem;

class GenerateTextTest : public ::testing::Test {
 protected:
  /// A model with `padding` more ids than its tokenizer of the letters a to h and the space has.
  void make(int64_t padding, bool with_tokenizer = true) {
    folder_ = fs::path(::testing::TempDir()) / ("lamina_generate_text_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    const auto tokenizer = text::character_tokenizer("abcdefgh ");
    arch::ArchSpec spec = arch::load_preset("llama-tiny");
    spec.vocab_size = tokenizer->vocab_size() + padding;
    spec = arch::resolve(spec);
    nn::Model model(spec, Device::cpu(1), {.seed = 3});
    io::write_native(folder_.string(), {.spec = spec, .tensors = model.state_dict(), .family = {}, .tokens = {}});
    if (with_tokenizer) text::save_tokenizer(*tokenizer, folder_.string());
  }
  void TearDown() override { fs::remove_all(folder_); }
  LoadedModel load() const { return load_model(folder_.string(), Device::cpu(1)); }

  fs::path folder_;
};

TEST_F(GenerateTextTest, IsTheTextOfTheGeneratedTokens) {
  make(0);
  LoadedModel model = load();
  const GenerateOptions options{.max_tokens = 12, .sampler = {.temperature = 0.9, .seed = 5}};
  const auto ids = generate(*model.model, {prompt_ids(*model.tokenizer, "abc")}, options)[0].ids;
  std::string pieces;
  const std::string text = generate_text(model, "abc", options, {}, [&](const std::string& piece) { pieces += piece; });
  EXPECT_EQ(text, model.tokenizer->decode(ids));
  EXPECT_EQ(text.size(), 12U);
  EXPECT_EQ(pieces, text);
}

TEST_F(GenerateTextTest, ADraftModelMustHaveTheSameTokenizer) {
  make(0);
  const LoadedModel model = load();
  make(3);  // a padded vocabulary of the same tokenizer
  LoadedModel draft = load();
  EXPECT_NO_THROW(check_draft(model, draft));
  GenerateOptions options{.max_tokens = 30, .sampler = {.temperature = 0.7, .seed = 2}};
  const std::vector<std::vector<text::TokenId>> prompts{prompt_ids(*model.tokenizer, "abc")};
  const auto ids = generate(*model.model, prompts, options)[0].ids;
  options.draft_model = draft.model.get();
  EXPECT_EQ(generate(*model.model, prompts, options)[0].ids, ids);
  draft.tokenizer = text::character_tokenizer("abcdefgi ");
  lamina::testing::expect_error([&] { check_draft(model, draft); }, "trained with the same tokenizer");
  draft.tokenizer.reset();
  lamina::testing::expect_error([&] { check_draft(model, draft); }, "its vocabulary has");
}

TEST_F(GenerateTextTest, EndsBeforeAStopString) {
  make(0);
  LoadedModel model = load();
  const GenerateOptions options{.max_tokens = 40, .sampler = {.seed = 1}};
  const std::string whole = generate_text(model, "abc", options);
  ASSERT_GT(whole.size(), 8U);
  const std::string stop = whole.substr(5, 2);
  EXPECT_EQ(generate_text(model, "abc", options, {stop}), whole.substr(0, whole.find(stop)));
}

TEST_F(GenerateTextTest, NeverSamplesIdsThatTheTokenizerLacks) {
  make(500);  // most of the probability is on padding
  LoadedModel model = load();
  EXPECT_EQ(generate_text(model, "abc", {.max_tokens = 20}).size(), 20U);
}

TEST_F(GenerateTextTest, SkipsUnknownCharactersOfThePrompt) {
  make(0);
  LoadedModel model = load();
  const GenerateOptions options{.max_tokens = 10, .sampler = {.temperature = 0}};
  EXPECT_EQ(generate_text(model, "aZbÄc", options), generate_text(model, "abc", options));
}

TEST_F(GenerateTextTest, NeedsATokenizer) {
  make(0, /*with_tokenizer=*/false);
  LoadedModel model = load();
  EXPECT_NE(lamina::testing::error_of([&] { generate_text(model, "abc"); }).find("no tokenizer.json"),
            std::string::npos);
}

}  // namespace
}  // namespace lamina::infer
