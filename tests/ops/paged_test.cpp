#include <gtest/gtest.h>

#include <limits>

#include "lamina/ops/attention/paged/paged_step.h"
#include "lamina/ops/sampling/sample_rows.h"
#include "support/error_of.h"
#include "support/random_tensor.h"

namespace lamina::testing {
namespace {

struct PagedFixture {
  Device cpu = Device::cpu(1);
  ops::PagedCache cache{
      Tensor::zeros({4, 1, 16, 8}, DType::f32, cpu), Tensor::zeros({4, 1, 16, 8}, DType::f32, cpu), {}};
  Tensor token = Tensor::zeros({1, 1, 8}, DType::f32, cpu);

  ops::PagedRows rows(std::vector<int32_t> table, int32_t length, int32_t count = 1) const {
    const auto width = static_cast<int64_t>(table.size());
    return {Tensor::from(table, {1, width}, cpu),
            Tensor::from(std::vector<int32_t>{length}, {1}, cpu),
            Tensor::from(std::vector<int32_t>{0, count}, {2}, cpu),
            {},
            {}};
  }
  void attend(const ops::PagedRows& paged, const ops::AttentionOptions& options = {}) const {
    ops::paged_attention(token, token, token, cache, paged, 8, options);
  }
};

TEST(Paged, NamesThePageThatIsMissing) {
  const PagedFixture f;
  expect_error([&] { f.attend(f.rows({-1, 2}, 20)); }, "entry 0 of the page table of row 0 is -1");
  expect_error([&] { f.attend(f.rows({4, 2}, 20)); }, "entry 0 of the page table of row 0 is 4");
  expect_error([&] { ops::paged_store(f.cache, f.rows({0, -1}, 17), f.token, f.token); }, "allocate the page first");
}

TEST(Paged, DoesNotNeedPagesOutsideTheWindow) {
  const PagedFixture f;
  const ops::AttentionOptions window{.pattern = {.kind = ops::AttentionPattern::Kind::window, .window = 4}};
  f.attend(f.rows({-1, 2}, 20), window);
  expect_error([&] { f.attend(f.rows({-1, 2}, 19), window); }, "entry 0 of the page table");
}

TEST(Paged, ChecksRowsAgainstTablesAndTokens) {
  const PagedFixture f;
  expect_error([&] { f.attend(f.rows({0}, 17)); }, "expected a length from 1 to 16");
  expect_error([&] { f.attend(f.rows({0}, 5, 2)); }, "expected 0 to at most the 1 tokens");
  expect_error([&] { f.attend(f.rows({0}, 5, -1)); }, "rows.starts");
  ops::PagedCache small{
      Tensor::zeros({4, 1, 8, 8}, DType::f32, f.cpu), Tensor::zeros({4, 1, 8, 8}, DType::f32, f.cpu), {}};
  expect_error([&] { ops::paged_store(small, f.rows({0}, 1), f.token, f.token); },
               "expected a power of two, at least 16");
}

TEST(Paged, StoresIntoASliceOfWiderTables) {
  const PagedFixture f;
  ops::PagedRows rows = f.rows({3, 1, -1, -1}, 17);
  rows.tables = rows.tables.slice(1, 0, 2);
  const Tensor ones = Tensor::full({1, 1, 8}, 1.0, DType::f32, f.cpu);
  ops::paged_store(f.cache, rows, ones, ones);
  EXPECT_EQ(f.cache.k.slice(0, 1, 1).slice(2, 0, 1).to_vector<float>(), std::vector<float>(8, 1.0F));
}

TEST(SampleRows, ReportsAnEmptyMaskAndANan) {
  const Device cpu = Device::cpu(1);
  const Tensor logits = Tensor::zeros({2, 40}, DType::f32, cpu);
  const Tensor ids = Tensor::zeros({2}, DType::i64, cpu);
  const Tensor logprobs = Tensor::zeros({2, 1}, DType::f32, cpu);
  const Tensor mask = Tensor::from(std::vector<int32_t>{0, 0, 8, 0}, {2, 2}, cpu);
  ops::sample_rows(logits, {.mask = mask}, 0, 0, ids, logprobs, {});
  EXPECT_EQ(ids.to_vector<int64_t>(), (std::vector<int64_t>{-1, 3}));
  EXPECT_EQ(logprobs.to_vector<float>()[0], -std::numeric_limits<float>::infinity());
  const Tensor bias = Tensor::full({2, 40}, std::numeric_limits<double>::quiet_NaN(), DType::f32, cpu);
  expect_error([&] { ops::sample_rows(logits, {.bias = bias}, 0, 0, ids, logprobs, {}); }, "is NaN after bias");
  expect_error([&] { ops::sample_rows(logits, {}, 41, 0, ids, logprobs, {}); }, "vocab_size is 41");
}

/// A draw depends on the row's own options alone, not on its neighbours.
TEST(SampleRows, DrawsTheSameTokenAloneAndInABatch) {
  const Tensor logits = random_tensor({5, 300}, 3, DType::f32);
  const Device& cpu = logits.device();
  const Tensor seed = Tensor::from(std::vector<int64_t>{1, 2, 3, 4, 5}, {5}, cpu);
  const Tensor top_p = Tensor::from(std::vector<float>{1, 0.5F, 0.9F, 0.2F, 1}, {5}, cpu);
  const Tensor ids = Tensor::zeros({5}, DType::i64, cpu);
  ops::sample_rows(logits, {.top_p = top_p, .seed = seed}, 0, 0, ids, {}, {});
  for (int64_t row = 0; row < 5; ++row) {
    const Tensor id = Tensor::zeros({1}, DType::i64, cpu);
    ops::sample_rows(logits.slice(0, row, 1), {.top_p = top_p.slice(0, row, 1), .seed = seed.slice(0, row, 1)}, 0, 0,
                     id, {}, {});
    EXPECT_EQ(id.item(), static_cast<double>(ids.to_vector<int64_t>()[static_cast<size_t>(row)]));
  }
}

}  // namespace
}  // namespace lamina::testing
