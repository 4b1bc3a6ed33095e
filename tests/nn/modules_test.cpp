// Properties of the named modules besides their values: errors, devices, types, invariants.
#include <gtest/gtest.h>

#include <random>

#include "lamina/autograd/tape.h"
#include "lamina/lamina.h"
#include "support/close.h"
#include "support/error_of.h"

namespace lamina::testing {
namespace {

Tensor random_tensor(const Shape& shape, DType dtype, const Device& device, uint64_t seed = 1) {
  Tensor tensor = Tensor::empty(shape, dtype, device);
  nn::init_normal(tensor, 0.0, 1.0, seed);
  return tensor;
}

TEST(GroupRMSNorm, SizesAndOptionsAreChecked) {
  const Device device = Device::cpu(1);
  expect_error([&] { nn::GroupRMSNorm(10, 4, device); }, "group_size 4 does not divide hidden_size 10");
  expect_error([&] { nn::GroupRMSNorm(10, 0, device); }, "group_size 0");
  expect_error([&] { nn::GroupRMSNorm(0, 1, device); }, "hidden_size 0");
  expect_error([&] { nn::GroupRMSNorm(4, 4, device, {.eps = -1}); }, "eps is -1");
  expect_error([&] { nn::GroupRMSNorm(4, 4, device, {.init_low = 2, .init_high = 1}); }, "range");
  expect_error([&] { nn::GroupRMSNorm(4, 4, device, {.dtype = DType::i32}); }, "floating");
  const nn::GroupRMSNorm norm(8, 4, device);
  expect_error([&] { norm.forward(random_tensor({2, 3, 6}, DType::f32, device)); }, "8");
}

TEST(GroupRMSNorm, OutputHasTheInputsTypeAndTheWeightKeepsItsOwn) {
  const Device device = Device::cpu(1);
  for (const DType x_type : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const DType weight_type : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      const nn::GroupRMSNorm norm(8, 4, device, {.dtype = weight_type});
      EXPECT_EQ(norm.forward(random_tensor({2, 3, 8}, x_type, device)).dtype(), x_type);
      EXPECT_EQ(norm.weight().dtype(), weight_type);
    }
  }
}

TEST(GroupRMSNorm, ResettingGivesTheSameWeightAgain) {
  nn::GroupRMSNorm norm(8, 4, Device::cpu(1), {.init_seed = 5});
  const auto before = norm.weight().to_vector<float>();
  norm.weight().detach().fill_(0.0);
  norm.reset_parameters();
  EXPECT_EQ(norm.weight().to_vector<float>(), before);
}

TEST(VocabEmbedding, AnIdOutsideTheVocabularyIsNamedWithItsPosition) {
  const Device device = Device::cpu(1);
  const nn::VocabEmbedding embedding(10, 4, device);
  const auto ids = [&](int64_t bad) { return Tensor::from<int64_t>({1, 2, 3, 4, bad, 6}, {2, 3}, device); };
  expect_error([&] { embedding.forward(ids(10)); }, "id at position [1,1] is 10");
  expect_error([&] { embedding.forward(ids(-1)); }, "id at position [1,1] is -1");
  expect_error([&] { embedding.forward(ids(INT64_MIN)); }, "[1,1]");
  expect_error([&] { embedding.forward(ids(0).to(DType::f32)); }, "ids is f32");
  expect_error([&] { embedding.forward(Tensor()); }, "undefined");
  expect_error([&] { nn::VocabEmbedding(0, 4, device); }, "vocab is 0");
  expect_error([&] { nn::VocabEmbedding(4, 4, device, {.init_std = -1}); }, "deviation");
}

TEST(VocabEmbedding, IdsAreLeftAsTheyAre) {
  const Device device = Device::cpu(1);
  const nn::VocabEmbedding embedding(10, 4, device, {.dtype = DType::bf16});
  const Tensor ids = Tensor::from<int64_t>({1, 9, 0}, {1, 3}, device);
  EXPECT_EQ(embedding.forward(ids).dtype(), DType::bf16);
  EXPECT_EQ(ids.version(), 0U);
  EXPECT_EQ(ids.to_vector<int64_t>(), (std::vector<int64_t>{1, 9, 0}));
}

TEST(ParallelVocabEmbedding, TheSumOverRanksIsTheWholeEmbeddingForwardAndBackward) {
  const Device device = Device::cpu(2);
  const Tensor ids = Tensor::from<int64_t>({0, 11, 5, 5, 7, 3, 8, 2}, {2, 4}, device);
  const Tensor dy = random_tensor({2, 4, 6}, DType::f32, device, 3);
  nn::VocabEmbedding whole(12, 6, device);
  Tape tape;
  Tensor whole_weight = whole.weight();
  tape.watch(whole_weight);
  Tensor sum = Tensor::zeros({2, 4, 6}, DType::f32, device);
  for (int64_t rank = 0; rank < 3; ++rank) {
    nn::ParallelVocabEmbedding part(12, 6, rank, 3, device);
    part.weight().detach().copy_(whole.weight().detach().slice(0, part.first_row(), 4));
    Tensor weight = part.weight();
    tape.watch(weight);
    const Tensor y = part.forward(ids);
    sum.add_(y.detach());
    tape.backward({y}, {dy});
    const Tensor full = whole.forward(ids);
    tape.set_grad(whole_weight, Tensor());
    tape.backward({full}, {dy});
    EXPECT_EQ(tape.grad(weight).to_vector<float>(),
              tape.grad(whole_weight).slice(0, part.first_row(), 4).to_vector<float>());
  }
  EXPECT_EQ(sum.to_vector<float>(), whole.forward(ids).to_vector<float>());
}

TEST(ParallelVocabEmbedding, RanksAndIdsAreChecked) {
  const Device device = Device::cpu(1);
  expect_error([&] { nn::ParallelVocabEmbedding(10, 4, 0, 3, device); }, "world_size 3 does not divide vocab 10");
  expect_error([&] { nn::ParallelVocabEmbedding(9, 4, 3, 3, device); }, "rank 3 of 3");
  expect_error([&] { nn::ParallelVocabEmbedding(9, 4, 0, 0, device); }, "rank 0 of 0");
  const nn::ParallelVocabEmbedding part(9, 4, 1, 3, device);
  expect_error([&] { part.forward(Tensor::from<int64_t>({9}, {1, 1}, device)); }, "is 9");
}

TEST(NTKAwareRoPE, TablesMoveWithTheModuleStayF32AndAreNotSaved) {
  const Device device = Device::cpu(1);
  nn::NTKAwareRoPE rope(8, 16, device);
  EXPECT_TRUE(rope.state_dict().empty());
  EXPECT_EQ(rope.named_buffers().size(), 2U);
  rope.to(DType::bf16);
  EXPECT_EQ(rope.cos().dtype(), DType::f32);
  EXPECT_EQ(rope.cos().shape(), (Shape{16, 8}));
  EXPECT_EQ(rope.forward(random_tensor({1, 4, 2, 8}, DType::bf16, device)).dtype(), DType::bf16);
  rope.to(Device::meta());
  EXPECT_TRUE(rope.sin().is_meta());
  EXPECT_EQ(rope.forward(Tensor::empty({1, 40, 2, 8}, DType::f16, Device::meta())).shape(), (Shape{1, 40, 2, 8}));
}

TEST(NTKAwareRoPE, TablesFollowTheInputToItsDevice) {
  nn::NTKAwareRoPE rope(8, 16, Device::cpu(1));
  for (const int64_t seq : {4, 40}) {
    const Tensor y = rope.forward(Tensor::empty({1, seq, 2, 8}, DType::f32, Device::meta()));
    EXPECT_TRUE(y.is_meta());
    EXPECT_FALSE(rope.cos().is_meta()) << "the module stays where it is";
  }
}

TEST(NTKAwareRoPE, AnOffsetContinuesASequence) {
  const Device device = Device::cpu(1);
  for (const auto pairing : {ops::RotaryPairing::half_split, ops::RotaryPairing::interleaved}) {
    for (const bool dynamic : {false, true}) {
      nn::NTKAwareRoPE rope(8, 8, device, {.ratio = 2, .dynamic = dynamic, .pairing = pairing});
      const Tensor x = random_tensor({1, 20, 2, 8}, DType::f32, device);
      const auto whole = rope.forward(x).slice(1, 18, 2).to_vector<float>();
      EXPECT_EQ(rope.forward(x.slice(1, 18, 2), 18).to_vector<float>(), whole);
      EXPECT_EQ(rope.ratio(), dynamic ? 4 : 2);
    }
  }
}

TEST(NTKAwareRoPE, ScoresDependOnTheDistanceOnly) {
  const Device device = Device::cpu(1);
  nn::NTKAwareRoPE rope(16, 64, device, {.ratio = 2});
  const Tensor q = random_tensor({1, 1, 1, 16}, DType::f64, device, 1);
  const Tensor k = random_tensor({1, 1, 1, 16}, DType::f64, device, 2);
  const auto score = [&](int64_t at_q, int64_t at_k) {
    const auto a = rope.forward(q, at_q).to_vector<double>();
    const auto b = rope.forward(k, at_k).to_vector<double>();
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  };
  EXPECT_NEAR(score(7, 2), score(107, 102), 16 * 16 * 0x1p-24);  // the rotary tables are f32
}

TEST(NTKAwareRoPE, ArgumentsAreChecked) {
  const Device device = Device::cpu(1);
  expect_error([&] { nn::NTKAwareRoPE(7, 8, device); }, "head_dim is 7");
  expect_error([&] { nn::NTKAwareRoPE(8, 0, device); }, "max_seq_len is 0");
  expect_error([&] { nn::NTKAwareRoPE(8, 8, device, {.ratio = 0}); }, "ratio 0");
  expect_error([&] { nn::NTKAwareRoPE(8, 8, device, {.base = 0}); }, "base is 0");
  expect_error([&] { nn::NTKAwareRoPE(8, INT64_MAX, device, {.ratio = 2}); }, "overflows");
  nn::NTKAwareRoPE rope(8, 8, device);
  expect_error([&] { rope.forward(random_tensor({1, 4, 2, 6}, DType::f32, device)); }, "[batch, seq, heads, 8]");
  expect_error([&] { rope.forward(random_tensor({1, 4, 2, 8}, DType::f32, device), -1); }, "offset is -1");
  expect_error([&] { rope.forward(random_tensor({1, 4, 2, 8}, DType::f32, device), INT64_MAX); }, "offset");
  expect_error([&] { rope.forward(Tensor()); }, "NTKAwareRoPE");
}

TEST(NTKAwareRoPE, TwoDimensionsHaveOneFrequency) {
  nn::NTKAwareRoPE rope(2, 4, Device::cpu(1), {.ratio = 4});
  EXPECT_NEAR(rope.sin().to_vector<float>()[2], std::sin(1.0), epsilon(DType::f32));
}

TEST(ApplyRotaryPosEmb, IsTheFormula) {
  const Device device = Device::cpu(1);
  const Tensor x = Tensor::from<float>({1, 2, 3, 4}, {1, 1, 1, 4}, device);
  const Tensor c = Tensor::from<float>({5, 6, 7, 8}, {1, 4}, device);
  const Tensor s = Tensor::from<float>({9, 10, 11, 12}, {1, 4}, device);
  EXPECT_EQ(nn::apply_rotary_pos_emb(x, c, s).to_vector<float>(),
            (std::vector<float>{5 - 27, 12 - 40, 21 + 11, 32 + 24}));
  EXPECT_EQ(nn::apply_rotary_pos_emb(x, c, s, ops::RotaryPairing::interleaved).to_vector<float>(),
            (std::vector<float>{5 - 18, 12 + 10, 21 - 44, 32 + 36}));
}

}  // namespace
}  // namespace lamina::testing
