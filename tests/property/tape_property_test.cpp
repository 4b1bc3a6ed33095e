// Tape invariants that hold for any graph, tested on random chains of operators and views.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "lamina/autograd/tape.h"
#include "lamina/ops/norm/rms_norm.h"
#include "support/close.h"
#include "support/op_run.h"
#include "support/uniform.h"

namespace lamina {
namespace {

using testing::epsilon;
using testing::largest_error;
using testing::largest_magnitude;

using Tensors = std::vector<Tensor>;

struct Draw {
  std::mt19937_64 random;
  int64_t below(int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); }
  Tensor tensor(const Shape& shape, DType dtype) {
    std::vector<double> values(static_cast<size_t>(shape.numel()));
    for (double& value : values) value = testing::uniform(random, -1.0, 1.0);
    return Tensor::from(values, shape, Device::cpu(2)).to(dtype);
  }
};

/// A random chain from [rows, 8]: links are views, operators, or sums with an earlier value.
Tensor random_chain(Draw draw, const Tensor& x, const Tensor& gain, int length) {
  Tensors stream{x};
  for (int i = 0; i < length; ++i) {
    const Tensor& last = stream.back();
    const Tensor& earlier = stream[static_cast<size_t>(draw.below(static_cast<int64_t>(stream.size())))];
    switch (draw.below(6)) {
      case 0: stream.push_back(ops::rms_norm(last, gain)); break;
      case 1: stream.push_back(ops::rms_norm(last, Tensor(), {.group_size = 4})); break;
      case 2: stream.push_back(ops::add_rms_norm(last, earlier, gain).h); break;
      case 3: stream.push_back(ops::add_rms_norm(last, earlier, gain).y); break;
      case 4: stream.push_back(last.reshape({-1, 4}).reshape({-1, 8}).clone()); break;
      default: stream.push_back(last.transpose(0, 1).reshape({-1, 4}).transpose(0, 1).reshape({-1, 8})); break;
    }
  }
  return stream.back();
}

struct Gradients {
  std::vector<double> x, gain;
};

Gradients gradients(uint64_t seed, DType dtype, const std::function<Tensor(const Tensor&)>& seed_of, int segments = 0) {
  Draw draw{std::mt19937_64(seed)};
  Tensor x = draw.tensor({1 + draw.below(5), 8}, dtype);
  Tensor gain = draw.tensor({8}, dtype);
  Tape tape;
  tape.watch(x);
  tape.watch(gain);
  Tensor y = x;
  for (uint64_t part = 0; part < 3; ++part) {
    const Draw own{std::mt19937_64(seed * 7 + part)};
    const auto segment = [own, gain](const Tensors& in) { return Tensors{random_chain(own, in[0], gain, 4)}; };
    y = static_cast<int>(part) < segments ? checkpoint(tape, segment, {y})[0] : segment({y})[0];
  }
  tape.backward({y}, {seed_of(y)});
  Gradients result{tape.grad(x).to_vector<double>(), {}};
  if (tape.grad(gain).defined()) result.gain = tape.grad(gain).to_vector<double>();
  return result;
}

std::vector<double> combine(double a, const std::vector<double>& u, double b, const std::vector<double>& v) {
  std::vector<double> result(u.size());
  for (size_t i = 0; i < u.size(); ++i) result[i] = a * u[i] + b * v[i];
  return result;
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b) {
  // A dozen f64 operators make a few hundred roundings. Intermediate values reach 1 even if the result is smaller.
  EXPECT_LE(largest_error(a, b), 512 * epsilon(DType::f64) * std::max(1.0, largest_magnitude(b)));
}

TEST(property, BackwardIsLinearInTheOutputsGradient) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const auto drawn = [seed](uint64_t which, const Tensor& y) {
      return Draw{std::mt19937_64(seed * 100 + which)}.tensor(y.shape(), y.dtype());
    };
    const Gradients u = gradients(seed, DType::f64, [&](const Tensor& y) { return drawn(1, y); });
    const Gradients v = gradients(seed, DType::f64, [&](const Tensor& y) { return drawn(2, y); });
    const Gradients both = gradients(seed, DType::f64, [&](const Tensor& y) {
      const auto mixed = combine(2.0, drawn(1, y).to_vector<double>(), -0.5, drawn(2, y).to_vector<double>());
      return Tensor::from(mixed, y.shape(), y.device());
    });
    expect_near(both.x, combine(2.0, u.x, -0.5, v.x));
    expect_near(both.gain, combine(2.0, u.gain, -0.5, v.gain));
    const Gradients none =
        gradients(seed, DType::f64, [&](const Tensor& y) { return Tensor::zeros(y.shape(), y.dtype(), y.device()); });
    for (const double value : none.x) EXPECT_EQ(value, 0.0);
  }
}

TEST(property, CheckpointingChangesNoBit) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto seed_of = [](const Tensor& y) { return Draw{std::mt19937_64(9)}.tensor(y.shape(), y.dtype()); };
      const Gradients plain = gradients(seed, dtype, seed_of);
      for (const int segments : {1, 2, 3}) {
        const Gradients checkpointed = gradients(seed, dtype, seed_of, segments);
        EXPECT_EQ(plain.x, checkpointed.x) << "seed " << seed;
        EXPECT_EQ(plain.gain, checkpointed.gain) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace lamina
