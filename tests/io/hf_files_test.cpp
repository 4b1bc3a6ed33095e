#include <gtest/gtest.h>

#include "support/hf_folder.h"

namespace lamina::testing {
namespace {

const std::string kGolden = LAMINA_GOLDEN_DIR "/hf/";

/// A copy of a golden folder whose tensors can be changed.
class HfFiles : public ::testing::Test {
 protected:
  void copy(const std::string& golden) {
    std::filesystem::create_directory(folder_);
    write_all(folder_ + "/config.json", read_all(kGolden + golden + "/config.json"));
    tensors_ = io::SafetensorsFile::open(kGolden + golden + "/model.safetensors", Device::cpu(1)).tensors();
  }
  void write() const { io::write_safetensors(folder_ + "/model.safetensors", tensors_); }
  io::Checkpoint read() const { return io::read_hf(folder_, Device::cpu(1)); }
  void expect_refused(const std::vector<std::string>& parts) {
    write();
    const std::string message = error_of([&] { read(); });
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
  Tensor& tensor(const std::string& name) {
    for (auto& [key, tensor] : tensors_) {
      if (key == name) return tensor;
    }
    throw Error("no tensor " + name);
  }

  TemporaryFolder temporary_;
  std::string folder_ = temporary_ / "in";
  NamedTensors tensors_;
};

TEST_F(HfFiles, ProgressCountsBytes) {
  copy("llama_gqa");
  int64_t bytes = 0;
  for (auto& [name, tensor] : tensors_) {
    tensor = tensor.to(DType::bf16);
    bytes += tensor.nbytes();
  }
  write();
  int64_t last = 0;
  io::read_hf(folder_, Device::cpu(1), {.dtype = {}, .progress = [&](int64_t done, int64_t total) {
                                          EXPECT_GT(done, last);
                                          EXPECT_EQ(total, bytes);
                                          last = done;
                                        }});
  EXPECT_EQ(last, bytes);
}

TEST_F(HfFiles, AMissingTensorIsNamed) {
  copy("llama_gqa");
  std::erase_if(tensors_, [](const auto& entry) { return entry.name == "model.layers.1.mlp.up_proj.weight"; });
  expect_refused({"has no tensor 'model.layers.1.mlp.up_proj.weight' [56,32]", "different models"});
}

TEST_F(HfFiles, AWrongShapeIsNamed) {
  copy("gpt2");
  tensor("transformer.h.0.attn.c_attn.weight") = numbered({96, 32});
  expect_refused({"'transformer.h.0.attn.c_attn.weight' is [96,32]", "means [32,96]"});
}

TEST_F(HfFiles, ATensorWithoutPlaceIsNamed) {
  copy("llama_gqa");
  tensors_.push_back({"model.layers.0.self_attn.q_proj.bias", numbered({32})});
  expect_refused({"'model.layers.0.self_attn.q_proj.bias' [32] has no place"});
}

TEST_F(HfFiles, ALayerTooManyIsNamed) {
  copy("llama_gqa");
  tensors_.push_back({"model.layers.2.input_layernorm.weight", numbered({32})});
  expect_refused({"'model.layers.2.input_layernorm.weight'", "has no place"});
}

TEST_F(HfFiles, LayersForTrainingOnlyAreLeftOut) {
  copy("deepseek_v3_mla");
  tensors_.push_back({"model.layers.2.eh_proj.weight", numbered({32, 64})});
  write();
  EXPECT_NO_THROW(read());
}

TEST_F(HfFiles, MasksAndTablesOfOldFilesAreLeftOut) {
  copy("gpt2");
  tensors_.push_back({"transformer.h.0.attn.bias", numbered({1, 1, 4, 4})});
  tensors_.push_back({"transformer.h.0.attn.masked_bias", numbered({})});
  write();
  EXPECT_NO_THROW(read());
}

TEST_F(HfFiles, ConstantsMustHaveTheValueOfTheFamily) {
  copy("apertus");
  const std::string name = "model.layers.1.mlp.act_fn.beta";
  tensor(name) = Tensor::full({}, 0.5, DType::bf16, Device::cpu(1));
  tensor("model.layers.1.mlp.act_fn.eps") = Tensor::full({}, -1e-6, DType::bf16, Device::cpu(1));
  write();
  EXPECT_EQ(error_of([&] { read(); }), "");
  tensor(name) = Tensor::full({}, 0.75, DType::f32, Device::cpu(1));
  expect_refused({name, "0.75", "0.5"});
  std::erase_if(tensors_, [&](const auto& entry) { return entry.name == name; });
  write();
  EXPECT_EQ(error_of([&] { read(); }), "");
}

TEST_F(HfFiles, NamesMayLackTheirFirstWord) {
  copy("gpt2");
  for (auto& entry : tensors_) entry.name = entry.name.substr(std::string("transformer.").size());
  write();
  EXPECT_EQ(contents_of(read().tensors), contents_of(io::read_hf(kGolden + "gpt2", Device::cpu(1)).tensors));
}

TEST_F(HfFiles, ATiedHeadMayBeStoredTwiceIfItIsTheSame) {
  copy("llama_mqa_tied");
  tensors_.push_back({"lm_head.weight", tensor("model.embed_tokens.weight").clone()});
  write();
  EXPECT_EQ(contents_of(read().tensors), contents_of(io::read_hf(kGolden + "llama_mqa_tied", Device::cpu(1)).tensors));
  tensor("lm_head.weight").fill_(1.0);
  expect_refused({"tie_word_embeddings", "lm_head.weight", "differs"});
}

TEST_F(HfFiles, NumbersMustBeFloating) {
  copy("llama_gqa");
  tensor("model.norm.weight") = Tensor::zeros({32}, DType::u8, Device::cpu(1));
  expect_refused({"'model.norm.weight' holds u8", "quantised"});
}

TEST_F(HfFiles, ExpertsMustHaveOneType) {
  copy("mixtral");
  Tensor& expert = tensor("model.layers.0.block_sparse_moe.experts.1.w1.weight");
  expert = expert.to(DType::bf16);
  expect_refused({"experts.1.w1.weight", "bf16", "f32"});
}

TEST_F(HfFiles, AnIndexThatNamesAMissingFile) {
  copy("llama_gqa");
  write_all(folder_ + "/model.safetensors.index.json",
            R"({"weight_map": {"model.norm.weight": "model-1.safetensors"}})");
  EXPECT_NE(error_of([&] { read(); }).find("names the file 'model-1.safetensors', which does not exist"),
            std::string::npos);
}

TEST_F(HfFiles, AnIndexThatNamesAMissingTensor) {
  copy("llama_gqa");
  io::write_safetensors(folder_ + "/a.safetensors", tensors_);
  write_all(folder_ + "/model.safetensors.index.json", R"({"weight_map": {"nope": "a.safetensors"}})");
  EXPECT_NE(error_of([&] { read(); }).find("names the tensor 'nope'"), std::string::npos);
  write_all(folder_ + "/model.safetensors.index.json", R"({"weight_map": {"x": "../a.safetensors"}})");
  EXPECT_NE(error_of([&] { read(); }).find("not the name of a file in this folder"), std::string::npos);
  for (const char* text :
       {"", "{", "[]", "{}", R"({"weight_map": []})", R"({"weight_map": {}})", R"({"weight_map": {"a": 1}})"}) {
    write_all(folder_ + "/model.safetensors.index.json", text);
    EXPECT_NE(error_of([&] { read(); }), "") << text;
  }
}

TEST_F(HfFiles, AFolderWithoutWeightsOrConfiguration) {
  copy("llama_gqa");
  EXPECT_NE(error_of([&] { read(); }).find("neither model.safetensors nor"), std::string::npos);
  EXPECT_NE(error_of([&] { io::read_hf(temporary_ / "none", Device::cpu(1)); }).find("config.json"), std::string::npos);
}

}  // namespace
}  // namespace lamina::testing
