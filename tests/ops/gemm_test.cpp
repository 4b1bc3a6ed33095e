#include "lamina/ops/linear/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "lamina/ops/linear/gemm/bf16_dot.h"
#include "lamina/ops/linear/gemm/bf16_tile.h"
#include "support/close.h"
#include "support/uniform.h"

namespace lamina::ops {
namespace {

using testing::epsilon;
using testing::largest_error;
using testing::largest_magnitude;

struct Extents {
  int64_t m, n, k;
};

/// Sizes around every edge of tiles and blocks: thin matrices, operands read in place, several chunks of k.
const std::vector<Extents> kSweep = {
    {1, 1, 1},     {1, 5, 3},     {2, 33, 70},    {3, 17, 0},     {4, 100, 300},  {5, 1, 9},       {5, 65, 31},
    {12, 32, 16},  {13, 33, 257}, {0, 3, 4},      {3, 0, 4},      {64, 48, 1024}, {97, 65, 130},   {130, 161, 37},
    {100, 520, 2}, {20, 7, 2100}, {129, 40, 300}, {200, 600, 19}, {64, 700, 33},  {127, 130, 261}, {21, 50, 6151}};

template <class T>
std::vector<T> random_values(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> values(count);
  for (T& value : values) value = convert<T>(testing::uniform(random, -1.0, 1.0));
  return values;
}

/// op(A)·op(B) by the formula, accumulated in S.
template <class S, class A, class B, class T>
std::vector<double> plain(const Extents& e, bool ta, bool tb, const std::vector<A>& a, int64_t lda,
                          const std::vector<B>& b, int64_t ldb, T alpha, T beta, const std::vector<T>& c, int64_t ldc) {
  std::vector<double> result(c.begin(), c.end());
  for (int64_t i = 0; i < e.m; ++i) {
    for (int64_t j = 0; j < e.n; ++j) {
      S sum = 0;
      for (int64_t l = 0; l < e.k; ++l) {
        sum += convert<S>(a[static_cast<size_t>(ta ? l * lda + i : i * lda + l)]) *
               convert<S>(b[static_cast<size_t>(tb ? j * ldb + l : l * ldb + j)]);
      }
      const auto at = static_cast<size_t>(i * ldc + j);
      result[at] = static_cast<double>(S(alpha) * sum + (beta == 0 ? S(0) : S(beta) * S(c[at])));
    }
  }
  return result;
}

/// With bf16 products, operands of any type hold values that bf16 represents.
template <class T, class A = T, class B = T>
void check(const Extents& e, bool ta, bool tb, T alpha, T beta, bool whole, ProductKernel kernel = ProductKernel::f32) {
  SCOPED_TRACE(::testing::Message() << e.m << "x" << e.k << "x" << e.n << (ta ? " At" : "") << (tb ? " Bt" : "")
                                    << " alpha " << alpha << " beta " << beta << (whole ? "" : " in blocks"));
  const int64_t lda = (ta ? e.m : e.k) + 3;
  const int64_t ldb = (tb ? e.k : e.n) + 2;
  const int64_t ldc = e.n + 5;
  auto a = random_values<A>(static_cast<size_t>(lda * (ta ? e.k : e.m)), 1);
  auto b = random_values<B>(static_cast<size_t>(ldb * (tb ? e.n : e.k)), 2);
  if (kernel != ProductKernel::f32) {
    for (A& value : a) value = convert<A>(convert<bf16>(value));
    for (B& value : b) value = convert<B>(convert<bf16>(value));
  }
  auto c = random_values<T>(static_cast<size_t>(ldc * e.m), 3);
  if (beta == 0) {
    for (int64_t i = 0; i < e.m; ++i) {  // beta = 0 must not read the old C
      for (int64_t j = 0; j < e.n; ++j) c[static_cast<size_t>(i * ldc + j)] = std::numeric_limits<T>::quiet_NaN();
    }
  }
  const auto truth = plain<long double>(e, ta, tb, a, lda, b, ldb, alpha, beta, c, ldc);
  const auto naive = plain<float>(e, ta, tb, a, lda, b, ldb, alpha, beta, c, ldc);
  std::vector<std::vector<T>> results;
  for (const int count : {1, 2, 7}) {
    const Threads threads(count);
    std::vector<T> out = c;
    FusedGemm<T> p;
    p.m = e.m, p.n = e.n, p.k = e.k, p.alpha = alpha, p.beta = beta;
    p.kernel = kernel;
    p.a = {a.data(), dtype_of<A>(), lda, ta};
    p.b = {b.data(), dtype_of<B>(), ldb, tb};
    const auto copy_out = [&](T* block, int64_t ld, const GemmBlock& at) {
      for (int64_t i = 0; i < at.rows; ++i) {
        for (int64_t j = 0; j < at.columns; ++j) {
          out[static_cast<size_t>((at.row + i) * ldc + at.column + j)] = block[i * ld + j];
        }
      }
    };
    if (whole) {
      p.c = out.data();
      p.ldc = ldc;
    } else {
      p.finish = copy_out;
    }
    gemm(threads, p);
    results.push_back(out);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  const std::vector<double> ours(results[0].begin(), results[0].end());
  const DType type = dtype_of<T>();
  const double naive_error = largest_error(naive, truth) * epsilon(type) / epsilon(DType::f32);
  EXPECT_LE(largest_error(ours, truth), 2 * naive_error + epsilon(type) * largest_magnitude(truth));
}

template <class T, class A = T, class B = T>
void check_all(ProductKernel kernel = ProductKernel::f32) {
  for (const Extents& e : kSweep) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        check<T, A, B>(e, ta, tb, T(0.5), T(-2), true, kernel);
        check<T, A, B>(e, ta, tb, 2, 0, false, kernel);
      }
    }
  }
}

TEST(Gemm, SingleAgainstPlainLoops) { check_all<float>(); }
TEST(Gemm, DoubleAgainstPlainLoops) { check_all<double>(); }
TEST(Gemm, HalfWeights) { check_all<float, float, bf16>(); }
TEST(Gemm, HalfOperands) { check_all<float, f16, bf16>(); }

// On a CPU without the instructions these check that the f32 product takes over.
bool has_kernel(ProductKernel kernel) {
  switch (kernel) {
    case ProductKernel::bf16_dot: return has_bf16_dot();
    case ProductKernel::bf16_tile: return has_bf16_tiles();
    case ProductKernel::bf16_tile_emulated: return can_emulate_tiles();
    default: return true;
  }
}

class Bf16Gemm : public ::testing::TestWithParam<ProductKernel> {};
INSTANTIATE_TEST_SUITE_P(Kernels, Bf16Gemm,
                         ::testing::Values(ProductKernel::bf16_dot, ProductKernel::bf16_tile,
                                           ProductKernel::bf16_tile_emulated));

TEST_P(Bf16Gemm, AgainstPlainLoops) { check_all<float, bf16, bf16>(GetParam()); }

// Few rows are multiplied by another algorithm than many, with the same bits in every row.
TEST_P(Bf16Gemm, FewRowsByTiles) {
  for (const Extents& e :
       std::vector<Extents>{{4, 100, 32}, {17, 33, 64}, {33, 50, 96}, {64, 41, 2336}, {96, 130, 64}}) {
    check<float, bf16, bf16>(e, false, true, 0.5F, -2, true, GetParam());
    check<float, float, bf16>(e, true, true, 1, 0, false, GetParam());
  }
  if (GetParam() == ProductKernel::bf16_dot || !has_kernel(GetParam())) return;
  const int64_t n = 70;
  const int64_t k = 448;
  const auto a = random_values<bf16>(static_cast<size_t>(97 * k), 7);
  const auto b = random_values<bf16>(static_cast<size_t>(n * k), 8);
  const auto product = [&](int64_t m) {
    std::vector<float> c(static_cast<size_t>(m * n));
    FusedGemm<float> p;
    p.m = m, p.n = n, p.k = k;
    p.kernel = GetParam();
    p.a = {a.data(), DType::bf16, k, false};
    p.b = {b.data(), DType::bf16, k, true};
    p.c = c.data();
    p.ldc = n;
    gemm(Threads(2), p);
    return c;
  };
  const std::vector<float> many = product(97);
  for (const int64_t m : {4, 16, 21, 96}) {
    EXPECT_EQ(product(m), std::vector<float>(many.begin(), many.begin() + m * n)) << m;
  }
}
TEST_P(Bf16Gemm, OfSingle) { check_all<float, float, bf16>(GetParam()); }

// Another library may have configured the tile registers of this thread. A product leaves its configuration in place.
TEST(Tiles, ConfigurationIsRestored) {
  if (!has_bf16_tiles()) GTEST_SKIP() << "the CPU has no tiles";
  const auto ones = random_values<bf16>(1024, 1);
  std::vector<float> c(32 * 32);
  FusedGemm<float> p;
  p.m = p.n = p.k = 32;
  p.kernel = ProductKernel::bf16_tile;
  p.a = {ones.data(), DType::bf16, 32, false};
  p.b = {ones.data(), DType::bf16, 32, true};
  p.c = c.data();
  p.ldc = 32;
  const ops::TileScope outer(ops::TileUnit::amx);
  gemm(Threads(1), p);
  std::vector<ops::TiledPair> panel(256, ops::TiledPair{{0x3f803f80U}});  // ones
  std::vector<float> sums(256);
  ops::bf16_tiled(ops::TileUnit::amx, 16, 1, false)(16, panel.data(), 16, panel.data(), 0, sums.data(), 16,
                                                    panel.data());
  EXPECT_EQ(sums, std::vector<float>(256, 32.0F));
}

TEST(Gemm, SeveralChunksOfDepthAndColumns) {
  check<float>({5, 1330, 1160}, false, false, 1, 0, true);
  check<float>({200, 60, 1200}, false, true, 1, 1, true);
  check<float>({200, 60, 1200}, true, false, 1, 0, false);
  check<float>({300, 1000, 40}, true, false, 1, 1, true);  // the cuts of columns depend on the number of threads
}

TEST_P(Bf16Gemm, SeveralChunksOfDepthAndColumns) {
  check<float, bf16, bf16>({5, 1330, 2321}, false, false, 1, 0, true, GetParam());
  check<float, bf16, bf16>({200, 60, 2401}, false, true, 1, 1, true, GetParam());
  check<float, bf16, bf16>({129, 60, 2400}, false, true, 1, 1, true, GetParam());  // rows are read in place
  check<float, bf16, bf16>({21, 50, 12301}, true, false, 1, 0, false, GetParam());
}

/// f32 operands are rounded to nearest even, and NaN and infinity stay what they are.
TEST_P(Bf16Gemm, RoundsSingleOperands) {
  if (!has_kernel(GetParam())) GTEST_SKIP() << "this CPU does not have the kernel";
  constexpr int64_t kRows = 20;
  constexpr int64_t kDepth = 34;
  const float inf = std::numeric_limits<float>::infinity();
  for (const bool ta : {false, true}) {
    for (const float special : {1.00390625F, 1.01171875F, -1.0039063F, 3.0e38F, inf, std::nanf("")}) {
      std::vector<float> a(kRows * kDepth, 0.0F);
      a[static_cast<size_t>(ta ? 5 * kRows + 3 : 3 * kDepth + 5)] = special;
      const std::vector<bf16> b(kDepth * kRows, bf16(1.0F));
      std::vector<float> c(kRows * kRows);
      FusedGemm<float> p;
      p.m = kRows, p.n = kRows, p.k = kDepth, p.kernel = GetParam();
      p.a = {a.data(), DType::f32, ta ? kRows : kDepth, ta};
      p.b = {b.data(), DType::bf16, kRows, false};
      gemm_to(Threads(1), p, c.data(), DType::f32, kRows);
      const float expected = static_cast<float>(bf16(special));
      const float ours = c[3 * kRows + 7];
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(ours));
      } else {
        EXPECT_EQ(ours, expected);
      }
      EXPECT_EQ(c[4 * kRows + 7], 0.0F);
    }
  }
}

/// A 16-bit result equals the f32 result, rounded once.
TEST(Gemm, NarrowResults) {
  for (const Extents& e : {Extents{7, 9, 11}, Extents{1600, 3, 1160}, Extents{40, 50, 1500}, Extents{40, 50, 6300},
                           Extents{1600, 3, 6200}}) {
    for (const int options : {0, 1, 2, 3, 4, 5, 6, 7}) {
      const bool ta = options % 2 == 1;
      const auto a = random_values<float>(static_cast<size_t>(e.m * e.k), 1);
      const auto b = random_values<float>(static_cast<size_t>(e.k * e.n), 2);
      std::vector<float> c(static_cast<size_t>(e.m * e.n));
      std::vector<bf16> narrow(c.size());
      FusedGemm<float> p;
      p.m = e.m, p.n = e.n, p.k = e.k;
      p.a = {a.data(), DType::f32, ta ? e.m : e.k, ta};
      p.b = {b.data(), DType::f32, e.n, false};
      p.kernel = static_cast<ProductKernel>(options / 2);
      const Threads threads(2);
      gemm_to(threads, p, c.data(), DType::f32, e.n);
      gemm_to(threads, p, narrow.data(), DType::bf16, e.n);
      for (size_t i = 0; i < c.size(); ++i) ASSERT_EQ(narrow[i].bits, bf16(c[i]).bits) << i;
    }
  }
}

TEST(Gemm, BetaScalesWhatIsThereWhenNothingIsAdded) {
  std::vector<float> c{1, 2, 3, 4};
  gemm(Threads(1), Gemm<float>{.m = 2, .n = 2, .k = 0, .beta = 0.5F, .c = c.data(), .ldc = 2});
  EXPECT_EQ(c, (std::vector<float>{0.5F, 1, 1.5F, 2}));
}

}  // namespace
}  // namespace lamina::ops
