// Matrix products of up to 256 rows with 8- and 4-bit weights at real model sizes.
#include <algorithm>
#include <cmath>

#include "cuda/on_gpu.h"
#include "lamina/ops/attention/paged/paged_step.h"
#include "lamina/ops/kernel_dispatch.h"
#include "lamina/ops/linear/gated_linear.h"
#include "lamina/ops/linear/linear.h"
#include "lamina/ops/linear/quantized_linear.h"
#include "support/close.h"
#include "support/random_tensor.h"

namespace lamina::testing {
namespace {

using ops::QuantizedFormat;

using CudaQuantizedFewRows = OnGpu<>;

ops::QuantizedWeight on(const Device& device, ops::QuantizedWeight weight) {
  weight.data = weight.data.to(device);
  return weight;
}

/// Largest difference relative to the largest expected value.
double relative_error(const Tensor& ours, const Tensor& expected) {
  return largest_error(ours, expected) / largest_magnitude(expected);
}

TEST_F(CudaQuantizedFewRows, AsOnTheCpu) {
  const Device gpu = Device::cuda();
  struct Sizes {
    int64_t rows, in, out;
  };
  for (const Sizes s : {Sizes{1, 288, 32000},
                        {1, 4096, 4096},
                        {3, 4096, 1024},
                        {8, 768, 3072},
                        {5, 11008, 288},
                        {2, 4100, 48},
                        {1, 40000, 16}}) {
    const Tensor x = random_tensor({s.rows, s.in}, 1, DType::f32);
    const Tensor w = random_tensor({s.out, s.in}, 2, DType::f32);
    for (const QuantizedFormat format : {QuantizedFormat::q8, QuantizedFormat::q4}) {
      const ops::QuantizedWeight weight = ops::quantize(w, format);
      const ops::QuantizedWeight there = on(gpu, weight);
      const std::string what = str(s.rows, " x ", s.in, " -> ", s.out, " ", name_of(format));
      EXPECT_LE(relative_error(ops::quantized_linear(x.to(gpu), there), ops::quantized_linear(x, weight)), 3e-4)
          << what;
      EXPECT_LE(relative_error(ops::quantized_gated_linear(x.to(gpu), there, {}, ops::Gate::swiglu),
                               ops::quantized_gated_linear(x, weight, {}, ops::Gate::swiglu)),
                1e-3)
          << what << " gated";
    }
  }
}

TEST_F(CudaQuantizedFewRows, ARowDoesNotDependOnTheOthers) {
  const Device gpu = Device::cuda();
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    for (const QuantizedFormat format : {QuantizedFormat::q8, QuantizedFormat::q4}) {
      const Tensor x = random_tensor({8, 2500}, 6, type).to(gpu);
      const ops::QuantizedWeight weight = on(gpu, ops::quantize(random_tensor({864, 2500}, 7, DType::f32), format));
      const std::vector<double> all = ops::quantized_linear(x, weight).to_vector<double>();
      for (int64_t rows = 1; rows < 8; ++rows) {
        const std::vector<double> some = ops::quantized_linear(x.slice(0, 0, rows), weight).to_vector<double>();
        EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << rows << " rows of " << type;
      }
    }
  }
}

TEST_F(CudaQuantizedFewRows, BrokenRowsAreSeenAlone) {
  const Device gpu = Device::cuda();
  const ops::QuantizedWeight weight =
      on(gpu, ops::quantize(random_tensor({40, 320}, 3, DType::f32), QuantizedFormat::q8));
  for (const float bad : {NAN, INFINITY}) {
    std::vector<float> values(size_t{3} * 320, 0.25F);
    values[320 + 77] = bad;
    const Tensor x = Tensor::from(values, {3, 320}, Device::cpu(1)).to(gpu);
    const std::vector<float> y = ops::quantized_linear(x, weight).to_vector<float>();
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isfinite(y[i]), i / 40 != 1) << bad << " " << i;
  }
}

/// Tiles of wgmma against an f32 product with the dequantized weight.
TEST_F(CudaQuantizedFewRows, ClusterTilesAsDequantized) {
  const Device gpu = Device::cuda();
  struct Sizes {
    int64_t in, out;
  };
  for (const Sizes s : {Sizes{2048, 2560}, {2048, 2048}, {2048, 11264}, {5632, 2048}, {2048, 17024}}) {
    for (const QuantizedFormat format : {QuantizedFormat::q8, QuantizedFormat::q4}) {
      const ops::QuantizedWeight weight = on(gpu, ops::quantize(random_tensor({s.out, s.in}, 22, DType::f32), format));
      const Tensor whole = ops::dequantize(weight);
      for (const int64_t rows : {9, 32, 33, 64, 65, 128, 129, 256}) {
        const Tensor x = random_tensor({rows, s.in}, 23, DType::bf16).to(gpu);
        const Tensor wide = x.to(DType::f32);
        const std::string what = str(rows, " x ", s.in, " -> ", s.out, " ", name_of(format));
        const ops::ForcedKernel forced(gpu, "quantized_linear", "cluster_tiles");
        EXPECT_LE(relative_error(ops::quantized_linear(x, weight), ops::linear(wide, whole)), 6e-3) << what;
        const Tensor gated = ops::quantized_gated_linear(x, weight, {}, ops::Gate::swiglu);
        const Tensor expected = ops::gated_linear(wide, whole, {}, ops::Gate::swiglu);
        EXPECT_LE(relative_error(gated, expected), 1e-2) << what << " gated";
      }
    }
  }
}

/// Overlapping launches with quantized weights; see CudaFewRows.ChainsOfOverlappingLaunches.
TEST_F(CudaQuantizedFewRows, ChainsOfOverlappingLaunches) {
  const Device gpu = Device::cuda();
  for (const QuantizedFormat format : {QuantizedFormat::q8, QuantizedFormat::q4}) {
    const Tensor first = random_tensor({1, 288}, 8, DType::bf16).to(gpu);
    const ops::QuantizedWeight up = on(gpu, ops::quantize(random_tensor({1536, 288}, 9, DType::f32), format));
    const ops::QuantizedWeight down = on(gpu, ops::quantize(random_tensor({288, 768}, 10, DType::f32), format));
    expect_same_repeated(gpu, [&] {
      Tensor h = first;
      for (int layer = 0; layer < 40; ++layer) {
        h = ops::quantized_gated_linear(h, up, {}, ops::Gate::glu);
        h = ops::quantized_linear(h, down, {}, ops::Activation::tanh);
      }
      return h;
    });
  }
}

/// One token's attention sublayer with quantized projections: two launches against the composed operators.
TEST_F(CudaQuantizedFewRows, AttentionSublayers) {
  const Device gpu = Device::cuda();
  struct Sizes {
    int64_t width, heads, kv_heads, d, keys;
  };
  for (const Sizes s :
       {Sizes{2048, 32, 4, 64, 70}, {2048, 32, 4, 64, 700}, {768, 12, 12, 64, 33}, {1000, 8, 2, 128, 250}}) {
    for (const QuantizedFormat format : {QuantizedFormat::q8, QuantizedFormat::q4}) {
      const int64_t pages = (s.keys + 31) / 32;
      const Shape shape{pages, s.kv_heads, 32, s.d};
      const Tensor keys = random_tensor(shape, 11, DType::bf16).to(gpu);
      const Tensor values = random_tensor(shape, 12, DType::bf16).to(gpu);
      std::vector<int32_t> table(static_cast<size_t>(pages));
      for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(table.size() - 1 - i);
      const auto integers = [&](const std::vector<int32_t>& all, const Shape& of) {
        return Tensor::from(all, of, gpu);
      };
      const auto length = static_cast<int32_t>(s.keys);
      const ops::PagedRows rows{
          integers(table, {1, pages}), integers({length}, {1}), integers({0, 1}, {2}), {length}, {0, 1}};
      const int64_t projected = (s.heads + 2 * s.kv_heads) * s.d;
      const ops::AttentionProjections weights{
          on(gpu, ops::quantize(random_tensor({projected, s.width}, 13, DType::f32), format)),
          random_tensor({projected}, 14, DType::f32).to(gpu),
          on(gpu, ops::quantize(random_tensor({s.width, s.heads * s.d}, 15, DType::f32), format)),
          random_tensor({s.width}, 16, DType::f32).to(gpu)};
      const Tensor x = random_tensor({1, 1, s.width}, 17, DType::f32).to(gpu);
      const Tensor residual = random_tensor({4, 1, 1, s.width}, 18, DType::f32).to(gpu);
      const ops::RowNorm norm{.weight = random_tensor({s.width}, 19, DType::f32).to(gpu)};
      const ops::StepRotation rotation{random_tensor({s.keys, s.d / 2}, 20, DType::f32).to(gpu),
                                       random_tensor({s.keys, s.d / 2}, 21, DType::f32).to(gpu),
                                       {},
                                       0,
                                       Tensor::from(std::vector<int64_t>{s.keys - 1}, {1}, gpu)};
      const auto run = [&](const char* kernel) {
        const ops::ForcedKernel forced(gpu, "attention_sublayer_step", kernel);
        const ops::PagedCache cache{keys.clone(), values.clone(), {}};
        const auto [h, parts] = ops::paged_attention_sublayer_step(x, residual, norm, weights, cache, rows, rotation);
        return std::vector<Tensor>{h, ops::sum_of_parts(parts, x), cache.k.to(DType::f32), cache.v.to(DType::f32)};
      };
      const std::vector<Tensor> ours = run("two_launches");
      const std::vector<Tensor> expected = run("composed");
      const std::string what = str(s.width, " wide, ", s.heads, " heads, ", s.keys, " keys, ", name_of(format));
      EXPECT_EQ(largest_error(ours[0], expected[0]), 0.0) << what;
      EXPECT_LE(relative_error(ours[1], expected[1]), 2e-3) << what;
      EXPECT_LE(relative_error(ours[2], expected[2]), 8e-3) << what << " keys";
      EXPECT_LE(relative_error(ours[3], expected[3]), 8e-3) << what << " values";
    }
  }
}

}  // namespace
}  // namespace lamina::testing
