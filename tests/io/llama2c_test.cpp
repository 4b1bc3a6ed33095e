#include "lamina/io/llama2c.h"

#include <gtest/gtest.h>

#include "lamina/arch/layers.h"
#include "support/hf_folder.h"

namespace lamina::testing {
namespace {

/// The file as llama2.c writes it: numbers count up through all weights, the tables of the rotation are zeros.
struct Model {
  int32_t dim = 4, hidden = 3, layers = 2, heads = 2, kv_heads = 1, vocab = 5, length = 6;

  std::string bytes() const {
    std::string text;
    for (const int32_t number : {dim, hidden, layers, heads, kv_heads, vocab, length}) append(text, number);
    const int32_t tokens = std::abs(vocab);
    const int32_t kv_dim = dim / heads * kv_heads;
    const int32_t weights =
        tokens * dim + layers * (2 * dim + 2 * dim * dim + 2 * kv_dim * dim + 3 * hidden * dim) + dim;
    for (int32_t i = 0; i < weights; ++i) append(text, static_cast<float>(i));
    for (int32_t i = 0; i < length * (dim / heads); ++i) append(text, 0.0F);
    for (int32_t i = 0; vocab < 0 && i < tokens * dim; ++i) append(text, static_cast<float>(10000 + i));
    return text;
  }

 private:
  template <class T>
  static void append(std::string& text, T value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
};

TEST(Llama2c, WeightsAreWhereTheFileHasThem) {
  const TemporaryFolder temporary;
  write_all(temporary / "m.bin", Model{}.bytes());
  const io::Checkpoint read = io::read_llama2c(temporary / "m.bin", Device::cpu(1));
  EXPECT_NO_THROW(io::check_weights(read, "m.bin"));
  EXPECT_TRUE(read.spec.head.tied);
  EXPECT_EQ(read.spec.context, 6);
  const auto first = [&](const char* name) { return tensor_of(read, name).to_vector<float>().front(); };
  // 20 of the embedding, 8 of norms, then 32 q, 16 k, 16 v, 32 o, 8 norms, 24 gate, 24 down, 24 up, 4.
  EXPECT_EQ(first("embedding.weight"), 0);
  EXPECT_EQ(first("layers.1.mixer_norm.weight"), 24);
  EXPECT_EQ(first("layers.0.mixer.q.weight"), 28);
  EXPECT_EQ(first("layers.1.mixer.k.weight"), 68);
  EXPECT_EQ(first("layers.0.mixer.v.weight"), 76);
  EXPECT_EQ(first("layers.1.mixer.o.weight"), 108);
  EXPECT_EQ(first("layers.0.ffn_norm.weight"), 124);
  EXPECT_EQ(first("layers.0.ffn.gate.weight"), 132);
  EXPECT_EQ(first("layers.1.ffn.down.weight"), 168);
  EXPECT_EQ(first("layers.0.ffn.up.weight"), 180);
  EXPECT_EQ(first("final_norm.weight"), 204);
}

/// Pairs (0,1), (2,3) of a head become (0,2), (1,3): rows 0 2 1 3.
TEST(Llama2c, RowsOfQueriesAndKeysPairHalves) {
  const TemporaryFolder temporary;
  Model model;
  model.dim = 8;
  write_all(temporary / "m.bin", model.bytes());
  const io::Checkpoint read = io::read_llama2c(temporary / "m.bin", Device::cpu(1));
  const float q = 5 * 8 + 2 * 8;
  EXPECT_EQ(first_column(tensor_of(read, "layers.0.mixer.q.weight")),
            (std::vector<float>{q, q + 16, q + 8, q + 24, q + 32, q + 48, q + 40, q + 56}));
  const float v = q + 2 * 64 + 2 * 32;
  EXPECT_EQ(first_column(tensor_of(read, "layers.0.mixer.v.weight")), (std::vector<float>{v, v + 8, v + 16, v + 24}));
  const auto& a = std::get<arch::Attention>(arch::layer_blocks(read.spec)[0]->mixer);
  EXPECT_EQ(std::get<arch::Rope>(*a.position).pairing, arch::Pairing::half_split);
}

TEST(Llama2c, ANegativeVocabularyHasItsOwnHead) {
  const TemporaryFolder temporary;
  Model model;
  model.vocab = -5;
  write_all(temporary / "m.bin", model.bytes());
  const io::Checkpoint read = io::read_llama2c(temporary / "m.bin", Device::cpu(1));
  EXPECT_FALSE(read.spec.head.tied);
  EXPECT_EQ(tensor_of(read, "head.weight").to_vector<float>().front(), 10000);
  EXPECT_EQ(io::write_hf(temporary / "hf", read), "llama");
  EXPECT_EQ(contents_of(io::read_hf(temporary / "hf", Device::cpu(1)).tensors), contents_of(read.tensors));
}

TEST(Llama2c, DamagedFilesAreErrors) {
  const TemporaryFolder temporary;
  const std::string whole = Model{}.bytes();
  const auto message = [&](const std::string& bytes) {
    write_all(temporary / "m.bin", bytes);
    return error_of([&] { io::read_llama2c(temporary / "m.bin", Device::cpu(1)); });
  };
  EXPECT_EQ(message(whole), "");
  for (size_t cut = 0; cut < whole.size(); cut += 37) EXPECT_NE(message(whole.substr(0, cut)), "") << cut;
  EXPECT_NE(message(whole + "xxxx").find("more than"), std::string::npos);
  EXPECT_NE(message("24ka" + whole.substr(4)).find("newer format"), std::string::npos);
  for (size_t field = 0; field < 7; ++field) {
    for (const int32_t value : {0, -1, INT32_MAX, INT32_MIN}) {
      std::string bytes = whole;
      std::memcpy(bytes.data() + 4 * field, &value, 4);
      EXPECT_NE(message(bytes), "") << field << " = " << value;
    }
  }
}

}  // namespace
}  // namespace lamina::testing
