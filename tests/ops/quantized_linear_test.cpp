// Quantization error of weights and activations, against plain loops and bounds derived from the formats.
#include "lamina/ops/linear/quantized_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "lamina/autograd/tape.h"
#include "lamina/ops/kernel_dispatch.h"
#include "lamina/ops/linear/norm_linear.h"
#include "support/close.h"

namespace lamina::testing {
namespace {

using ops::QuantizedFormat;

std::vector<float> normal_values(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 0.05F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

double largest_of(const float* values, int64_t count) {
  double most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, std::abs(static_cast<double>(values[i])));
  return most;
}

TEST(Quantize, EightBitsErrByHalfAStepAtMost) {
  const Device device = Device::cpu(2);
  const int64_t out = 21;
  const int64_t in = 75;
  const std::vector<float> weight = normal_values(static_cast<size_t>(out * in), 1);
  const auto back =
      ops::dequantize(ops::quantize(Tensor::from(weight, {out, in}, device), QuantizedFormat::q8)).to_vector<float>();
  for (int64_t row = 0; row < out; ++row) {
    for (int64_t first = 0; first < in; first += 32) {
      const int64_t count = std::min<int64_t>(32, in - first);
      const float* block = weight.data() + row * in + first;
      // Half a quantization step, plus the rounding of the f16 scale at the largest value.
      const double step = largest_of(block, count) / 127;
      for (int64_t i = 0; i < count; ++i) {
        const double error = std::abs(static_cast<double>(block[i]) -
                                      static_cast<double>(back[static_cast<size_t>(row * in + first + i)]));
        EXPECT_LE(error, step * (0.5 * (1 + 0x1p-11) + 127 * 0x1p-11)) << row << " " << first + i;
      }
    }
  }
}

/// Σ (w − ŵ)² of a block whose extreme maps to −8, in double.
double plain_q4_error(const float* block, int64_t count) {
  double extreme = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (std::abs(static_cast<double>(block[i])) > std::abs(extreme)) extreme = static_cast<double>(block[i]);
  }
  const auto scale = static_cast<double>(static_cast<float>(f16(static_cast<float>(extreme / -8))));
  double error = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double w = static_cast<double>(block[i]);
    const double q = std::clamp(std::nearbyint(w / scale), -8.0, 7.0);
    error += (w - scale * q) * (w - scale * q);
  }
  return error;
}

TEST(Quantize, FourBitsErrLessThanThePlainScale) {
  const Device device = Device::cpu(2);
  const int64_t out = 40;
  const int64_t in = 96;
  const std::vector<float> weight = normal_values(static_cast<size_t>(out * in), 2);
  const auto back =
      ops::dequantize(ops::quantize(Tensor::from(weight, {out, in}, device), QuantizedFormat::q4)).to_vector<float>();
  double ours = 0;
  double plain = 0;
  for (int64_t first = 0; first < out * in; first += 32) {
    double error = 0;
    for (int64_t i = first; i < first + 32; ++i) {
      const double off =
          static_cast<double>(weight[static_cast<size_t>(i)]) - static_cast<double>(back[static_cast<size_t>(i)]);
      error += off * off;
    }
    const double other = plain_q4_error(weight.data() + first, 32);
    EXPECT_LE(error, other + rounding_tolerance({other}, 32, DType::f32));
    ours += error;
    plain += other;
  }
  EXPECT_LT(ours, 0.9 * plain);
}

TEST(QuantizedLinear, ActivationsErrByHalfAStepOfTheirBlock) {
  const Device device = Device::cpu(2);
  const int64_t rows = 9;
  const int64_t in = 168;
  const int64_t out = 37;
  const std::vector<float> x = normal_values(static_cast<size_t>(rows * in), 3);
  const std::vector<float> w = normal_values(static_cast<size_t>(out * in), 4);
  for (const QuantizedFormat format : {QuantizedFormat::q8, QuantizedFormat::q4}) {
    const ops::QuantizedWeight weight = ops::quantize(Tensor::from(w, {out, in}, device), format);
    const auto held = ops::dequantize(weight).to_vector<float>();
    const auto y = ops::quantized_linear(Tensor::from(x, {rows, in}, device), weight).to_vector<float>();
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < out; ++j) {
        double truth = 0;
        double bound = 0;
        double sizes = 0;
        for (int64_t first = 0; first < in; first += 32) {
          const int64_t count = std::min<int64_t>(32, in - first);
          const double half = largest_of(x.data() + i * in + first, count) / 254;
          for (int64_t l = first; l < first + count; ++l) {
            const double product = static_cast<double>(x[static_cast<size_t>(i * in + l)]) *
                                   static_cast<double>(held[static_cast<size_t>(j * in + l)]);
            truth += product;
            sizes += std::abs(product);
            bound += half * std::abs(static_cast<double>(held[static_cast<size_t>(j * in + l)]));
          }
        }
        // The sum over six blocks is in f32.
        EXPECT_LE(std::abs(static_cast<double>(y[static_cast<size_t>(i * out + j)]) - truth),
                  bound + 8 * 0x1p-24 * sizes);
      }
    }
  }
}

// Rows are independent: the same bits for any number of other rows, any kernel and any number of threads.
TEST(QuantizedLinear, RowsHaveTheSameBitsInEveryBatch) {
  const int64_t in = 1090;  // several sections of k for tiles, and a padded block
  const int64_t out = 37;
  const int64_t rows = 35;
  const std::vector<float> x = normal_values(static_cast<size_t>(rows * in), 5);
  const std::vector<float> w = normal_values(static_cast<size_t>(out * in), 6);
  for (const QuantizedFormat format : {QuantizedFormat::q8, QuantizedFormat::q4}) {
    const Device one = Device::cpu(1);
    const ops::QuantizedWeight weight = ops::quantize(Tensor::from(w, {out, in}, one), format);
    std::vector<float> alone;
    for (int64_t row = 0; row < rows; ++row) {
      const auto first = x.begin() + row * in;
      const Tensor given = Tensor::from(std::vector<float>(first, first + in), {1, in}, one);
      const auto y = ops::quantized_linear(given, weight).to_vector<float>();
      alone.insert(alone.end(), y.begin(), y.end());
    }
    int kernels = 0;
    for (const char* kernel : {"int8_dot", "int8_tile", "int8_tile_emulated"}) {
      for (const int threads : {1, 3}) {
        const Device device = Device::cpu(threads);
        const ops::QuantizedWeight held = ops::quantize(Tensor::from(w, {out, in}, device), format);
        const ops::ForcedKernel forced(device, "cpu_int8_product", kernel);
        for (const int64_t count : {int64_t{1}, int64_t{7}, int64_t{16}, int64_t{17}, rows}) {
          const Tensor given = Tensor::from(std::vector<float>(x.begin(), x.begin() + count * in), {count, in}, device);
          try {
            const auto y = ops::quantized_linear(given, held).to_vector<float>();
            EXPECT_EQ(y, std::vector<float>(alone.begin(), alone.begin() + count * out)) << kernel << " " << count;
            ++kernels;
          } catch (const ops::UnsupportedKernel&) {
            continue;
          }
        }
      }
    }
    EXPECT_GE(kernels, 10);
  }
}

TEST(QuantizedLinear, BrokenInputsAreSeen) {
  const Device device = Device::cpu(1);
  const ops::QuantizedWeight weight =
      ops::quantize(Tensor::full({3, 40}, 0.5, DType::f32, device), QuantizedFormat::q8);
  for (const float bad : {NAN, INFINITY}) {
    std::vector<float> x(40, 1.0F);
    x[35] = bad;
    for (const float y : ops::quantized_linear(Tensor::from(x, {1, 40}, device), weight).to_vector<float>()) {
      EXPECT_FALSE(std::isfinite(y));
    }
  }
  const Tensor huge = Tensor::full({1, 32}, 3e7, DType::f32, device);
  expect_error([&] { ops::quantize(huge, QuantizedFormat::q8); }, "beyond the largest f16");
  expect_error([&] { ops::quantize(Tensor::full({1, 3}, NAN, DType::f32, device), QuantizedFormat::q4); }, "finite");
  expect_error([&] { ops::quantize(Tensor::full({3}, 1, DType::f32, device), QuantizedFormat::q4); }, "[out, in]");
  expect_error([&] { ops::quantized_linear(Tensor::full({2, 39}, 1, DType::f32, device), weight); }, "[3, 40]");
  expect_error(
      [&] {
        ops::quantized_gated_linear(Tensor::full({2, 40}, 1, DType::f32, device), weight, {}, {});
      },
      "quantized_gated_linear: the weight is [3, 40]; expected an even");
  Tape tape;
  Tensor x = Tensor::full({2, 40}, 1, DType::f32, device);
  tape.watch(x);
  expect_error([&] { ops::quantized_linear(x, weight); }, "NoGrad");
}

/// One row on a CPU: the kernel with norm, product and gate in one parallel region has the bits of the operators.
TEST(QuantizedLinear, NormedRowHasTheBitsOfTheOperators) {
  for (const int threads : {1, 2, 5}) {
    const Device device = Device::cpu(threads);
    for (const auto& widths : {std::pair{75, 21}, {288, 1024}, {768, 2304}}) {
      const int in = widths.first;
      const int out = widths.second;
      const auto tensor = [&](const Shape& shape, unsigned seed) {
        return Tensor::from(normal_values(static_cast<size_t>(shape.numel()), seed), shape, device);
      };
      const Tensor x = tensor({1, 1, in}, 1);
      const Tensor scale = tensor({in}, 2);
      const ops::RowNorm rms{.weight = scale, .options = {.eps = 1e-5, .weight_offset = 1}};
      const ops::RowNorm layer{.kind = ops::RowNorm::Kind::layer, .weight = scale, .bias = tensor({in}, 3)};
      for (const QuantizedFormat format : {QuantizedFormat::q8, QuantizedFormat::q4}) {
        const ops::LinearWeight weight(ops::quantize(tensor({out, in}, 4), format));
        for (const Tensor& residual : {Tensor(), tensor({1, 1, in}, 5)}) {
          for (const ops::RowNorm& norm : {rms, layer}) {
            const Tensor bias = residual.defined() ? tensor({out}, 6) : Tensor();
            const auto expect_bits = [&](const auto& run) {
              const auto with = [&](const char* kernel) {
                const ops::ForcedKernel forced(device, "norm_linear", kernel);
                const ops::NormLinear result = run();
                return std::pair{result.h.template to_vector<float>(), result.y.template to_vector<float>()};
              };
              EXPECT_EQ(with("cpu"), with("composed")) << in << " " << out << " " << name_of(format);
            };
            expect_bits([&] { return norm_linear(x, residual, norm, weight, bias, ops::Activation::silu); });
            if (out % 32 != 0) continue;
            expect_bits([&] { return norm_gated_linear(x, residual, norm, weight, bias, ops::Gate::swiglu); });
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace lamina::testing
