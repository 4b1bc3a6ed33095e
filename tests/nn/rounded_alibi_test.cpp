#include "lamina/nn/mixers/rounded_alibi.h"

#include <gtest/gtest.h>

namespace lamina::testing {
namespace {

Tensor last(const Tensor& x, int64_t width) { return x.slice(3, x.dim(3) - width, width); }

TEST(RoundedAlibi, SlopesPositionsAndProductsAreRoundedEach) {
  // In bf16, 0.7 rounds to 0.69921875, 1001 to 1000 (step 4), and their product 699.21875 to 700.
  nn::RoundedAlibi alibi({0.7F, 0.25F}, 2, 2.0);
  nn::ForwardContext pass{.batch = 1, .seq = 2, .offset = 1000};
  const Tensor k = Tensor::full({1, 2, 2, 3}, 5.0, DType::f32, Device::cpu(1));
  const Tensor extended = alibi.extend_keys(k, pass);
  EXPECT_EQ(extended.shape(), (Shape{1, 2, 2, 4}));
  EXPECT_EQ(last(extended, 1).contiguous().to_vector<double>(), (std::vector<double>{1400, 500, 1400, 500}));
  EXPECT_EQ(extended.slice(3, 0, 3).contiguous().to_vector<double>(), std::vector<double>(12, 5.0));
  pass.offset = 3;
  EXPECT_EQ(last(alibi.extend_keys(k, pass), 1).contiguous().to_vector<double>(),
            (std::vector<double>{2 * 2.09375, 1.5, 2 * 2.796875, 2}));
}

TEST(RoundedAlibi, HeadsThatShareAKeyChooseTheirBias) {
  nn::RoundedAlibi alibi({0.5F, 0.25F, 0.125F, 0.0625F}, 2, 1.0);
  const Device device = Device::cpu(1);
  const nn::ForwardContext pass{.batch = 1, .seq = 1, .offset = 8};
  EXPECT_EQ(alibi.width(), 2);
  const Tensor k = alibi.extend_keys(Tensor::zeros({1, 1, 2, 1}, DType::f32, device), pass);
  EXPECT_EQ(last(k, 2).contiguous().to_vector<double>(), (std::vector<double>{4, 2, 1, 0.5}));
  const Tensor q = alibi.extend_queries(Tensor::zeros({1, 1, 4, 1}, DType::f32, device));
  EXPECT_EQ(last(q, 2).contiguous().to_vector<double>(), (std::vector<double>{1, 0, 0, 1, 1, 0, 0, 1}));
}

TEST(RoundedAlibi, RaggedRowsAndDocumentsHaveTheirOwnPositions) {
  nn::RoundedAlibi alibi({1.0F}, 1, 1.0);
  const Device device = Device::cpu(1);
  const Tensor k = Tensor::zeros({2, 2, 1, 1}, DType::bf16, device);
  const nn::ForwardContext ragged{
      .batch = 2, .seq = 2, .offsets = {0, 5}, .positions = Tensor::from<int64_t>({0, 1, 5, 6}, {2, 2}, device)};
  EXPECT_EQ(last(alibi.extend_keys(k, ragged), 1).contiguous().to_vector<double>(), (std::vector<double>{0, 1, 5, 6}));
  const nn::ForwardContext packed{.batch = 2, .seq = 2, .positions = Tensor::from<int64_t>({0, 0}, {2}, device)};
  EXPECT_EQ(last(alibi.extend_keys(k, packed), 1).contiguous().to_vector<double>(), (std::vector<double>{0, 0, 0, 0}));
}

}  // namespace
}  // namespace lamina::testing
