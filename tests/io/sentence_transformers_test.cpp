#include "lamina/io/hf/sentence_transformers.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lamina/nn/model.h"
#include "support/hf_folder.h"

namespace lamina::testing {
namespace {

using Json = nlohmann::ordered_json;
using arch::PoolingKind;

const std::string kHfGolden = std::string(LAMINA_GOLDEN_DIR) + "/hf/";

/// The files of a golden encoder as transformers' base class writes them: no head, no prefix, and a pooler.
void write_headless(const std::string& golden, const std::string& folder, const std::string& prefix,
                    const std::string& architecture) {
  std::filesystem::create_directory(folder);
  Json config = Json::parse(read_all(kHfGolden + golden + "/config.json"));
  config["architectures"] = Json::array({architecture});
  write_all(folder + "/config.json", config.dump());
  NamedTensors tensors;
  const auto file = io::SafetensorsFile::open(kHfGolden + golden + "/model.safetensors", Device::cpu(1));
  for (const auto& [name, tensor] : file.tensors()) {
    if (name.starts_with(prefix)) tensors.push_back({name.substr(prefix.size()), tensor});
  }
  if (prefix != "distilbert." && prefix != "model.") {  // DistilBERT and models under "model." have no pooler
    const int64_t width = config["hidden_size"];
    tensors.push_back({"pooler.dense.weight", numbered({width, width})});
    tensors.push_back({"pooler.dense.bias", numbered({width})});
  }
  io::write_safetensors(folder + "/model.safetensors", tensors);
}

Tensor hidden_states(const io::Checkpoint& checkpoint) {
  nn::Model model(checkpoint.spec, Device::meta());
  model.adopt_state_dict(checkpoint.tensors);
  const std::vector<int64_t> ids{1, 5, 9, 2, 7, 11, 3};
  return model.hidden(Tensor::from(ids, {1, 7}, Device::cpu(1)));
}

TEST(HeadlessEncoders, GiveTheHiddenStatesOfTheModelWithAHead) {
  struct Encoder {
    const char* golden;
    const char* prefix;
    const char* base;
    const char* with_head;
  };
  for (const Encoder& c : {Encoder{"bert", "bert.", "BertModel", "BertForMaskedLM"},
                           Encoder{"roberta", "roberta.", "RobertaModel", "RobertaForMaskedLM"},
                           Encoder{"distilbert", "distilbert.", "DistilBertModel", "DistilBertForMaskedLM"},
                           Encoder{"modernbert", "model.", "ModernBertModel", "ModernBertForMaskedLM"},
                           Encoder{"longformer", "longformer.", "LongformerModel", "LongformerForMaskedLM"},
                           Encoder{"bigbird", "bert.", "BigBirdModel", "BigBirdForMaskedLM"}}) {
    const io::Checkpoint whole = io::read_hf(kHfGolden + c.golden, Device::cpu(1));
    const std::vector<float> expected = hidden_states(whole).to_vector<float>();
    // Weights without a head may still name the class that has one.
    for (const char* architecture : {c.base, c.with_head}) {
      const TemporaryFolder temporary;
      write_headless(c.golden, temporary / "in", c.prefix, architecture);
      const io::Checkpoint headless = io::read_hf(temporary / "in", Device::cpu(1));
      EXPECT_FALSE(headless.spec.head.transform || headless.spec.head.bias) << c.golden;
      EXPECT_TRUE(headless.spec.head.tied) << c.golden;
      EXPECT_EQ(hidden_states(headless).to_vector<float>(), expected) << c.golden;
      // Written as the base class, with the names of the base class.
      EXPECT_EQ(io::write_hf(temporary / "out", headless), whole.family);
      EXPECT_EQ(Json::parse(read_all(temporary / "out/config.json"))["architectures"][0], c.base);
      Contents source = contents_of(temporary / "in/model.safetensors");
      std::erase_if(source, [](const auto& entry) { return entry.first.starts_with("pooler."); });
      EXPECT_EQ(contents_of(temporary / "out/model.safetensors"), source) << c.golden;
    }
  }
}

TEST(HeadlessEncoders, KeepTheirHeadIfTheFileHasOne) {
  const TemporaryFolder temporary;
  Json config = Json::parse(read_all(kHfGolden + "bert/config.json"));
  config["architectures"] = Json::array({"BertModel"});
  std::filesystem::create_directory(temporary / "in");
  write_all(temporary / "in/config.json", config.dump());
  std::filesystem::copy(kHfGolden + "bert/model.safetensors", temporary / "in/model.safetensors");
  EXPECT_TRUE(io::read_hf(temporary / "in", Device::cpu(1)).spec.head.transform);
}

TEST(HeadlessEncoders, XlmRobertaAndCamembertAreRobertas) {
  for (const auto& [family, architecture, base] :
       {std::tuple{"xlm-roberta", "XLMRobertaForMaskedLM", "XLMRobertaModel"},
        std::tuple{"camembert", "CamembertForMaskedLM", "CamembertModel"}}) {
    const TemporaryFolder temporary;
    Json config = Json::parse(read_all(kHfGolden + "roberta/config.json"));
    config["model_type"] = family;
    config["architectures"] = Json::array({architecture});
    std::filesystem::create_directory(temporary / "in");
    write_all(temporary / "in/config.json", config.dump());
    std::filesystem::copy(kHfGolden + "roberta/model.safetensors", temporary / "in/model.safetensors");
    const io::Checkpoint read = io::read_hf(temporary / "in", Device::cpu(1));
    const io::Checkpoint roberta = io::read_hf(kHfGolden + "roberta", Device::cpu(1));
    EXPECT_EQ(read.spec, roberta.spec);
    EXPECT_EQ(read.family, family);
    EXPECT_EQ(io::write_hf(temporary / "out", read), family);
    EXPECT_EQ(contents_of(temporary / "out/model.safetensors"), contents_of(temporary / "in/model.safetensors"));
    EXPECT_EQ(Json::parse(read_all(temporary / "out/config.json"))["architectures"][0], architecture);
    config["architectures"] = Json::array({base});
    EXPECT_FALSE(io::read_hf_config(config.dump(), "config.json").head.transform);
    config.erase("vocab_size");
    EXPECT_EQ(io::read_hf_config(config.dump(), "config.json").vocab_size, 30522);
  }
}

TEST(HeadlessEncoders, OfEncoderDecodersAreRefused) {
  Json config = Json::parse(read_all(kHfGolden + "t5/config.json"));
  config["architectures"] = Json::array({"T5EncoderModel"});
  testing::expect_error([&] { io::read_hf_config(config.dump(), "config.json"); },
                        "\"T5EncoderModel\" is an encoder without its decoder");
}

std::string module_list(const std::vector<std::pair<std::string, std::string>>& modules) {
  Json list = Json::array();
  for (const auto& [type, path] : modules) {
    list.push_back({{"idx", list.size()},
                    {"name", str(list.size())},
                    {"path", path},
                    {"type", "sentence_transformers.models." + type}});
  }
  return list.dump();
}

TEST(SentenceTransformers, ModulesAreThoseThatAreSupported) {
  const auto modules = io::parse_modules(
      module_list({{"Transformer", ""}, {"Pooling", "1_Pooling"}, {"Dense", "2_Dense"}, {"Normalize", "3_Normalize"}}),
      "modules.json");
  ASSERT_EQ(modules.size(), 4U);
  EXPECT_EQ(modules[2].kind, "Dense");
  EXPECT_EQ(modules[2].path, "2_Dense");
  const auto refuses = [](const std::string& text, const std::string& part) {
    testing::expect_error([&] { io::parse_modules(text, "modules.json"); }, part);
  };
  refuses("{}", "modules.json: expected a list of modules");
  refuses("[]", "expected a list of modules");
  refuses("[1]", "module 0: expected an object with texts \"type\" and \"path\"");
  refuses(module_list({{"Transformer", ""}}), "has no Pooling module");
  refuses(module_list({{"StaticEmbedding", ""}, {"Pooling", "1"}}), "module 0: type \"StaticEmbedding\"");
  refuses(module_list({{"Transformer", ""}, {"WeightedLayerPooling", "1"}}), "expected Pooling");
  refuses(module_list({{"Transformer", ""}, {"Pooling", "1"}, {"LSTM", "2"}}), "type \"LSTM\", expected Dense");
  refuses(module_list({{"Transformer", ""}, {"Pooling", "1"}, {"Normalize", "2"}, {"Dense", "3"}}),
          "Dense after Normalize");
  refuses(module_list({{"Transformer", ""}, {"Pooling", "../other"}}), "is not in the model's folder");
  refuses(module_list({{"Transformer", "/etc"}, {"Pooling", "1"}}), "is not in the model's folder");
}

TEST(SentenceTransformers, OnePoolingIsRead) {
  const auto pooling = [](const Json& json) {
    io::VectorRecipe recipe;
    io::parse_pooling(json.dump(), "pooling", 32, recipe);
    return recipe.pooling;
  };
  const Json none = {{"word_embedding_dimension", 32},
                     {"pooling_mode_cls_token", false},
                     {"pooling_mode_mean_tokens", false},
                     {"pooling_mode_max_tokens", false},
                     {"pooling_mode_mean_sqrt_len_tokens", false}};
  const auto with = [&](const std::string& key, const Json& value) {
    Json json = none;
    json[key] = value;
    return json;
  };
  EXPECT_EQ(pooling(Json::object()), PoolingKind::mean);
  EXPECT_EQ(pooling(with("pooling_mode_cls_token", true)), PoolingKind::first);
  EXPECT_EQ(pooling(with("pooling_mode_mean_tokens", true)), PoolingKind::mean);
  EXPECT_EQ(pooling(with("pooling_mode_max_tokens", true)), PoolingKind::max);
  EXPECT_EQ(pooling(with("pooling_mode_lasttoken", true)), PoolingKind::last);
  EXPECT_EQ(pooling(with("pooling_mode", "lasttoken")), PoolingKind::last);
  const auto refuses = [&](const Json& json, const std::string& part) {
    testing::expect_error([&] { pooling(json); }, part);
  };
  refuses(none, "pooling_mode_*: all are false");
  refuses({{"pooling_mode_cls_token", true}}, "pooling_mode_mean_tokens: true (its default) beside pooling_mode_cls");
  Json two = with("pooling_mode_cls_token", true);
  two["pooling_mode_max_tokens"] = true;
  refuses(two, "pooling_mode_max_tokens: true beside pooling_mode_cls_token; several");
  refuses(with("pooling_mode_mean_sqrt_len_tokens", true), "pooling_mode_mean_sqrt_len_tokens: is not supported");
  refuses(with("pooling_mode_weightedmean_tokens", true), "pooling_mode_weightedmean_tokens: is not supported");
  refuses(with("pooling_mode", "median"), "pooling_mode: \"median\", expected cls, mean, max or lasttoken");
  Json wide = with("pooling_mode_cls_token", true);
  wide["word_embedding_dimension"] = 48;
  refuses(wide, "word_embedding_dimension: 48, the encoder's hidden states have 32");
  refuses(with("pooling_mode_max_tokens", 1), "pooling_mode_max_tokens: 1, expected true or false");
  refuses(with("pooling_mode_mean_token", true), "did you mean pooling_mode_mean_tokens?");
}

TEST(SentenceTransformers, LimitsAndPromptsAreChecked) {
  io::VectorRecipe recipe;
  io::parse_text_limits(R"({"max_seq_length": 12, "do_lower_case": true})", "limits", recipe);
  EXPECT_EQ(recipe.max_tokens, 12);
  EXPECT_TRUE(recipe.lowercase);
  io::parse_text_limits(R"({"max_seq_length": null, "do_lower_case": false, "model_args": {}})", "limits", recipe);
  EXPECT_FALSE(recipe.max_tokens || recipe.lowercase);
  const auto limits = [&](const std::string& text) { io::parse_text_limits(text, "limits", recipe); };
  testing::expect_error([&] { limits(R"({"max_seq_length": 0})"); }, "max_seq_length: 0, expected a number from 1");
  testing::expect_error([&] { limits(R"({"do_lower_case": "no"})"); }, "do_lower_case");
  testing::expect_error([&] { limits(R"({"tokenizer_args": {"padding_side": "left"}})"); }, "tokenizer_args");
  testing::expect_error([&] { limits(R"({"max_seq_lenght": 8})"); }, "did you mean max_seq_length?");

  const auto prompts = [&](const std::string& text) { io::parse_prompts(text, "prompts", recipe); };
  prompts(R"({"__version__": {"pytorch": "2"}, "prompts": {"query": "q: "}, "default_prompt_name": "query"})");
  EXPECT_EQ(recipe.prompts.at("query"), "q: ");
  EXPECT_EQ(recipe.default_prompt, "query");
  prompts(R"({"prompts": {}, "default_prompt_name": null, "similarity_fn_name": "cosine"})");
  EXPECT_EQ(recipe.default_prompt, "");
  testing::expect_error([&] { prompts(R"({"default_prompt_name": "title"})"); }, "\"title\" is not one of the prompts");
  testing::expect_error([&] { prompts(R"({"prompts": ["a"]})"); }, "prompts: expected an object of texts");
  testing::expect_error([&] { prompts(R"({"prompts": {"a": 1}})"); }, "prompts: a: expected text");
}

/// A Dense module of a folder with a mean over 4 numbers before it.
void write_dense_folder(const std::string& folder, const Json& config, const NamedTensors& tensors) {
  std::filesystem::create_directories(folder + "/1_Pooling");
  std::filesystem::create_directories(folder + "/2_Dense");
  write_all(folder + "/modules.json",
            module_list({{"Transformer", ""}, {"Pooling", "1_Pooling"}, {"Dense", "2_Dense"}}));
  write_all(folder + "/1_Pooling/config.json", R"({"word_embedding_dimension": 4})");
  write_all(folder + "/2_Dense/config.json", config.dump());
  if (!tensors.empty()) io::write_safetensors(folder + "/2_Dense/model.safetensors", tensors);
}

TEST(SentenceTransformers, DenseLayersMustFit) {
  const Json config = {{"in_features", 4},
                       {"out_features", 3},
                       {"bias", true},
                       {"activation_function", "torch.nn.modules.activation.Tanh"}};
  const NamedTensors both{{"linear.weight", numbered({3, 4})}, {"linear.bias", numbered({3})}};
  const auto read = [](const Json& json, const NamedTensors& tensors) {
    const TemporaryFolder temporary;
    write_dense_folder(temporary / "model", json, tensors);
    return io::read_vector_recipe(temporary / "model", 4);
  };
  const io::VectorRecipe recipe = read(config, both);
  ASSERT_EQ(recipe.dense.size(), 1U);
  EXPECT_EQ(recipe.dense[0].activation, arch::Activation::tanh);
  EXPECT_EQ(recipe.dense[0].weight.shape(), (Shape{3, 4}));
  EXPECT_FALSE(recipe.normalize);
  const auto refuses = [&](const char* key, const Json& value, const NamedTensors& tensors, const std::string& part) {
    Json changed = config;
    changed[key] = value;
    testing::expect_error([&] { read(changed, tensors); }, part);
  };
  refuses("in_features", 5, both, "in_features: 5, the vectors have 4 numbers");
  refuses("out_features", nullptr, both, "out_features: is missing");
  refuses("out_features", 2, both, "'linear.weight' is f32 [3,4], config.json means floating numbers [2,4]");
  refuses("activation_function", "torch.nn.modules.activation.PReLU", both, "PReLU\" is not supported; expected Tanh");
  refuses("bias", false, both, "tensor 'linear.bias' has no place in a linear layer without bias");
  refuses("bias", true, {both[0]}, "has no tensor 'linear.bias'");
  refuses("bias", true, {}, "2_Dense: has no model.safetensors");
  refuses("dropout", 0.1, both, "dropout: not known");
  refuses("module_input_name", "token_embeddings", both, "only sentence_embedding is supported");
}

}  // namespace
}  // namespace lamina::testing
