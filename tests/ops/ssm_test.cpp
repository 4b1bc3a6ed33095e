#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lamina/autograd/tape.h"
#include "lamina/ops/ssm/causal_conv1d.h"
#include "lamina/ops/ssm/long_conv.h"
#include "lamina/ops/ssm/s4d.h"
#include "lamina/ops/ssm/selective_scan.h"
#include "lamina/ops/ssm/ssd_scan.h"
#include "support/close.h"
#include "support/op_run.h"

namespace lamina::testing {
namespace {

const Device kCpu = Device::cpu(2);

/// Reproducible values in [low, high].
Tensor draw(const Shape& shape, uint64_t seed, double low = -1, double high = 1) {
  std::vector<double> values = output_gradient(seed, 0, static_cast<size_t>(shape.numel()), DType::f64);
  for (double& value : values) value = low + (value + 1) / 2 * (high - low);
  return make_tensor(values, shape, DType::f64, kCpu);
}

/// Slice of [batch, seq, …] at position t, as [batch, …].
Tensor position(const Tensor& tensor, int64_t t) {
  Shape shape;
  for (int axis = 0; axis < tensor.rank(); ++axis) {
    if (axis != 1) shape.push_back(tensor.dim(axis));
  }
  return tensor.slice(1, t, 1).reshape(shape).contiguous();
}

/// Compares two ways to compute one value. Each may round once per operation that feeds an element, relative to the
/// largest value.
void expect_equal(const Tensor& a, const Tensor& b, int64_t operations) {
  ASSERT_EQ(a.shape(), b.shape());
  const double largest = std::max(1.0, largest_magnitude(a));
  ASSERT_LE(largest_error(a, b), 2 * static_cast<double>(operations) * epsilon(DType::f64) * largest);
}

TEST(CausalConv1d, StepsEqualTheSequence) {
  const Tensor x = draw({2, 9, 5}, 1);
  const Tensor weight = draw({5, 4}, 2);
  const Tensor bias = draw({5}, 3);
  Tensor state = draw({2, 5, 3}, 4);
  const Tensor y = ops::causal_conv1d(x, weight, bias, state, ops::ConvActivation::silu);
  const Tensor last = ops::causal_conv1d_state(x, 4, state);
  for (int64_t t = 0; t < 9; ++t) {
    expect_equal(ops::causal_conv1d_step(position(x, t), state, weight, bias, ops::ConvActivation::silu),
                 position(y, t), 10);
  }
  expect_equal(state, last, 0);
}

TEST(CausalConv1d, TwoHalvesEqualTheWhole) {
  const Tensor x = draw({2, 9, 5}, 1);
  const Tensor weight = draw({5, 6}, 2);
  const Tensor head = x.slice(1, 0, 3);
  const Tensor rest = ops::causal_conv1d(x.slice(1, 3, 6), weight, {}, ops::causal_conv1d_state(head, 6));
  expect_equal(rest, ops::causal_conv1d(x, weight).slice(1, 3, 6), 12);
}

TEST(SelectiveScan, StepsEqualTheSequence) {
  const int64_t seq = 70;
  const int64_t operations = 5 * seq * 3;
  const Tensor u = draw({2, seq, 5}, 1);
  const Tensor delta = draw({2, seq, 5}, 2);
  const Tensor a = draw({5, 3}, 3, -3, -0.1);
  const Tensor b = draw({2, seq, 3}, 4);
  const Tensor c = draw({2, seq, 3}, 5);
  ops::SelectiveScanExtras extras{draw({5}, 6), draw({2, seq, 5}, 7), draw({5}, 8), draw({2, 5, 3}, 9), true};
  const auto whole = ops::selective_scan(u, delta, a, b, c, extras);
  Tensor state = extras.initial_state.clone();
  for (int64_t t = 0; t < seq; ++t) {
    const ops::SelectiveScanExtras now{extras.d, position(extras.z, t), extras.delta_bias, {}, true};
    expect_equal(
        ops::selective_scan_step(position(u, t), position(delta, t), a, position(b, t), position(c, t), state, now),
        position(whole.y, t), operations);
  }
  expect_equal(state, whole.last_state, operations);
}

TEST(SsdScan, StepsAndEveryChunkSizeEqualTheSequence) {
  const int64_t seq = 50;
  const int64_t operations = 5 * seq * 5;
  const Tensor x = draw({2, seq, 4, 3}, 1);
  const Tensor dt = draw({2, seq, 4}, 2);
  const Tensor a = draw({4}, 3, -3, -0.1);
  const Tensor b = draw({2, seq, 2, 5}, 4);
  const Tensor c = draw({2, seq, 2, 5}, 5);
  ops::SsdExtras extras{.d = draw({4}, 6), .dt_bias = draw({4}, 7), .initial_state = draw({2, 4, 3, 5}, 8)};
  extras.dt_softplus = true;
  const auto whole = ops::ssd_scan(x, dt, a, b, c, extras);
  for (const int64_t chunk : {1, 7, 50, 4096}) {
    extras.chunk_size = chunk;
    const auto other = ops::ssd_scan(x, dt, a, b, c, extras);
    expect_equal(other.y, whole.y, operations);
    expect_equal(other.last_state, whole.last_state, operations);
  }
  Tensor state = extras.initial_state.clone();
  extras.initial_state = {};
  for (int64_t t = 0; t < seq; ++t) {
    expect_equal(ops::ssd_step(position(x, t), position(dt, t), a, position(b, t), position(c, t), state, extras),
                 position(whole.y, t), operations);
  }
  expect_equal(state, whole.last_state, operations);
}

/// With one channel per head and the same decay for all n, both scans compute the same.
TEST(SsdScan, IsASelectiveScanWithOneDecayPerHead) {
  const int64_t seq = 33;
  const Tensor u = draw({2, seq, 4}, 1);
  const Tensor dt = draw({2, seq, 4}, 2, 0.01, 1);
  const Tensor a = draw({4}, 3, -3, -0.1);
  const Tensor b = draw({2, seq, 1, 5}, 4);
  const Tensor c = draw({2, seq, 1, 5}, 5);
  std::vector<double> wide;
  for (const double value : a.to_vector<double>()) wide.insert(wide.end(), 5, value);
  const auto ssd = ops::ssd_scan(u.reshape({2, seq, 4, 1}), dt, a, b, c, {.chunk_size = 8});
  const auto selective = ops::selective_scan(u, dt, make_tensor(wide, {4, 5}, DType::f64, kCpu), b.reshape({2, seq, 5}),
                                             c.reshape({2, seq, 5}));
  expect_equal(ssd.y.reshape({2, seq, 4}), selective.y, 5 * seq * 5);
}

TEST(S4d, ConvolutionAndRecurrenceAgreeWithTheirGradients) {
  const int64_t seq = 150;
  Tensor leaves[] = {draw({2, seq, 3}, 1),  draw({3}, 2, -4, -1), draw({3, 4}, 3, -1, 0.5),
                     draw({3, 4}, 4, 0, 6), draw({3, 4, 2}, 5),   draw({3}, 6)};
  const Tensor dy = draw({2, seq, 3}, 7);
  const auto run = [&](bool recurrence) {
    Tape tape;
    Tensor in[6];
    for (int i = 0; i < 6; ++i) {
      in[i] = leaves[i].clone();
      tape.watch(in[i]);
    }
    const ops::S4dParameters parameters{in[1], in[2], in[3], in[4]};
    const Tensor y = recurrence ? ops::s4d_recurrence(in[0], parameters, in[5]).y
                                : ops::long_conv(in[0], ops::s4d_kernel(parameters, seq), in[5]);
    tape.backward({y}, {dy});
    std::vector<Tensor> results{y};
    for (const Tensor& leaf : in) results.push_back(tape.grad(leaf));
    return results;
  };
  const auto by_convolution = run(false);
  const auto by_recurrence = run(true);
  for (size_t i = 0; i < by_convolution.size(); ++i) {
    SCOPED_TRACE(i);
    expect_equal(by_convolution[i], by_recurrence[i], 2 * seq * seq);
  }
}

TEST(S4d, DecodingEqualsTheSequence) {
  const int64_t operations = 8 * 9 * 4;
  const Tensor u = draw({2, 9, 3}, 1);
  const ops::S4dParameters parameters{draw({3}, 2, -4, -1), draw({3, 4}, 3, -1, 0.5), draw({3, 4}, 4, 0, 6),
                                      draw({3, 4, 2}, 5)};
  const auto whole = ops::s4d_recurrence(u, parameters);
  Tensor state;
  for (int64_t t = 0; t < 9; ++t) {
    const auto now = ops::s4d_recurrence(u.slice(1, t, 1), parameters, {}, state);
    expect_equal(now.y, whole.y.slice(1, t, 1), operations);
    state = now.last_state;
  }
  expect_equal(state, whole.last_state, operations);
}

/// Causality: later inputs never change earlier outputs.
TEST(StateSpaces, TheFutureNeverMatters) {
  const int64_t seq = 80;
  const auto outputs = [&](double later) {
    const auto cut = [&](Tensor tensor) {
      tensor.slice(1, 40, seq - 40).fill_(later);
      return tensor;
    };
    const Tensor u = cut(draw({1, seq, 4}, 1));
    const Tensor dt = cut(draw({1, seq, 4}, 2, 0.01, 1));
    const Tensor b = cut(draw({1, seq, 3}, 4));
    const Tensor x = u.reshape({1, seq, 4, 1});
    const Tensor grouped = b.reshape({1, seq, 1, 3});
    std::vector<Tensor> all{
        ops::causal_conv1d(u, draw({4, 3}, 5)), ops::selective_scan(u, dt, draw({4, 3}, 6, -2, -1), b, b).y,
        ops::ssd_scan(x, dt, draw({4}, 7, -2, -1), grouped, grouped).y, ops::long_conv(u, draw({4, seq}, 8))};
    std::vector<double> early;
    for (const Tensor& y : all) {
      const auto values = y.slice(1, 0, 40).to_vector<double>();
      early.insert(early.end(), values.begin(), values.end());
    }
    return early;
  };
  EXPECT_EQ(outputs(0.25), outputs(0.75));
}

TEST(StateSpaces, ANumberThatIsNoneIsSeen) {
  const double nan = std::nan("");
  const Tensor u = Tensor::full({1, 1, 2}, 1.0, DType::f32, kCpu);
  const Tensor bad = Tensor::full({1, 1, 2}, nan, DType::f32, kCpu);
  const Tensor a = Tensor::full({2, 1}, -1.0, DType::f32, kCpu);
  const Tensor one = Tensor::full({1, 1, 1}, 1.0, DType::f32, kCpu);
  EXPECT_TRUE(std::isnan(ops::selective_scan(u, bad, a, one, one, {.delta_softplus = true}).y.to_vector<double>()[0]));
  EXPECT_TRUE(std::isnan(ops::ssd_scan(u.reshape({1, 1, 2, 1}), bad, a.reshape({2}), one.reshape({1, 1, 1, 1}),
                                       one.reshape({1, 1, 1, 1}), {.dt_softplus = true, .dt_max = 1.0})
                             .y.to_vector<double>()[0]));
}

TEST(StateSpaces, RefuseWhatDoesNotFit) {
  const Tensor u = draw({2, 4, 6}, 1);
  const Tensor a = draw({6, 3}, 2);
  const Tensor b = draw({2, 4, 3}, 3);
  expect_error([&] { ops::selective_scan(u, u, draw({5, 3}, 2), b, b); }, "u [2,4,6] has 6 channels");
  expect_error([&] { ops::selective_scan(u, u, a, draw({2, 4, 2}, 3), b); }, "b is [2,4,2]; expected [2,4,3]");
  expect_error([&] { ops::selective_scan(u, u.to(DType::f32), a, b, b); }, "delta is f32");
  expect_error([&] { ops::causal_conv1d(u, draw({6, 0}, 4)); }, "kernel from 1 to");
  expect_error([&] { ops::causal_conv1d(u, a, {}, draw({2, 6, 3}, 4)); }, "initial_state is [2,6,3]");
  expect_error([&] { ops::causal_conv1d({}, a); }, "expected [batch, seq, channels]");
  const Tensor x = u.reshape({2, 4, 3, 2});
  const Tensor dt = draw({2, 4, 3}, 5);
  const Tensor heads = draw({3}, 6);
  const Tensor mixed = draw({2, 4, 2, 5}, 7);
  expect_error([&] { ops::ssd_scan(x, dt, heads, mixed, mixed); }, "a divisor of 3");
  const Tensor whole = mixed.slice(2, 0, 1);
  expect_error([&] { ops::ssd_scan(x, dt, heads, whole, whole, {.chunk_size = 0}); }, "chunk_size is 0");
  expect_error([&] { ops::ssd_scan(x, dt, heads, whole, whole, {.dt_min = 2, .dt_max = 1}); }, "limited to [2, 1]");
  expect_error([&] { ops::ssd_scan(x, dt, heads, whole, whole, {.dt_min = std::nan("")}); }, "limited to [nan");
  expect_error([&] { ops::long_conv(u, draw({5, 4}, 8)); }, "kernel is [5,4]");
  expect_error(
      [&] {
        ops::s4d_kernel({draw({2}, 1), draw({2, 3}, 2), draw({2, 3}, 3), draw({2, 3, 2}, 4)}, -1);
      },
      "length is -1");
  Tensor state = draw({2, 6, 3}, 9).to(DType::f32);
  expect_error(
      [&] { ops::selective_scan_step(position(u, 0), position(u, 0), a, position(b, 0), position(b, 0), state); },
      "state is f32; expected f64");
}

}  // namespace
}  // namespace lamina::testing
