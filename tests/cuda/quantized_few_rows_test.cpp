// Matrix products of few rows with 8- and 4-bit weights at real model sizes, against the CPU.
#include <algorithm>
#include <cmath>

#include "cuda/on_gpu.h"
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

}  // namespace
}  // namespace lamina::testing
