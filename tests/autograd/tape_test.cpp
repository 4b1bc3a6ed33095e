#include "lamina/autograd/tape.h"

#include <gtest/gtest.h>

#include <functional>

#include "lamina/ops/norm/rms_norm.h"
#include "support/close.h"
#include "support/random_tensor.h"

namespace lamina {
namespace {

using testing::expect_error;
using testing::random_tensor;

std::vector<double> values_of(const Tensor& tensor) { return tensor.to_vector<double>(); }

/// y = a · x, a minimal operator that saves only the factor.
Tensor times(const Tensor& x, double a) {
  std::vector<double> values = values_of(x);
  for (double& value : values) value *= a;
  const Tensor y = Tensor::from(values, x.shape(), x.device()).to(x.dtype());
  record("times", {x}, {y}, {}, [a](Backward& b) { b.add(0, times(b.grad(), a)); });
  return y;
}

/// y = x²; saves x.
Tensor square(const Tensor& x) {
  std::vector<double> values = values_of(x);
  for (double& value : values) value *= value;
  const Tensor y = Tensor::from(values, x.shape(), x.device()).to(x.dtype());
  record("square", {x}, {y}, {x}, [](Backward& b) {
    std::vector<double> g = b.grad().to_vector<double>();
    const std::vector<double> at = b.saved(0).to_vector<double>();
    for (size_t i = 0; i < g.size(); ++i) g[i] *= 2 * at[i];
    b.add(0, Tensor::from(g, b.saved(0).shape(), b.saved(0).device()));
  });
  return y;
}

Tensor plus(const Tensor& x, const Tensor& y) {
  const Tensor z = x.detach().clone().add_(y.detach());
  record("plus", {x, y}, {z}, {}, [](Backward& b) {
    b.add(0, b.grad());
    b.add(1, b.grad());
  });
  return z;
}

Tensor sum(const Tensor& x) {
  double total = 0;
  for (const double value : values_of(x)) total += value;
  const Tensor y = Tensor::full({}, total, x.dtype(), x.device());
  record("sum", {x}, {y}, {}, [shape = x.shape()](Backward& b) {
    b.add(0, Tensor::full(shape, b.grad().item(), b.grad().dtype(), b.grad().device()));
  });
  return y;
}

TEST(tape, GradientsAccumulateOverBackwards) {
  Tape tape;
  Tensor x = random_tensor({3, 2}, 1, DType::f64);
  tape.watch(x);
  tape.backward(sum(times(x, 3)));
  EXPECT_EQ(values_of(tape.grad(x)), std::vector<double>(6, 3.0));
  tape.backward(sum(times(x, 2)));
  EXPECT_EQ(values_of(tape.grad(x)), std::vector<double>(6, 5.0));
  tape.zero_grad();
  EXPECT_FALSE(tape.grad(x).defined());
  tape.backward(sum(plus(times(x, 2), times(x, 5))));
  EXPECT_EQ(values_of(tape.grad(x)), std::vector<double>(6, 7.0));
}

TEST(tape, ALeafsGradientIsItsOwn) {
  Tape tape;
  Tensor x = random_tensor({4}, 1, DType::f64);
  Tensor y = random_tensor({4}, 2, DType::f64);
  tape.watch(x);
  tape.watch(y);
  const Tensor seed = Tensor::full({4}, 1.0, DType::f64, x.device());
  tape.backward({plus(x, y)}, {seed});
  tape.grad(x).fill_(9);
  EXPECT_EQ(values_of(tape.grad(y)), std::vector<double>(4, 1.0));
  EXPECT_EQ(values_of(seed), std::vector<double>(4, 1.0));
}

TEST(tape, NoGradRecordsNothing) {
  Tape tape;
  Tensor x = random_tensor({3}, 1, DType::f64);
  tape.watch(x);
  Tensor inside;
  {
    const NoGrad scope(tape);
    EXPECT_FALSE(tape.recording());
    { const NoGrad inner(tape); }
    EXPECT_FALSE(tape.recording());
    inside = square(x);
    x.fill_(2.0);  // writing to a leaf is allowed here
    EXPECT_FALSE(is_tracked({x}));
  }
  EXPECT_TRUE(tape.recording());
  EXPECT_EQ(tape.size(), 0U);
  expect_error([&] { tape.backward({inside}, {inside}); }, "does not depend on a leaf");
  tape.backward(sum(square(x)));
  EXPECT_EQ(values_of(tape.grad(x)), std::vector<double>(3, 4.0));
}

TEST(tape, ASecondBackwardIsAnErrorUnlessRetained) {
  Tape tape;
  Tensor x = random_tensor({3}, 1, DType::f64);
  tape.watch(x);
  const Tensor once = sum(times(x, 2));
  tape.backward(once);
  expect_error([&] { tape.backward(once); }, "already consumed");
  EXPECT_EQ(values_of(tape.grad(x)), std::vector<double>(3, 2.0));
  tape.zero_grad();
  const Tensor twice = sum(times(x, 2));
  tape.backward(twice, true);
  EXPECT_GT(tape.size(), 0U);
  tape.backward(twice);
  EXPECT_EQ(values_of(tape.grad(x)), std::vector<double>(3, 4.0));
  EXPECT_EQ(tape.size(), 0U);
  expect_error([&] { tape.backward(twice); }, "already consumed");
}

TEST(tape, StaleTensorsCannotBeUsedFurther) {
  Tape tape;
  Tensor x = random_tensor({3}, 1, DType::f64);
  tape.watch(x);
  const Tensor y = times(x, 2);
  tape.backward(sum(y));
  expect_error([&] { sum(y); }, "already consumed");
  expect_error([&] { y.reshape({3, 1}); }, "already consumed");
  EXPECT_EQ(values_of(sum(y.detach())).size(), 1U);
  const Tensor z = times(x, 2);
  tape.reset();
  EXPECT_EQ(tape.size(), 0U);
  expect_error([&] { tape.backward(sum(z)); }, "already consumed");
}

TEST(tape, ConsumedTensorsMayBeOverwritten) {
  Tape tape;
  Tensor x = random_tensor({3}, 1, DType::f64);
  tape.watch(x);
  Tensor y = times(x, 2);
  tape.backward(sum(y));
  y.fill_(0);
  EXPECT_EQ(values_of(y), std::vector<double>(3, 0.0));
}

TEST(tape, OverwritingASavedTensorIsNoticed) {
  Tape tape;
  Tensor x = random_tensor({3}, 1, DType::f64);
  tape.watch(x);
  const Tensor loss = sum(square(x));
  x.detach().fill_(5);
  expect_error([&] { tape.backward(loss); }, "overwritten in place");
  // The tape is usable again after the error.
  tape.zero_grad();
  tape.backward(sum(square(x)));
  EXPECT_EQ(values_of(tape.grad(x)), std::vector<double>(3, 10.0));
}

TEST(tape, OverwritingThroughAViewIsNoticed) {
  Tape tape;
  Tensor x = random_tensor({4}, 1, DType::f64);
  tape.watch(x);
  Tensor plain = random_tensor({4}, 2, DType::f64);
  const Tensor loss = sum(plus(square(x), square(plain)));
  plain.slice(0, 1, 1).fill_(0);  // plain is not tracked, so no backward needs it
  tape.backward(loss);
  const Tensor again = sum(square(x));
  x.detach().slice(0, 1, 1).fill_(0);
  expect_error([&] { tape.backward(again); }, "overwritten in place");
}

TEST(tape, WritingAFollowedTensorIsRefused) {
  Tape tape;
  Tensor x = random_tensor({3}, 1, DType::f64);
  tape.watch(x);
  Tensor y = times(x, 2);
  expect_error([&] { x.fill_(0); }, "a leaf [3] that the tape tracks");
  expect_error([&] { y.add_(y); }, "a tensor [3] that the tape tracks");
  expect_error([&] { y.slice(0, 0, 1).copy_(random_tensor({1}, 1, DType::f64)); }, "that the tape tracks");
  Tensor z = random_tensor({3}, 2, DType::f64);
  z.copy_(x);  // reading x is allowed; z is not tracked
  EXPECT_FALSE(is_tracked({z}));
}

TEST(tape, TwoTapesDoNotMix) {
  Tape first;
  Tape second;
  Tensor x = random_tensor({3}, 1, DType::f64);
  Tensor y = random_tensor({3}, 2, DType::f64);
  first.watch(x);
  second.watch(y);
  expect_error([&] { plus(x, y); }, "two tapes");
  expect_error([&] { second.grad(x); }, "not a leaf of this tape");
  const Tensor loss = sum(square(x));
  expect_error([&] { second.backward(loss); }, "does not depend on a leaf of this tape");
  first.backward(loss);
  EXPECT_TRUE(first.grad(x).defined());
}

TEST(tape, AnotherTapeThatIsOffReceivesNothing) {
  Tape first;
  Tape second;
  Tensor x = random_tensor({3}, 1, DType::f64);
  Tensor y = random_tensor({3}, 2, DType::f64);
  first.watch(x);
  second.watch(y);
  {
    const NoGrad scope(first);
    second.backward(sum(plus(x, y)));
  }
  EXPECT_TRUE(second.grad(y).defined());
  EXPECT_FALSE(first.grad(x).defined());
}

TEST(tape, LeavesOutliveTheirTape) {
  Tensor x = random_tensor({3}, 1, DType::f64);
  {
    Tape tape;
    tape.watch(x);
    square(x);
  }
  EXPECT_FALSE(is_tracked({x}));
  x.fill_(1);
  Tape other;
  other.watch(x);
  other.backward(sum(square(x)));
  EXPECT_EQ(values_of(other.grad(x)), std::vector<double>(3, 2.0));
}

TEST(tape, WatchingTwiceKeepsTheGraph) {
  Tape tape;
  Tensor x = random_tensor({3}, 1, DType::f64);
  tape.watch(x);
  const Tensor loss = sum(times(x, 2));
  tape.watch(x);
  tape.backward(loss);
  EXPECT_EQ(values_of(tape.grad(x)), std::vector<double>(3, 2.0));
}

TEST(tape, WatchRefusesWhatHasNoGradient) {
  Tape tape;
  Tensor ids = Tensor::zeros({3}, DType::i64, Device::cpu());
  expect_error([&] { tape.watch(ids); }, "floating types only");
  Tensor x = random_tensor({3}, 1, DType::f64);
  expect_error([&] { tape.watch(x, DType::i32); }, "floating types only");
  tape.watch(x);
  Tensor y = square(x);
  expect_error([&] { tape.watch(y); }, "watch its detach()");
  Tensor none;
  expect_error([&] { tape.watch(none); }, "undefined");
}

TEST(tape, BackwardChecksItsArgumentsBeforeItStarts) {
  Tape tape;
  Tensor x = random_tensor({3}, 1, DType::f64);
  tape.watch(x);
  const Tensor y = times(x, 2);
  const Tensor good = Tensor::full({3}, 1.0, DType::f64, x.device());
  expect_error([&] { tape.backward(y); }, "reduce it to one");
  expect_error([&] { tape.backward(std::vector<Tensor>{y}, std::vector<Tensor>{}); }, "1 outputs and 0 gradients");
  expect_error([&] { tape.backward({y, y}, {good, Tensor()}); }, "undefined");
  expect_error([&] { tape.backward({y, Tensor()}, {good, good}); }, "does not depend");
  expect_error([&] { tape.backward({y, y}, {good, good.reshape({1, 3})}); }, "[1,3]");
  expect_error([&] { tape.backward({y, y}, {good, good.to(DType::i32)}); }, "i32");
  expect_error([&] { tape.backward({y, y}, {good, good.to(Device::meta())}); }, "meta");
  EXPECT_FALSE(tape.grad(x).defined());
  // The rejected calls left the tape unchanged.
  tape.backward({y}, {good});
  EXPECT_EQ(values_of(tape.grad(x)), std::vector<double>(3, 2.0));
}

TEST(tape, SetGradChecksShapeAndPlace) {
  Tape tape;
  Tensor x = random_tensor({3}, 1, DType::f64);
  tape.watch(x);
  expect_error([&] { tape.set_grad(x, random_tensor({2}, 1, DType::f64)); }, "the shapes must be equal");
  expect_error([&] { tape.set_grad(x, random_tensor({3}, 1, DType::f64).to(DType::i32)); }, "i32");
  expect_error([&] { tape.set_grad(x, random_tensor({3}, 1, DType::f64).to(Device::meta())); }, "meta");
  const Tensor mine = Tensor::full({3}, 1.0, DType::f64, x.device());
  tape.set_grad(x, mine);
  tape.backward(sum(times(x, 2)));
  EXPECT_EQ(values_of(tape.grad(x)), std::vector<double>(3, 3.0));
  EXPECT_EQ(values_of(mine), std::vector<double>(3, 1.0)) << "a gradient handed in is not written to";
}

TEST(tape, ALeafAsItsOwnGradientIsNotKeptForever) {
  const Device device = Device::cpu();
  {
    Tape tape;
    Tensor x = Tensor::full({3}, 1.0, DType::f64, device);
    tape.watch(x);
    tape.set_grad(x, x);
    EXPECT_FALSE(tape.grad(x).grad_link());
    tape.backward(sum(times(x, 2)));
    EXPECT_EQ(values_of(tape.grad(x)), std::vector<double>(3, 3.0));
    EXPECT_EQ(values_of(x), std::vector<double>(3, 1.0));
    tape.set_grad(x, x);
  }
  EXPECT_EQ(device.allocator().counters().live, 0);
}

TEST(tape, ExceptionsInBackwardLeaveTheTapeUsable) {
  Tape tape;
  Tensor x = random_tensor({3}, 1, DType::f64);
  tape.watch(x);
  const Tensor y = x.clone();
  const Tensor bad = random_tensor({3}, 2, DType::f64);
  record("bad", {y}, {bad}, {}, [](Backward&) { throw Error("bad backward"); });
  expect_error([&] { tape.backward(sum(bad)); }, "bad backward");
  EXPECT_TRUE(tape.recording());
  EXPECT_EQ(tape.size(), 0U);
  expect_error([&] { tape.backward(sum(bad)); }, "already consumed");
  tape.zero_grad();
  tape.backward(sum(times(x, 2)));
  EXPECT_EQ(values_of(tape.grad(x)), std::vector<double>(3, 2.0));
}

TEST(tape, BackwardFromInsideBackwardIsRefused) {
  Tape tape;
  Tensor x = random_tensor({3}, 1, DType::f64);
  tape.watch(x);
  const Tensor y = random_tensor({3}, 2, DType::f64);
  record("recursive", {x}, {y}, {}, [&](Backward&) { tape.backward({y}, {y}); });
  expect_error([&] { tape.backward({y}, {random_tensor({3}, 3, DType::f64)}); }, "from inside a backward");
  const Tensor z = random_tensor({3}, 2, DType::f64);
  record("resetting", {x}, {z}, {}, [&](Backward&) { tape.reset(); });
  expect_error([&] { tape.backward({z}, {random_tensor({3}, 3, DType::f64)}); }, "from inside a backward");
}

TEST(tape, AWrongBackwardFunctionIsNamed) {
  Tape tape;
  Tensor x = random_tensor({3}, 1, DType::f64);
  tape.watch(x);
  const Tensor y = random_tensor({2}, 2, DType::f64);
  record("cropping", {x}, {y}, {}, [](Backward& b) { b.add(0, b.grad()); });
  expect_error([&] { tape.backward(sum(y)); }, "cropping backward: gradient [2] on cpu for an input [3]");
}

TEST(tape, UndefinedAndIntegerOutputs) {
  Tape tape;
  Tensor x = random_tensor({3}, 1, DType::f64);
  tape.watch(x);
  const Tensor y = random_tensor({3}, 2, DType::f64);
  const Tensor ids = Tensor::zeros({3}, DType::i64, x.device());
  bool ran = false;
  record("three", {x, Tensor()}, {Tensor(), ids, y}, {Tensor(), ids}, [&](Backward& b) {
    ran = true;
    EXPECT_FALSE(b.has_grad(0));
    EXPECT_FALSE(b.has_grad(1));
    EXPECT_TRUE(b.has_grad(2));
    EXPECT_TRUE(b.needs(0));
    EXPECT_FALSE(b.needs(1));
    EXPECT_FALSE(b.saved(0).defined());
    expect_error([&] { b.grad(0); }, "output 0");
    expect_error([&] { b.grad(1); }, "output 1");
    b.add(1, b.grad(2));  // this gradient is not wanted, so it is ignored
    b.add(0, b.grad(2));
  });
  EXPECT_FALSE(is_tracked({ids}));
  tape.backward(sum(y));
  EXPECT_TRUE(ran);
  EXPECT_EQ(values_of(tape.grad(x)), std::vector<double>(3, 1.0));
}

TEST(tape, AnOutputNobodyUsedHasAZeroGradient) {
  Tape tape;
  Tensor x = random_tensor({3}, 1, DType::f64);
  tape.watch(x);
  const Tensor used = random_tensor({3}, 2, DType::f64);
  const Tensor unused = random_tensor({2}, 2, DType::f64);
  record("two", {x}, {used, unused}, {}, [](Backward& b) {
    EXPECT_FALSE(b.has_grad(1));
    EXPECT_EQ(values_of(b.grad(1)), std::vector<double>(2, 0.0));
    b.add(0, b.grad(0));
  });
  tape.backward(sum(used));
  EXPECT_TRUE(tape.grad(x).defined());
}

TEST(tape, GradientsOfNarrowLeavesAreKeptInF32) {
  Tape tape;
  Tensor x = Tensor::full({4}, 1.0, DType::bf16, Device::cpu());
  tape.watch(x, DType::f32);
  const Tensor big = Tensor::full({4}, 256.0, DType::bf16, x.device());
  const Tensor one = Tensor::full({4}, 1.0, DType::bf16, x.device());
  tape.backward({x.clone()}, {big});
  for (int i = 0; i < 3; ++i) tape.backward({x.clone()}, {one});
  EXPECT_EQ(tape.grad(x).dtype(), DType::f32);
  EXPECT_EQ(values_of(tape.grad(x)), std::vector<double>(4, 259.0)) << "bf16 would have stayed at 256";
}

TEST(tape, AccumulatorIsTheBufferThatIsAddedTo) {
  Tape tape;
  Tensor x = random_tensor({3}, 1, DType::f64);
  tape.watch(x);
  const auto in_place = [](const Tensor& in) {
    const Tensor out = in.detach().clone();
    record("in_place", {in}, {out}, {}, [](Backward& b) {
      Tensor buffer = b.accumulator(0);
      if (buffer.defined()) {
        buffer.add_(b.grad());
      } else {
        b.add(0, b.grad());
      }
    });
    return out;
  };
  tape.backward(sum(in_place(x)));
  const void* buffer = tape.grad(x).raw();
  tape.backward(sum(plus(in_place(x), in_place(x))));
  EXPECT_EQ(values_of(tape.grad(x)), std::vector<double>(3, 3.0));
  EXPECT_EQ(tape.grad(x).raw(), buffer);
}

TEST(tape, AccumulatorNeverAliasesAnotherTensorsGradient) {
  Tape tape;
  Tensor x = random_tensor({3}, 1, DType::f64);
  Tensor y = random_tensor({3}, 2, DType::f64);
  tape.watch(x);
  tape.watch(y);
  const Tensor shared = plus(times(x, 1), times(y, 1));  // both inputs receive the same gradient tensor
  const Tensor x_again = times(x, 1);
  tape.backward(sum(plus(shared, plus(x_again, shared))));
  EXPECT_EQ(values_of(tape.grad(x)), std::vector<double>(3, 3.0));
  EXPECT_EQ(values_of(tape.grad(y)), std::vector<double>(3, 2.0));
}

/// Compares the tape's gradient of sum(w · f(x)) with central differences.
void check_gradient(const std::function<Tensor(const Tensor&)>& f, const Shape& shape, const std::string& what) {
  Tape tape;
  Tensor x = random_tensor(shape, 11, DType::f64);
  tape.watch(x);
  const Tensor y = f(x);
  const Tensor weight = random_tensor(y.shape(), 12, DType::f64).to(y.dtype());
  tape.backward({y}, {weight});
  const auto ours = values_of(tape.grad(x));
  const auto objective = [&](const std::vector<double>& at) {
    const auto out = values_of(f(Tensor::from(at, shape, x.device())));
    const auto w = values_of(weight);
    double total = 0;
    for (size_t i = 0; i < out.size(); ++i) total += w[i] * out[i];
    return total;
  };
  std::vector<double> at = values_of(x);
  const double step = 0x1p-10;  // f is linear: exact except for rounding
  for (size_t i = 0; i < at.size(); ++i) {
    const double middle = at[i];
    at[i] = middle + step;
    const double above = objective(at);
    at[i] = middle - step;
    const double below = objective(at);
    at[i] = middle;
    EXPECT_NEAR(ours[i], (above - below) / (2 * step), 1e-11) << what << " element " << i;
  }
}

TEST(tape, GradientsOfViewsAndCopies) {
  check_gradient([](const Tensor& x) { return x.reshape({4, -1}); }, {2, 6}, "reshape");
  check_gradient([](const Tensor& x) { return x.transpose(0, 1); }, {2, 6}, "transpose");
  check_gradient([](const Tensor& x) { return x.transpose(0, -1).reshape({12}); }, {2, 3, 2}, "reshape with copy");
  check_gradient([](const Tensor& x) { return x.slice(1, 1, 2); }, {2, 6}, "slice");
  check_gradient([](const Tensor& x) { return x.slice(0, 1, 0); }, {2, 6}, "empty slice");
  check_gradient([](const Tensor& x) { return x.clone(); }, {2, 6}, "clone");
  check_gradient([](const Tensor& x) { return x.transpose(0, 1).contiguous(); }, {2, 6}, "contiguous");
  check_gradient([](const Tensor& x) { return plus(x.slice(1, 0, 3), x.slice(1, 2, 3).clone()); }, {2, 5}, "overlap");
  check_gradient([](const Tensor& x) { return x.to(Device::cpu(1)); }, {2, 6}, "to the same device");
  check_gradient([](const Tensor& x) { return x.slice(0, 0, 1).transpose(0, 1).slice(0, 2, 3).reshape({3}); }, {2, 6},
                 "chain of views");
}

TEST(tape, GradientThroughAConversionIsConvertedBack) {
  Tape tape;
  Tensor x = random_tensor({5}, 1, DType::f32);
  tape.watch(x);
  const Tensor weight = random_tensor({5}, 2, DType::bf16);
  tape.backward({x.to(DType::bf16)}, {weight});
  EXPECT_EQ(tape.grad(x).dtype(), DType::f32);
  EXPECT_EQ(values_of(tape.grad(x)), values_of(weight));
  EXPECT_FALSE(is_tracked({x.to(DType::i64)}));
  EXPECT_FALSE(is_tracked({x.detach()}));
}

TEST(tape, RunsOnMetaTensors) {
  Tape tape;
  Tensor x = Tensor::empty({1000, 64}, DType::f32, Device::meta());
  Tensor w = Tensor::empty({64}, DType::f32, x.device());
  tape.watch(x);
  tape.watch(w);
  const Tensor y = ops::rms_norm(x, w);
  tape.backward({y}, {Tensor::empty(y.shape(), DType::f32, x.device())});
  EXPECT_EQ(tape.grad(w).shape(), Shape{64});
  EXPECT_TRUE(tape.grad(x).is_meta());
}

}  // namespace
}  // namespace lamina
