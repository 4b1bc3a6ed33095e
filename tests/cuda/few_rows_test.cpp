// Matrix products of few rows at real model sizes, sliced weights, and overlapping launches.
#include "cuda/on_gpu.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/linear/feed_forward_step.h"
#include "lamina/ops/linear/gated_linear.h"
#include "lamina/ops/linear/linear.h"
#include "lamina/ops/linear/norm_linear.h"
#include "lamina/ops/norm/layer_norm.h"
#include "lamina/ops/norm/rms_norm.h"
#include "support/close.h"
#include "support/random_tensor.h"

namespace lamina::testing {
namespace {

using CudaFewRows = OnGpu<>;

/// x · wᵀ by plain loops in S.
template <class S>
std::vector<double> product(const Tensor& x, const Tensor& weight) {
  const int64_t in = x.dim(-1);
  const std::vector<double> a = x.to_vector<double>();
  const std::vector<double> b = weight.to_vector<double>();
  std::vector<double> y;
  for (int64_t r = 0; r < x.shape().rows(); ++r) {
    for (int64_t o = 0; o < weight.dim(0); ++o) {
      S sum = 0;
      for (int64_t i = 0; i < in; ++i) {
        sum += static_cast<S>(a[static_cast<size_t>(r * in + i)]) * static_cast<S>(b[static_cast<size_t>(o * in + i)]);
      }
      y.push_back(static_cast<double>(sum));
    }
  }
  return y;
}

struct Sizes {
  int64_t rows, in, out;
};

TEST_F(CudaFewRows, LargeWeights) {
  const Device gpu = Device::cuda();
  for (const Sizes s : {Sizes{1, 264, 13000},
                        {8, 264, 13000},
                        {1, 288, 32000},
                        {3, 768, 32000},
                        {5, 2048, 5632},
                        {1, 3000, 700},
                        {3, 3000, 64},
                        {1, 5632, 300},
                        {3, 5632, 64},
                        {1, 6152, 40},
                        {1, 11008, 40}}) {
    for (const auto& [type, weight_type] : {std::pair{DType::bf16, DType::bf16},
                                            {DType::f16, DType::f16},
                                            {DType::f32, DType::f32},
                                            {DType::f32, DType::bf16}}) {
      const Tensor x = random_tensor({s.rows, s.in}, 1, type);
      const Tensor weight = random_tensor({s.out, s.in}, 2, weight_type);
      const Tensor y = ops::linear(x.to(gpu), weight.to(gpu));
      expect_as_close(y.to_vector<double>(), product<double>(x, weight), product<float>(x, weight), type,
                      str(s.rows, " x ", s.in, " -> ", s.out, " ", type, " ", weight_type));
    }
  }
}

TEST_F(CudaFewRows, SlicesAndTransposesOfWeights) {
  const Device gpu = Device::cuda();
  for (const DType type : {DType::bf16, DType::f32}) {
    const Tensor x = random_tensor({4, 64}, 3, type).to(gpu);
    const Tensor wide = random_tensor({40, 80}, 4, type).to(gpu);
    const auto expect_same = [&](const Tensor& weight) {
      const std::vector<double> dense = ops::linear(x, weight.clone()).to_vector<double>();
      const std::vector<double> ours = ops::linear(x, weight).to_vector<double>();
      EXPECT_LE(largest_error(ours, dense), rounding_tolerance(dense, 64, type));
      const std::vector<double> gated_dense =
          ops::gated_linear(x, weight.clone(), {}, ops::Gate::swiglu).to_vector<double>();
      const std::vector<double> gated = ops::gated_linear(x, weight, {}, ops::Gate::swiglu).to_vector<double>();
      // Three roundings in `type`: gate, up and their product.
      EXPECT_LE(largest_error(gated, gated_dense), 3 * rounding_tolerance(gated_dense, 64, type));
    };
    expect_same(wide.slice(1, 0, 64));                                      // row stride 80
    expect_same(wide.slice(1, 8, 64));                                      // 16-byte aligned
    expect_same(wide.slice(1, 3, 64));                                      // unaligned
    expect_same(random_tensor({64, 40}, 5, type).to(gpu).transpose(0, 1));  // column-major
  }
}

TEST_F(CudaFewRows, ARowDoesNotDependOnTheOthers) {
  const Device gpu = Device::cuda();
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    const Tensor x = random_tensor({8, 288}, 6, type).to(gpu);
    const Tensor weight = random_tensor({864, 288}, 7, type).to(gpu);
    const std::vector<double> all = ops::linear(x, weight).to_vector<double>();
    // So narrow that the norm is fused into the product for any number of rows.
    const Tensor narrow = random_tensor({8, 128}, 8, type).to(gpu);
    const Tensor narrow_weight = random_tensor({864, 128}, 9, type).to(gpu);
    const std::vector<double> normed = ops::norm_linear(narrow, narrow, {}, narrow_weight).y.to_vector<double>();
    const Tensor wide = random_tensor({8, 2600}, 10, type).to(gpu);
    const Tensor wide_weight = random_tensor({300, 2600}, 11, type).to(gpu);
    const std::vector<double> all_wide = ops::linear(wide, wide_weight).to_vector<double>();
    for (int64_t rows = 1; rows < 8; ++rows) {
      const Tensor part = x.slice(0, 0, rows);
      const std::vector<double> some = ops::linear(part, weight).to_vector<double>();
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << rows << " rows of " << type;
      const std::vector<double> some_wide = ops::linear(wide.slice(0, 0, rows), wide_weight).to_vector<double>();
      EXPECT_TRUE(std::equal(some_wide.begin(), some_wide.end(), all_wide.begin())) << rows << " rows of " << type;
      const Tensor few = narrow.slice(0, 0, rows);
      const std::vector<double> some_normed = ops::norm_linear(few, few, {}, narrow_weight).y.to_vector<double>();
      EXPECT_TRUE(std::equal(some_normed.begin(), some_normed.end(), normed.begin())) << rows << " rows of " << type;
    }
  }
}

/// The norm fused into the product against a separate norm, at real model sizes and around the sizes where the kernel
/// switches between the two.
TEST_F(CudaFewRows, NormsWithinProducts) {
  const Device gpu = Device::cuda();
  for (const auto& [type, weight_type] : {std::pair{DType::bf16, DType::bf16},
                                          {DType::f16, DType::f16},
                                          {DType::f32, DType::f32},
                                          {DType::f32, DType::bf16}}) {
    for (const Sizes s : {Sizes{1, 8, 16},
                          {1, 288, 864},
                          {1, 768, 2304},
                          {1, 4096, 520},
                          {1, 4104, 64},
                          {1, 8192, 64},
                          {2, 2048, 40},
                          {3, 264, 96},
                          {4, 1024, 64},
                          {5, 768, 2304},
                          {8, 1024, 64},
                          {8, 1032, 64},
                          {3, 2048, 2560},
                          {8, 2048, 11264},
                          {12, 2048, 2560},
                          {32, 1032, 4096}}) {
      const Tensor x = random_tensor({s.rows, s.in}, 1, type).to(gpu);
      const Tensor residual = random_tensor({s.rows, s.in}, 2, type).to(gpu);
      const Tensor weight = random_tensor({s.out, s.in}, 3, weight_type).to(gpu);
      const Tensor scale = random_tensor({s.in}, 4, DType::f32).to(gpu);
      const Tensor shift = random_tensor({s.in}, 5, DType::f32).to(gpu);
      const Tensor bias = random_tensor({s.out}, 6, DType::f32).to(gpu);
      const ::testing::ScopedTrace trace(__FILE__, __LINE__,
                                         str(s.rows, " x ", s.in, " -> ", s.out, " ", type, " ", weight_type));
      const auto expect_near = [&](const Tensor& ours, const Tensor& expected) {
        const std::vector<double> truth = expected.to_vector<double>();
        EXPECT_LE(largest_error(ours.to_vector<double>(), truth), rounding_tolerance(truth, 40, type));
      };
      const ops::RowNorm rms{.weight = scale, .options = {.weight_offset = 1}};
      const ops::NormLinear added = ops::norm_linear(x, residual, rms, weight, bias, ops::Activation::silu);
      const ops::ResidualNorm before = ops::add_rms_norm(x, residual, scale, rms.options);
      EXPECT_EQ(added.h.to_vector<double>(), before.h.to_vector<double>());
      expect_near(added.y, ops::linear(before.y, weight, bias, ops::Activation::silu));
      const ops::RowNorm layer{.kind = ops::RowNorm::Kind::layer, .weight = scale, .bias = shift};
      expect_near(ops::norm_linear(x, {}, layer, weight).y, ops::linear(ops::layer_norm(x, scale, shift), weight));
      const ops::ResidualNorm centred = ops::add_layer_norm(x, residual, scale, shift);
      const ops::NormLinear gated = ops::norm_gated_linear(x, residual, layer, weight, bias, ops::Gate::swiglu);
      EXPECT_EQ(gated.h.to_vector<double>(), centred.h.to_vector<double>());
      expect_near(gated.y, ops::gated_linear(centred.y, weight, bias, ops::Gate::swiglu));
      expect_near(ops::norm_gated_linear(x, {}, {}, weight, {}, ops::Gate::geglu).y,
                  ops::gated_linear(ops::rms_norm(x, {}), weight, {}, ops::Gate::geglu));
    }
  }
}

/// Eight rows: products read their weights, and attention its cache, before the previous kernel has ended.
TEST_F(CudaFewRows, ChainsThatReadWeightsEarly) {
  const Device gpu = Device::cuda();
  constexpr int64_t kRows = 8;
  constexpr int64_t kWidth = 1024;
  const Tensor first = random_tensor({kRows, 1, kWidth}, 8, DType::bf16).to(gpu);
  const auto small = [&](const Shape& shape, uint64_t seed) {
    return ops::scale(random_tensor(shape, seed, DType::bf16).to(gpu), 0.05);
  };
  const Tensor up = small({2 * 8192, kWidth}, 9);
  const Tensor down = small({kWidth, 8192}, 10);
  const Tensor qkv = small({4096, kWidth}, 12);
  const ops::FeedForwardWeights weights{up, {}, down, {}};
  const ops::RowNorm norm{.weight = random_tensor({kWidth}, 11, DType::f32).to(gpu)};
  expect_same_repeated(gpu, [&] {
    Tensor h = first;
    Tensor branch;
    for (int layer = 0; layer < 20; ++layer) {
      const ops::SublayerOutput fed = ops::gated_feed_forward_step(h, branch, norm, weights, ops::Gate::swiglu);
      const ops::NormLinear next = ops::norm_linear(fed.h, fed.parts, norm, qkv);
      h = next.h;
      branch = next.y.slice(2, 0, kWidth).contiguous();
    }
    return branch;
  });
}

/// Short kernels that each start while the previous one still runs (programmatic dependent launch) give bit-identical
/// results, with and without CUDA graphs: no kernel reads data too early or overwrites data still in use.
TEST_F(CudaFewRows, ChainsOfOverlappingLaunches) {
  const Device gpu = Device::cuda();
  for (const DType type : {DType::bf16, DType::f32}) {
    const Tensor first = random_tensor({1, 288}, 8, type).to(gpu);
    const Tensor gate_up = random_tensor({1536, 288}, 9, DType::bf16).to(gpu);
    const Tensor down = random_tensor({288, 768}, 10, DType::bf16).to(gpu);
    const Tensor scale = random_tensor({288}, 11, DType::f32).to(gpu);
    Tensor x = first.clone();
    expect_same_repeated(gpu, [&] {
      Tensor h = x;
      Tensor branch = Tensor::zeros({1, 288}, type, gpu);
      for (int layer = 0; layer < 40; ++layer) {
        Tensor inner;
        if (layer % 2 == 0) {
          const ops::ResidualNorm normed = ops::add_rms_norm(branch, h, scale);
          h = normed.h;
          inner = ops::gated_linear(normed.y, gate_up, {}, ops::Gate::swiglu);
        } else {
          const ops::NormLinear begun =
              ops::norm_gated_linear(branch, h, {.weight = scale}, gate_up, {}, ops::Gate::swiglu);
          h = begun.h;
          inner = begun.y;
        }
        branch = ops::rms_norm(ops::linear(inner, down), scale);
      }
      return branch;
    });
  }
}

}  // namespace
}  // namespace lamina::testing
