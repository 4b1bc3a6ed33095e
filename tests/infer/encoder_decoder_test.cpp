// Generation with encoder–decoders: answers of goldens, beam search, the KV cache, refused options.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "lamina/infer/beam_search.h"
#include "lamina/infer/generator.h"
#include "lamina/io/hf.h"
#include "nn/model_support.h"
#include "support/error_of.h"

namespace lamina::testing {
namespace {

using infer::beam_search;
using infer::BeamOptions;
using infer::generate;
using infer::GenerateOptions;
using infer::Generation;
using text::TokenId;

std::vector<TokenId> ids_of(const Tensor& tensor) {
  const std::vector<int64_t> wide = tensor.to(DType::i64).to_vector<int64_t>();
  return {wide.begin(), wide.end()};
}

/// A golden model with the source of its first row.
struct Golden {
  explicit Golden(const std::string& name) {
    const std::string folder = std::string(LAMINA_GOLDEN_DIR) + "/hf/" + name;
    const Device device = Device::cpu(1);
    const io::Checkpoint checkpoint = io::read_hf(folder, device);
    model = std::make_unique<nn::Model>(checkpoint.spec, device);
    model->load_state_dict(checkpoint.tensors);
    const io::SafetensorsFile file = io::SafetensorsFile::open(folder + "/golden.safetensors", device);
    greedy = ids_of(file.tensor("greedy"));
    const Tensor ids = file.tensor("input_ids");
    const Tensor mask = file.tensor("attention_mask").to(DType::i64).slice(0, 0, 1).contiguous();
    source = ids_of(ids.slice(0, 0, 1).contiguous());
    const std::vector<int64_t> visible = mask.to_vector<int64_t>();
    source.resize(static_cast<size_t>(std::count(visible.begin(), visible.end(), 1)));
  }
  std::unique_ptr<nn::Model> model;
  std::vector<TokenId> source;
  std::vector<TokenId> greedy;
};

GenerateOptions greedy_options(size_t tokens) {
  GenerateOptions options;
  options.max_tokens = static_cast<int64_t>(tokens);
  options.sampler.temperature = 0;
  return options;
}

TEST(EncoderDecoder, GeneratesTheTokensOfGoldens) {
  for (const char* name : {"t5", "mt5", "switch", "bart"}) {
    Golden golden(name);
    GenerateOptions options = greedy_options(golden.greedy.size());
    const std::vector<Generation> both = generate(*golden.model, {golden.source, golden.source}, options);
    EXPECT_EQ(both[0].ids, golden.greedy) << name;
    EXPECT_EQ(both[1].ids, golden.greedy) << name;
    options.cache = false;
    EXPECT_EQ(generate(*golden.model, {golden.source}, options)[0].ids, golden.greedy) << name << " without a cache";
    BeamOptions one;
    one.beams = 1;
    one.max_tokens = options.max_tokens;
    EXPECT_EQ(beam_search(*golden.model, golden.source, one)[0].ids, golden.greedy) << name << " with one beam";
  }
}

/// Sum of log probabilities of an answer by a pass over all of it.
double score_of(nn::Model& model, const std::vector<TokenId>& source, const std::vector<TokenId>& answer) {
  std::vector<int64_t> ids{model.spec().encoder->start_token};
  ids.insert(ids.end(), answer.begin(), answer.end() - 1);
  const std::vector<int64_t> wide(source.begin(), source.end());
  nn::RunOptions run;
  run.source = Tensor::from(wide, {1, static_cast<int64_t>(wide.size())}, model.device());
  const Tensor logits = model.logits(Tensor::from(ids, {1, static_cast<int64_t>(ids.size())}, model.device()), run);
  double sum = 0;
  for (size_t i = 0; i < answer.size(); ++i) {
    const auto row = logits.slice(1, static_cast<int64_t>(i), 1).to_vector<double>();
    double total = 0;
    for (const double logit : row) total += std::exp(logit);
    sum += row[static_cast<size_t>(answer[i])] - std::log(total);
  }
  return sum;
}

TEST(EncoderDecoder, CachedEqualsUncachedForEveryTinyPreset) {
  for (const std::string& name : arch::preset_names()) {
    const arch::ArchSpec spec = arch::resolve(arch::load_preset(name), name);
    if (!name.ends_with("-tiny") || !spec.encoder) continue;
    nn::Model model(spec, Device::cpu(1));
    scramble(model);
    const std::vector<int64_t> wide = random_ids(11, spec.vocab_size, 5);
    const std::vector<TokenId> source(wide.begin(), wide.end());
    GenerateOptions options;
    options.max_tokens = 8;
    options.sampler.seed = 9;
    const std::vector<TokenId> cached = generate(model, {source}, options)[0].ids;
    ASSERT_EQ(cached.size(), 8U) << name;
    options.cache = false;
    EXPECT_EQ(generate(model, {source}, options)[0].ids, cached) << name;
    const std::vector<TokenId> other(wide.rbegin(), wide.rend());
    EXPECT_NE(score_of(model, other, cached), score_of(model, source, cached)) << name << " looks at its source";
  }
}

TEST(EncoderDecoder, BeamsFindAtLeastTheGreedyScore) {
  Golden golden("bart");
  BeamOptions options;
  options.beams = 4;
  options.answers = 4;
  options.max_tokens = 6;
  for (const double penalty : {0.0, 1.0, 2.0}) {
    options.length_penalty = penalty;
    const auto answers = beam_search(*golden.model, golden.source, options);
    ASSERT_EQ(answers.size(), 4U);
    for (const auto& answer : answers) {
      ASSERT_EQ(answer.ids.size(), 6U);
      EXPECT_NEAR(answer.score, score_of(*golden.model, golden.source, answer.ids) / std::pow(6.0, penalty), 1e-3);
    }
    const std::vector<TokenId> greedy(golden.greedy.begin(), golden.greedy.begin() + 6);
    EXPECT_GE(answers[0].score, score_of(*golden.model, golden.source, greedy) / std::pow(6.0, penalty) - 1e-3);
  }
}

TEST(EncoderDecoder, SamplesDependOnSeedAndStopTokens) {
  Golden golden("t5");
  GenerateOptions options;
  options.max_tokens = 8;
  options.sampler.seed = 3;
  const auto one = generate(*golden.model, {golden.source}, options)[0].ids;
  EXPECT_EQ(one, generate(*golden.model, {golden.source}, options)[0].ids);
  options.sampler.seed = 4;
  EXPECT_NE(one, generate(*golden.model, {golden.source}, options)[0].ids);
  GenerateOptions stop = greedy_options(12);
  stop.stop_tokens = {golden.greedy[2]};
  const Generation ended = generate(*golden.model, {golden.source}, stop)[0];
  EXPECT_EQ(ended.finish, infer::Finish::stop_token);
  EXPECT_LE(ended.ids.size(), 2U);
}

TEST(EncoderDecoder, RefusesWhatOnlyDecodersDo) {
  Golden golden("t5");
  GenerateOptions options = greedy_options(4);
  options.draft_tokens = 2;
  EXPECT_NE(error_of([&] { generate(*golden.model, {golden.source}, options); }).find("encoder–decoder"),
            std::string::npos);
  EXPECT_NE(error_of([&] { infer::Session session(*golden.model); }).find("encoder–decoder"), std::string::npos);
}

}  // namespace
}  // namespace lamina::testing
