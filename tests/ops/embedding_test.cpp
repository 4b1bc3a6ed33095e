#include "lamina/ops/embedding/embedding.h"

#include <gtest/gtest.h>

#include <random>

#include "lamina/autograd/tape.h"
#include "support/error_of.h"

namespace lamina::testing {
namespace {

TEST(Embedding, BadArgumentsAreNamed) {
  const Device device = Device::cpu(1);
  const Tensor table = Tensor::zeros({4, 3}, DType::f32, device);
  const Tensor ids = Tensor::zeros({2, 2}, DType::i64, device);
  const auto message = [&](const Tensor& t, const Tensor& i, const ops::EmbeddingOptions& options = {}) {
    return error_of([&] { ops::embedding(t, i, options); });
  };
  EXPECT_EQ(message(table, ids), "");
  EXPECT_NE(message(table, ids.to(DType::u8)).find("ids is u8"), std::string::npos);
  EXPECT_NE(message(table.to(DType::i32), ids).find("table is i32"), std::string::npos);
  EXPECT_NE(message(table.reshape({12}), ids).find("[vocab, width]"), std::string::npos);
  EXPECT_NE(message(Tensor(), ids).find("undefined"), std::string::npos);
  EXPECT_NE(message(table, ids.to(Device::meta())).find("meta"), std::string::npos);
  EXPECT_NE(message(table, ids, {.first_row = 1}).find("first_row 1"), std::string::npos);
  EXPECT_NE(message(table, ids, {.first_row = -1, .vocab = 9}).find("first_row -1"), std::string::npos);
  EXPECT_NE(message(table, ids, {.vocab = 3}).find("vocabulary of 3"), std::string::npos);
  EXPECT_EQ(message(table, ids, {.padding = 3}), "");
  EXPECT_NE(message(table, ids, {.padding = 4}).find("row 4"), std::string::npos);
  EXPECT_NE(message(table, ids, {.first_row = INT64_MAX, .vocab = 9}).find("first_row"), std::string::npos);
  EXPECT_NE(message(table, Tensor::from<int32_t>({0, 5}, {2}, device)).find("position [1] is 5"), std::string::npos);
}

TEST(Embedding, ALargeResultIsTheSameRows) {
  // Large enough for streaming stores.
  const Device device = Device::cpu(2);
  std::mt19937 random(1);
  std::vector<float> rows(8 * 1024);
  for (float& value : rows) value = static_cast<float>(random());
  std::vector<int64_t> ids(8192 + 1);
  for (int64_t& id : ids) id = static_cast<int64_t>(random() % 9);
  const Tensor y = ops::embedding(Tensor::from(rows, {8, 1024}, device),
                                  Tensor::from(ids, {static_cast<int64_t>(ids.size())}, device), {.vocab = 9});
  const float* got = y.data<float>();
  for (size_t i = 0; i < ids.size(); ++i) {
    for (size_t j = 0; j < 1024; ++j) {
      ASSERT_EQ(got[i * 1024 + j], ids[i] == 8 ? 0.0F : rows[static_cast<size_t>(ids[i]) * 1024 + j]);
    }
  }
}

TEST(Embedding, ALargeTableGetsTheSameGradient) {
  const Device device = Device::cpu(2);
  const Tensor ids = Tensor::from<int64_t>({8191, 3, 3, 5000, 3}, {5}, device);
  Tape tape;
  Tensor table = Tensor::zeros({8192, 1024}, DType::f32, device);
  tape.watch(table);
  const Tensor y = ops::embedding(table, ids);
  tape.backward({y}, {Tensor::full(y.shape(), 0.5, DType::f32, device)});
  const Tensor gradient = tape.grad(table);
  const float* got = gradient.data<float>();
  for (int64_t i = 0; i < gradient.numel(); ++i) {
    const int64_t row = i / 1024;
    ASSERT_EQ(got[i], row == 3 ? 1.5F : row == 5000 || row == 8191 ? 0.5F : 0.0F) << row;
  }
}

TEST(Embedding, GradientsAddUpInThePlaceWhereTheyAre) {
  const Device device = Device::cpu(2);
  const Tensor ids = Tensor::from<int64_t>({2, 0, 2}, {3}, device);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const DType grad_dtype : {DType::f32, DType::f64, dtype}) {
      Tape tape;
      Tensor table = Tensor::full({3, 2}, 1.0, dtype, device);
      tape.watch(table, grad_dtype);
      const Tensor dy = Tensor::full({3, 2}, 0.25, dtype, device);
      const Tensor first = ops::embedding(table, ids);
      const Tensor second = ops::embedding(table, ids);
      tape.backward({first, second}, {dy, dy});
      EXPECT_EQ(tape.grad(table).dtype(), grad_dtype);
      EXPECT_EQ(tape.grad(table).to_vector<double>(), (std::vector<double>{0.5, 0.5, 0, 0, 1, 1}));
    }
  }
}

TEST(Embedding, ThePaddingRowIsReadButGetsNoGradient) {
  const Device device = Device::cpu(2);
  const Tensor ids = Tensor::from<int64_t>({2, 0, 2, 1, 3}, {5}, device);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    Tape tape;
    Tensor table = Tensor::full({3, 2}, 1.0, dtype, device);
    tape.watch(table);
    // The table holds rows 1 to 3 of a vocabulary of four.
    const Tensor dy = Tensor::full({5, 2}, 0.25, dtype, device);
    const Tensor padded = ops::embedding(table, ids, {.first_row = 1, .vocab = 4, .padding = 2});
    EXPECT_EQ(padded.to_vector<double>(), (std::vector<double>{1, 1, 0, 0, 1, 1, 1, 1, 1, 1})) << dtype;
    tape.backward({padded}, {dy});
    EXPECT_EQ(tape.grad(table).to_vector<double>(), (std::vector<double>{0.25, 0.25, 0, 0, 0.25, 0.25})) << dtype;
    // A padded and an unpadded lookup of one table: their gradients add up.
    Tape both;
    both.watch(table);
    const Tensor first = ops::embedding(table, ids, {.first_row = 1, .vocab = 4, .padding = 2});
    const Tensor second = ops::embedding(table, ids, {.first_row = 1, .vocab = 4});
    both.backward({first, second}, {dy, dy});
    EXPECT_EQ(both.grad(table).to_vector<double>(), (std::vector<double>{0.5, 0.5, 0.5, 0.5, 0.5, 0.5})) << dtype;
  }
}

}  // namespace
}  // namespace lamina::testing
