#include "lamina/infer/text_vectors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lamina/arch/edit.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/io/checkpoint.h"
#include "lamina/io/hf.h"
#include "support/hf_folder.h"

namespace lamina::testing {
namespace {

using Json = nlohmann::ordered_json;
using arch::PoolingKind;
using infer::TextRole;

/// A tiny encoder in the layout of sentence-transformers.
class SentenceFolder {
 public:
  explicit SentenceFolder(const std::vector<std::string>& changes = {"head={\"tied\":true}"}) {
    const arch::ArchSpec spec = arch::resolve(arch::with_overrides(arch::load_preset("bert-tiny"), changes));
    io::Checkpoint checkpoint{spec, {}, "bert", {}};
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    const auto drawn = [&](const Shape& shape) {
      std::vector<float> values(static_cast<size_t>(shape.numel()));
      for (float& value : values) value = normal(random) * 0.5F;
      return Tensor::from(values, shape, Device::cpu(1));
    };
    for (const io::WeightSlot& slot : io::weight_slots(spec))
      checkpoint.tensors.push_back({slot.name, drawn(slot.shape)});
    io::write_hf(path(), checkpoint);
    std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
    for (const char* word : {"owl", "bee", "hive", "met", "the", "query", "passage", ":", "topic"}) {
      vocabulary += std::string(word) + "\n";
    }
    write_all(path() + "/vocab.txt", vocabulary);
    weight_ = drawn({5, spec.d_model});
    bias_ = drawn({5});
    for (const char* module : {"1_Pooling", "2_Dense"}) std::filesystem::create_directory(path() + "/" + module);
    pool("pooling_mode_mean_tokens");
    write_all(path() + "/2_Dense/config.json",
              R"({"in_features": 32, "out_features": 5, "bias": true, "activation_function": "torch.nn.Tanh"})");
    io::write_safetensors(path() + "/2_Dense/model.safetensors", {{"linear.weight", weight_}, {"linear.bias", bias_}});
    modules({"Transformer:", "Pooling:1_Pooling"});
  }

  std::string path() const { return temporary_ / "model"; }
  void pool(const std::string& key) const {
    Json config{{"word_embedding_dimension", 32}, {"pooling_mode_mean_tokens", false}};
    config[key] = true;
    write_all(path() + "/1_Pooling/config.json", config.dump());
  }
  void modules(const std::vector<std::string>& list) const {
    Json json = Json::array();
    for (const std::string& one : list) {
      const size_t colon = one.find(':');
      json.push_back(
          {{"type", "sentence_transformers.models." + one.substr(0, colon)}, {"path", one.substr(colon + 1)}});
    }
    write_all(path() + "/modules.json", json.dump());
  }
  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }

 private:
  TemporaryFolder temporary_;
  Tensor weight_;
  Tensor bias_;
};

/// The library's formulas in f64 over the hidden states of one text.
std::vector<double> expected_vector(const infer::LoadedModel& model, const std::vector<int64_t>& ids, PoolingKind kind,
                                    const SentenceFolder* dense, bool normalize) {
  const auto length = static_cast<int64_t>(ids.size());
  const std::vector<double> hidden =
      model.model->hidden(Tensor::from(ids, {1, length}, Device::cpu())).to_vector<double>();
  const size_t width = hidden.size() / ids.size();
  std::vector<double> x(width);
  for (size_t i = 0; i < width; ++i) {
    const auto at = [&](size_t token) { return hidden[token * width + i]; };
    x[i] = kind == PoolingKind::first ? at(0) : kind == PoolingKind::last ? at(ids.size() - 1) : at(0);
    for (size_t token = 1; token < ids.size() && kind == PoolingKind::mean; ++token) x[i] += at(token);
    for (size_t token = 1; token < ids.size() && kind == PoolingKind::max; ++token) x[i] = std::max(x[i], at(token));
    if (kind == PoolingKind::mean) x[i] /= static_cast<double>(length);
  }
  if (dense != nullptr) {
    const std::vector<double> w = dense->weight().to_vector<double>();
    std::vector<double> y = dense->bias().to_vector<double>();
    for (size_t row = 0; row < y.size(); ++row) {
      for (size_t i = 0; i < width; ++i) y[row] += w[row * width + i] * x[i];
      y[row] = std::tanh(y[row]);
    }
    x = y;
  }
  double square = 0;
  for (const double value : x) square += value * value;
  for (double& value : x) value = normalize ? value / std::sqrt(square) : value;
  return x;
}

std::vector<float> vector_of(const infer::LoadedModel& model, const std::string& text, const std::string& prompt = "") {
  const io::VectorRecipe recipe = infer::vector_recipe(model);
  const infer::TextReader reader(*model.tokenizer, recipe, model.model->spec().context, prompt);
  return infer::embed(*model.model, {reader.ids(text)}, {.recipe = recipe}).at(0);
}

void expect_near(const std::vector<float>& got, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 2e-5) << what << " " << i;
}

// [CLS] the owl met [SEP]
const std::vector<int64_t> kIds{2, 9, 5, 8, 3};
constexpr const char* kText = "  The OWL met\n";

TEST(SentenceTransformers, FoldersGiveTheVectorsOfTheLibrarysFormulas) {
  const SentenceFolder folder;
  const std::pair<const char*, PoolingKind> poolings[] = {{"pooling_mode_mean_tokens", PoolingKind::mean},
                                                          {"pooling_mode_cls_token", PoolingKind::first},
                                                          {"pooling_mode_max_tokens", PoolingKind::max},
                                                          {"pooling_mode_lasttoken", PoolingKind::last}};
  for (const auto& [key, kind] : poolings) {
    folder.pool(key);
    for (const bool dense : {false, true}) {
      for (const bool normalize : {false, true}) {
        std::vector<std::string> modules{"Transformer:", "Pooling:1_Pooling"};
        if (dense) modules.emplace_back("Dense:2_Dense");
        if (normalize) modules.emplace_back("Normalize:3_Normalize");
        folder.modules(modules);
        const infer::LoadedModel model = infer::load_model(folder.path(), Device::cpu());
        expect_near(vector_of(model, kText), expected_vector(model, kIds, kind, dense ? &folder : nullptr, normalize),
                    key);
        // An index divides by the length in any case.
        const std::vector<float> indexed =
            infer::text_embedder(model, TextRole::document)(std::vector<std::string>{kText});
        expect_near(indexed, expected_vector(model, kIds, kind, dense ? &folder : nullptr, true), key);
        EXPECT_EQ(infer::vector_settings(model, "m").dim, dense ? 5 : 32);
      }
    }
  }
}

TEST(SentenceTransformers, TextsAreCutLowercasedAndPrompted) {
  const SentenceFolder folder;
  write_all(folder.path() + "/sentence_bert_config.json", R"({"max_seq_length": 4, "do_lower_case": true})");
  write_all(
      folder.path() + "/config_sentence_transformers.json",
      R"({"prompts": {"query": "query: ", "passage": "passage:", "topic": "topic"}, "default_prompt_name": "topic"})");
  const infer::LoadedModel model = infer::load_model(folder.path(), Device::cpu());
  const io::VectorRecipe recipe = infer::vector_recipe(model);
  EXPECT_EQ(infer::prompt_for(recipe, TextRole::any), "topic");
  EXPECT_EQ(infer::prompt_for(recipe, TextRole::query), "query: ");
  EXPECT_EQ(infer::prompt_for(recipe, TextRole::document), "passage:");
  EXPECT_EQ(infer::prompt_named(recipe, "topic"), "topic");
  expect_error([&] { infer::prompt_named(recipe, "title"); }, "the model has passage, query, topic");
  using Ids = std::vector<text::TokenId>;
  const auto ids = [&](const std::string& prompt) {
    return infer::TextReader(*model.tokenizer, recipe, 64, prompt).ids("the owl met the bee");
  };
  EXPECT_EQ(ids(""), (Ids{2, 9, 5, 3}));           // [CLS] the owl [SEP]
  EXPECT_EQ(ids("query: "), (Ids{2, 10, 12, 3}));  // [CLS] query : [SEP]
  io::VectorRecipe apart = recipe;
  apart.pool_prompt = false;
  expect_error([&] { infer::TextReader(*model.tokenizer, apart, 64, "query: "); }, "include_prompt");
  // Searches and indexes take their own prompts.
  const auto embedded = [&](TextRole role) {
    return infer::text_embedder(model, role)(std::vector<std::string>{"owl"});
  };
  expect_near(embedded(TextRole::query), expected_vector(model, {2, 10, 12, 3}, PoolingKind::mean, nullptr, true), "q");
  expect_near(embedded(TextRole::document), expected_vector(model, {2, 11, 12, 3}, PoolingKind::mean, nullptr, true),
              "d");
}

TEST(SentenceTransformers, TheEncoderMayBeInAFolderOfItsOwn) {
  const SentenceFolder folder;
  const infer::LoadedModel flat = infer::load_model(folder.path(), Device::cpu());
  const std::vector<float> expected = vector_of(flat, kText);
  std::filesystem::create_directory(folder.path() + "/0_Transformer");
  for (const char* file : {"config.json", "model.safetensors", "vocab.txt"}) {
    std::filesystem::rename(folder.path() + "/" + file, folder.path() + "/0_Transformer/" + file);
  }
  folder.modules({"Transformer:0_Transformer", "Pooling:1_Pooling"});
  const infer::LoadedModel nested = infer::load_model(folder.path(), Device::cpu());
  EXPECT_EQ(vector_of(nested, kText), expected);
  EXPECT_EQ(nested.path, folder.path() + "/0_Transformer");
  std::vector<std::string> names;
  for (const io::RecipeFile& file : io::vector_recipe_files(folder.path())) names.push_back(file.name);
  EXPECT_EQ(names, (std::vector<std::string>{"1_Pooling/config.json", "modules.json"}));
  EXPECT_EQ(Json::parse(io::vector_recipe_files(folder.path()).back().text)[0]["path"], "");
}

TEST(TextVectors, FollowThePoolingOfTheArchitecture) {
  const TemporaryFolder temporary;
  for (const bool dense : {false, true}) {
    std::vector<std::string> changes{"pooling.of=last", "pooling.unit_length=true"};
    if (dense) changes.emplace_back("pooling.dense=true");
    const arch::ArchSpec spec = arch::resolve(arch::with_overrides(arch::load_preset("bert-tiny"), changes));
    nn::Model model(spec, Device::cpu(), {.seed = 5});
    const std::string folder = temporary / (dense ? "dense" : "plain");
    io::write_native(folder, {spec, model.state_dict(), "", {}});
    const infer::LoadedModel loaded = infer::load_model(folder, Device::cpu());
    const std::vector<double> expected = model.pooled(Tensor::from(kIds, {1, 5}, Device::cpu())).to_vector<double>();
    const auto got = infer::embed(*loaded.model, {{2, 9, 5, 8, 3}}, {.recipe = infer::vector_recipe(loaded)}).at(0);
    expect_near(got, expected, folder);
  }
}

TEST(TextVectors, LongTextsAreComputedApart) {
  const SentenceFolder folder;
  const infer::LoadedModel model = infer::load_model(folder.path(), Device::cpu());
  const std::vector<std::vector<text::TokenId>> texts(5, {2, 9, 5, 8, 3});
  int64_t passes = 0;
  infer::EmbedOptions options{.batch_tokens = 11, .progress = [&](int64_t, int64_t) { ++passes; }};
  const auto vectors = infer::embed(*model.model, texts, options);
  EXPECT_EQ(passes, 3);  // two texts of five tokens at once
  const std::vector<double> first(vectors[0].begin(), vectors[0].end());
  for (const auto& vector : vectors) expect_near(vector, first, "the same text elsewhere in a batch");
}

}  // namespace
}  // namespace lamina::testing
