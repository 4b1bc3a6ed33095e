#include <gtest/gtest.h>

#include "cuda/on_gpu.h"
#include "lamina/ops/optim/grad_norm.h"
#include "lamina/ops/optim/slots_kernel.h"
#include "ops/optim_oracle.h"
#include "support/close.h"
#include "support/guard_allocator.h"

namespace lamina::testing {
namespace {

using ops::Chunks;

const std::vector<Shape> kShapes{{3}, {0}, {}, {Chunks::kSize + 17}, {5, 7}, {2 * Chunks::kSize}, {1}};

std::vector<Tensor> make_gradients(DType dtype, const Device& device) {
  std::vector<Tensor> grads;
  for (size_t i = 0; i < kShapes.size(); ++i) {
    grads.push_back(
        make_tensor(random_values(static_cast<size_t>(kShapes[i].numel()), i, dtype), kShapes[i], dtype, device));
  }
  grads.insert(grads.begin() + 2, Tensor());
  return grads;
}

long double plain_norm(const std::vector<Tensor>& grads) {
  long double sum = 0;
  for (const Tensor& grad : grads) {
    if (!grad.defined()) continue;
    for (const double value : grad.to_vector<double>()) sum += static_cast<long double>(value) * value;
  }
  return std::sqrt(sum);
}

const std::vector<DType> kTypes{DType::f32, DType::f64, DType::bf16, DType::f16};

TEST(global_norm, EqualsThePlainSum) {
  for (const DType dtype : kTypes) {
    const auto grads = make_gradients(dtype, Device::cpu());
    const double truth = static_cast<double>(plain_norm(grads));
    const ops::GradNorm ours = ops::global_norm(grads);
    // Blocked f64 sums round far less often than a plain f64 loop over n elements, whose bound is n/2 roundings.
    EXPECT_NEAR(ours.norm, truth, truth * 0x1p-53 * 64) << dtype;
    EXPECT_FALSE(ours.bad);
  }
  EXPECT_EQ(ops::global_norm({}).norm, 0.0);
  EXPECT_EQ(ops::global_norm({Tensor()}).norm, 0.0);
}

TEST(global_norm, BitsDoNotDependOnThreads) {
  for (const DType dtype : kTypes) {
    const double one = ops::global_norm(make_gradients(dtype, Device::cpu(1))).norm;
    EXPECT_EQ(one, ops::global_norm(make_gradients(dtype, Device::cpu(2))).norm);
    EXPECT_EQ(one, ops::global_norm(make_gradients(dtype, Device::cpu(3))).norm);
  }
}

TEST(global_norm, HugeAndStridedValues) {
  const Device device = Device::cpu();
  const Tensor huge = Tensor::full({4}, 3e38, DType::f32, device);
  const double norm = 2.0 * static_cast<double>(3e38F);
  EXPECT_NEAR(ops::global_norm({huge}).norm, norm, rounding_tolerance({norm}, 5, DType::f64));
  const Tensor tiny = Tensor::full({4}, 1e-40, DType::f32, device);
  EXPECT_GT(ops::global_norm({tiny}).norm, 0.0);
  const auto grads = make_gradients(DType::f32, device);
  std::vector<Tensor> strided;
  for (const Tensor& grad : grads) strided.push_back(grad.defined() ? make_strided(grad) : grad);
  EXPECT_EQ(ops::global_norm(grads).norm, ops::global_norm(strided).norm);
}

TEST(global_norm, NamesTheFirstBadElement) {
  for (const DType dtype : kTypes) {
    for (const double value : {std::nan(""), static_cast<double>(INFINITY)}) {
      auto grads = make_gradients(dtype, Device::cpu(2));
      grads[4].slice(0, Chunks::kSize + 5, 1).fill_(value);
      grads[6].fill_(value);
      const ops::GradNorm result = ops::global_norm(grads);
      EXPECT_FALSE(std::isfinite(result.norm));
      ASSERT_TRUE(result.bad);
      EXPECT_EQ(result.bad->tensor, 4U);
      EXPECT_EQ(result.bad->index, Chunks::kSize + 5);
    }
  }
}

/// The CPU, and a GPU if there is one.
std::vector<Device> all_devices() {
  std::vector<Device> devices{Device::cpu(2)};
  if (Device::cuda_count() > 0) devices.push_back(Device::cuda());
  return devices;
}

using GradNormOnGpu = OnGpu<>;

TEST_F(GradNormOnGpu, EqualsThePlainSum) {
  const Device device = Device::cuda();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    auto grads = make_gradients(dtype, device);
    const double truth = static_cast<double>(plain_norm(grads));
    EXPECT_NEAR(ops::global_norm(grads).norm, truth, truth * 0x1p-53 * 64) << dtype;
    EXPECT_NEAR(ops::clip_grad_norm_(grads, {.max_norm = 0.5}).norm, truth, truth * 0x1p-47) << dtype;
    EXPECT_NEAR(static_cast<double>(plain_norm(grads)), 0.5, dtype == DType::f32 ? 1e-5 : 1e-2) << dtype;
    grads[4].slice(0, Chunks::kSize + 5, 1).fill_(INFINITY);
    grads[6].fill_(NAN);
    const ops::GradNorm bad = ops::global_norm(grads);
    ASSERT_TRUE(bad.bad);
    EXPECT_EQ(bad.bad->tensor, 4U);
    EXPECT_EQ(bad.bad->index, Chunks::kSize + 5);
  }
}

TEST(chunk_squares, AreThoseOfTheParts) {
  constexpr int64_t kChunk = 4096;
  for (const Device& device : all_devices()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto grads = make_gradients(dtype, device);
      const std::vector<double> all = ops::chunk_squares(grads, kChunk);
      size_t at = 0;
      for (const Tensor& grad : grads) {
        if (!grad.defined()) continue;
        const Tensor flat = grad.reshape({grad.numel()});
        for (int64_t begin = 0; begin < grad.numel(); begin += kChunk) {
          const Tensor part = flat.slice(0, begin, std::min(kChunk, grad.numel() - begin));
          ASSERT_LT(at, all.size());
          EXPECT_EQ(all[at], ops::chunk_squares({part}, kChunk)[0]);
          const auto truth = static_cast<double>(plain_norm({part}) * plain_norm({part}));
          EXPECT_NEAR(all[at++], truth, truth * 0x1p-53 * 64) << dtype;
        }
      }
      EXPECT_EQ(at, all.size());
    }
  }
  EXPECT_TRUE(ops::chunk_squares({}, kChunk).empty());
  EXPECT_EQ(ops::chunk_squares(make_gradients(DType::f32, Device::meta()), 100000)[0], 0.0);
  EXPECT_EQ(ops::chunk_squares(make_gradients(DType::f32, Device::cpu(1)), 100),
            ops::chunk_squares(make_gradients(DType::f32, Device::cpu(3)), 100));
  expect_error([] { ops::chunk_squares({}, 0); }, "chunk is 0");
}

TEST(clip_factor, StaysOnTheDevice) {
  for (const Device& device : all_devices()) {
    const auto grads = make_gradients(DType::f32, device);
    const double norm = static_cast<double>(plain_norm(grads));
    const Tensor found = Tensor::zeros({2}, DType::f32, device);
    const Tensor length = found.slice(0, 0, 1);
    const Tensor factor = found.slice(0, 1, 1);
    for (const double max_norm : {0.5, 2 * norm, static_cast<double>(INFINITY)}) {
      ops::clip_factor(grads, max_norm, length, factor);
      const auto values = found.to_vector<double>();
      EXPECT_NEAR(values[0], norm, norm * 0x1p-23);
      EXPECT_NEAR(values[1], std::min(1.0, max_norm / (norm + 1e-6)), 0x1p-23);
    }
    grads[0].slice(0, 1, 1).fill_(NAN);
    ops::clip_factor(grads, 0.5, length, factor);
    EXPECT_EQ(found.to_vector<double>()[1], -1.0);
    expect_error([&] { ops::clip_factor(grads, 0.0, length, factor); }, "max_norm is 0");
    expect_error([&] { ops::clip_factor({Tensor()}, 1.0, length, factor); }, "no gradients");
    expect_error([&] { ops::clip_factor(grads, 1.0, found, factor); }, "expected one number");
  }
}

TEST(clip_grad_norm_, ScalesToTheGivenNorm) {
  for (const DType dtype : kTypes) {
    const auto guard = make_guard_allocator();
    {
      const auto grads = make_gradients(dtype, Device::cpu(2, guard));
      std::vector<std::vector<double>> before;
      for (const Tensor& grad : grads)
        before.push_back(grad.defined() ? grad.to_vector<double>() : std::vector<double>{});
      const double norm = static_cast<double>(plain_norm(grads));
      const ops::GradNorm result = ops::clip_grad_norm_(grads, {.max_norm = 0.5});
      EXPECT_NEAR(result.norm, norm, norm * 0x1p-47);
      const double factor = 0.5 / (result.norm + 1e-6);
      for (size_t i = 0; i < grads.size(); ++i) {
        if (!grads[i].defined()) continue;
        std::vector<double> truth = before[i];
        std::vector<double> naive = before[i];
        for (double& value : truth) value *= factor;
        for (double& value : naive) {
          value = dtype == DType::f64 ? value * factor : static_cast<float>(value) * static_cast<float>(factor);
        }
        expect_as_close(grads[i].to_vector<double>(), truth, naive, dtype, str("gradient ", i, " ", dtype));
      }
    }
    EXPECT_EQ(guard->overrun(), "");
  }
}

TEST(clip_grad_norm_, LeavesSmallAndBadGradientsAlone) {
  const Device device = Device::cpu();
  const Tensor small = Tensor::full({3}, 0.1, DType::f32, device);
  const auto before = small.to_vector<float>();
  ops::clip_grad_norm_({small}, {.max_norm = 1.0});
  EXPECT_EQ(small.to_vector<float>(), before);
  const Tensor bad = Tensor::from(std::vector<float>{1.0F, INFINITY, NAN}, {3}, device);
  EXPECT_FALSE(std::isfinite(ops::clip_grad_norm_({small, bad}, {.max_norm = 1.0}).norm));
  EXPECT_EQ(small.to_vector<float>(), before);
}

TEST(clip_grad_norm_, RefusesWithTheNameAndPosition) {
  const Device device = Device::cpu();
  const Tensor good = Tensor::full({3}, 0.1, DType::f32, device);
  const Tensor bad = Tensor::from(std::vector<float>{1.0F, INFINITY, NAN}, {3}, device);
  expect_error(
      [&] {
        ops::clip_grad_norm_({good, bad}, {.error_if_nonfinite = true, .names = {"wte", "blocks.0.w"}});
      },
      "gradient 1 (blocks.0.w) holds inf at position 1");
  expect_error([&] { ops::clip_grad_norm_({good, bad}, {.error_if_nonfinite = true}); }, "gradient 1 holds inf");
  const Tensor overflow = Tensor::full({3}, 1e300, DType::f64, device);
  expect_error([&] { ops::clip_grad_norm_({overflow}, {.error_if_nonfinite = true}); }, "the norm overflows");
  for (const double max_norm : {0.0, -1.0, std::nan(""), static_cast<double>(INFINITY)}) {
    expect_error([&] { ops::clip_grad_norm_({good}, {.max_norm = max_norm}); }, "max_norm is");
  }
  expect_error([&] { ops::clip_grad_norm_({good}, {.names = {"a", "b"}}); }, "1 gradients and 2 names");
  expect_error([&] { ops::clip_grad_norm_({make_strided(good)}, {}); }, "strided view");
  expect_error([&] { ops::global_norm({good.to(DType::i32)}); }, "tensor 0 is i32");
  expect_error([&] { ops::global_norm({good, good.to(Device::meta())}); }, "move them together");
  expect_error([&] { ops::scale_({good}, NAN); }, "factor is nan");
}

}  // namespace
}  // namespace lamina::testing
