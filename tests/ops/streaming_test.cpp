// Outputs larger than the CPU caches use streaming stores, unlike the shapes of the op cases. Each row must be
// bit-identical to the same row computed in a small tensor.
#include <gtest/gtest.h>

#include <cstring>

#include "lamina/autograd/tape.h"
#include "lamina/base/cache.h"
#include "lamina/ops/activation/activation.h"
#include "lamina/ops/activation/gated_activation.h"
#include "lamina/ops/dropout/dropout.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/norm/layer_norm.h"
#include "lamina/ops/norm/rms_norm.h"

namespace lamina::ops {
namespace {

constexpr int64_t kWidth = 2048;

struct Passes {
  Tensor y, dx;
};

/// The output gradient is a slice of the input, so that a part of the rows gets the same gradient as in the whole.
Passes run(const Tensor& x, const std::function<Tensor(const Tensor&)>& op) {
  Tape tape;
  Tensor leaf = x.slice(0, 0, x.dim(0));
  tape.watch(leaf);
  const Tensor y = op(leaf);
  tape.backward({y}, {x.slice(-1, 0, y.dim(-1)).contiguous()});
  return {y, tape.grad(leaf)};
}

class Streaming : public ::testing::Test {
 protected:
  void SetUp() override {
    rows_ = last_level_cache_bytes() / (4 * kWidth) + 5;  // half of it (gated units) still exceeds the cache
    x_ = Tensor::empty({rows_, kWidth}, DType::f32, device_);
    for (int64_t i = 0; i < x_.numel(); ++i) x_.data<float>()[i] = static_cast<float>(i * 7919 % 2003) / 500.0F - 2.0F;
    scale_ = x_.slice(0, 3, 1).clone().reshape({kWidth});
    bias_ = x_.slice(0, 4, 1).clone().reshape({kWidth});
  }

  void expect_parts_equal(const std::function<Tensor(const Tensor&)>& op) const {
    const Passes whole = run(x_, op);
    for (const int64_t first : {int64_t{0}, rows_ / 2, rows_ - 7}) {
      const Passes part = run(x_.slice(0, first, 7), op);
      expect_equal(whole.y.slice(0, first, 7), part.y);
      expect_equal(whole.dx.slice(0, first, 7), part.dx);
    }
  }
  static void expect_equal(const Tensor& a, const Tensor& b) {
    ASSERT_EQ(a.shape(), b.shape());
    EXPECT_EQ(std::memcmp(a.raw(), b.raw(), static_cast<size_t>(b.nbytes())), 0);
  }

  Device device_ = Device::cpu(2);
  int64_t rows_ = 0;
  Tensor x_, scale_, bias_;
};

TEST_F(Streaming, RmsNorm) {
  expect_parts_equal([&](const Tensor& x) { return rms_norm(x, scale_); });
}
TEST_F(Streaming, LayerNorm) {
  expect_parts_equal([&](const Tensor& x) { return layer_norm(x, scale_, bias_); });
}
TEST_F(Streaming, Activation) {
  expect_parts_equal([](const Tensor& x) { return activation(x, Activation::silu); });
}
TEST_F(Streaming, GatedActivation) {
  expect_parts_equal([](const Tensor& x) { return gated_activation(x, Gate::swiglu); });
  expect_parts_equal([](const Tensor& x) { return gated_activation(x, Gate::glu, {.interleaved = true}); });
}
TEST_F(Streaming, BroadcastSum) {
  expect_parts_equal([&](const Tensor& x) { return add_scaled(x, scale_, 0.3); });
}
TEST_F(Streaming, Dropout) {
  const RandomKey key{5, 6};
  const Tensor whole = dropout(x_, 0.3, key);
  expect_equal(whole.slice(0, 0, 7), dropout(x_.slice(0, 0, 7), 0.3, key));
}

}  // namespace
}  // namespace lamina::ops
