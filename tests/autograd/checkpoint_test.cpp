// Activation checkpointing gives bit-identical gradients to the plain segment, in every way it can be used.
#include <gtest/gtest.h>

#include <functional>

#include "lamina/autograd/tape.h"
#include "lamina/ops/norm/rms_norm.h"
#include "support/close.h"
#include "support/random_tensor.h"

namespace lamina {
namespace {

using testing::expect_error;
using testing::random_tensor;
using Tensors = std::vector<Tensor>;
using Segment = std::function<Tensors(const Tensors&)>;

/// Leaves of one model; segments capture `gain` instead of taking it as an input.
struct Leaves {
  Tensor x = random_tensor({5, 8}, 1, DType::f32);
  Tensor y = random_tensor({5, 8}, 2, DType::f32);
  Tensor gain = random_tensor({8}, 3, DType::f32);
};

/// Runs `forward` with and without checkpointing and compares all gradients.
using Wrap = std::function<Tensors(const Segment&, const Tensors&)>;
using Forward = std::function<Tensors(const Leaves&, const Wrap&)>;

std::vector<std::vector<float>> gradients(const Forward& forward, bool checkpointed, const std::string& which,
                                          bool retain) {
  Leaves leaves;
  Tape tape;
  if (which.find('x') != std::string::npos) tape.watch(leaves.x);
  if (which.find('y') != std::string::npos) tape.watch(leaves.y);
  if (which.find('g') != std::string::npos) tape.watch(leaves.gain);
  const Wrap wrap = [&](const Segment& segment, const Tensors& inputs) {
    return checkpointed ? checkpoint(tape, segment, inputs) : segment(inputs);
  };
  const Tensors outputs = forward(leaves, wrap);
  Tensors seeds;
  for (size_t i = 0; i < outputs.size(); ++i) seeds.push_back(random_tensor(outputs[i].shape(), 50 + i, DType::f32));
  tape.backward(outputs, seeds, retain);
  if (retain) tape.backward(outputs, seeds);
  EXPECT_EQ(tape.size(), 0U);
  EXPECT_TRUE(tape.recording());
  std::vector<std::vector<float>> result;
  for (const Tensor& leaf : {leaves.x, leaves.y, leaves.gain}) {
    const bool watched = leaf.grad_link() != nullptr;
    const Tensor grad = watched ? tape.grad(leaf) : Tensor();
    result.push_back(grad.defined() ? grad.to_vector<float>() : std::vector<float>{});
  }
  return result;
}

void expect_identical(const Forward& forward, const std::string& which = "xyg") {
  for (const bool retain : {false, true}) {
    const auto plain = gradients(forward, false, which, retain);
    const auto checkpointed = gradients(forward, true, which, retain);
    EXPECT_EQ(plain, checkpointed) << "leaves " << which << (retain ? ", retained" : "");
    size_t found = 0;
    for (const auto& grad : plain) found += grad.empty() ? 0 : 1;
    EXPECT_GT(found, 0U);
  }
}

Tensors norm_twice(const Tensor& x, const Tensor& y, const Tensor& gain) {
  const ops::ResidualNorm first = ops::add_rms_norm(x, y, gain);
  const ops::ResidualNorm second = ops::add_rms_norm(first.h, first.y, gain);
  return {second.y, second.h};
}

TEST(checkpoint, GradientsAreIdenticalForAnyLeaves) {
  const Forward forward = [](const Leaves& l, const Wrap& wrap) {
    return wrap([gain = l.gain](const Tensors& in) { return norm_twice(in[0], in[1], gain); }, {l.x, l.y});
  };
  for (const char* which : {"xyg", "xy", "xg", "x", "y"}) expect_identical(forward, which);
}

TEST(checkpoint, NoInputIsTrackedButACapturedLeafIs) {
  expect_identical(
      [](const Leaves& l, const Wrap& wrap) {
        return wrap([gain = l.gain](const Tensors& in) { return norm_twice(in[0], in[1], gain); }, {l.x, l.y});
      },
      "g");
}

TEST(checkpoint, InputsUsedInsideAndOutside) {
  // x gets three gradient contributions; their order of addition must not change.
  expect_identical([](const Leaves& l, const Wrap& wrap) {
    const Tensors inner = wrap([gain = l.gain](const Tensors& in) { return norm_twice(in[0], in[0], gain); }, {l.x});
    return norm_twice(inner[0], l.x, l.gain);
  });
}

TEST(checkpoint, ComputedInputsUsedInsideAndOutside) {
  expect_identical([](const Leaves& l, const Wrap& wrap) {
    const Tensor h = ops::rms_norm(l.x, l.gain);
    const Tensors inner = wrap([gain = l.gain](const Tensors& in) { return norm_twice(in[0], in[0], gain); }, {h});
    return norm_twice(inner[0], h, l.gain);
  });
}

TEST(checkpoint, ComputedTensorIsCaptured) {
  expect_identical([](const Leaves& l, const Wrap& wrap) {
    const Tensor h = ops::rms_norm(l.x, l.gain);
    return wrap([h, gain = l.gain](const Tensors& in) { return norm_twice(in[0], h, gain); }, {l.y});
  });
}

TEST(checkpoint, Nested) {
  expect_identical([](const Leaves& l, const Wrap& wrap) {
    return wrap(
        [&l, wrap](const Tensors& in) {
          const Tensors inner = wrap([&l](const Tensors& deep) { return norm_twice(deep[0], deep[1], l.gain); }, in);
          const Tensors more = wrap([&l](const Tensors& deep) { return norm_twice(deep[1], deep[0], l.gain); }, inner);
          return norm_twice(more[0], in[0], l.gain);
        },
        {l.x, l.y});
  });
}

TEST(checkpoint, InAChain) {
  expect_identical([](const Leaves& l, const Wrap& wrap) {
    Tensors h{l.x, l.y};
    for (int layer = 0; layer < 4; ++layer) {
      h = wrap([gain = l.gain](const Tensors& in) { return norm_twice(in[0], in[1], gain); }, h);
    }
    return h;
  });
}

TEST(checkpoint, OnlyOneOutputIsUsed) {
  expect_identical([](const Leaves& l, const Wrap& wrap) {
    const Tensors all = wrap(
        [gain = l.gain](const Tensors& in) {
          return Tensors{ops::rms_norm(in[0], gain), ops::rms_norm(in[1], gain)};
        },
        {l.x, l.y});
    return Tensors{all[1]};
  });
}

TEST(checkpoint, AnUnusedOutputContributesNothingEvenWhereItsSlopeIsInfinite) {
  // The norm of zeros with eps 0 has an infinite derivative; 0 · inf would be NaN.
  const Forward forward = [](const Leaves& l, const Wrap& wrap) {
    const Tensor zeros = Tensor::zeros({5, 8}, DType::f32, l.x.device());
    const Tensors all = wrap(
        [gain = l.gain, zeros](const Tensors& in) {
          return Tensors{ops::rms_norm(zeros, gain, {.eps = 0.0}), ops::rms_norm(in[0], gain)};
        },
        {l.x});
    return Tensors{all[1]};
  };
  expect_identical(forward);
}

TEST(checkpoint, UndefinedInputsAndOutputsAndIntegers) {
  expect_identical([](const Leaves& l, const Wrap& wrap) {
    const Tensors all = wrap(
        [gain = l.gain](const Tensors& in) {
          EXPECT_FALSE(in[1].defined());
          return Tensors{Tensor(), Tensor::zeros({2}, DType::i64, gain.device()), ops::rms_norm(in[0], gain)};
        },
        {l.x, Tensor()});
    EXPECT_FALSE(all[0].defined());
    return Tensors{all[2]};
  });
}

TEST(checkpoint, ASegmentReturnsItsInputOrALeafUnchanged) {
  const Forward forward = [](const Leaves& l, const Wrap& wrap) {
    const Tensors all = wrap(
        [y = l.y](const Tensors& in) {
          return Tensors{in[0], in[0].reshape({8, 5}), y, ops::rms_norm(in[0], Tensor())};
        },
        {l.x});
    return Tensors{all[0], all[1], all[2], all[3]};
  };
  expect_identical(forward);
}

TEST(checkpoint, KeepsNoActivations) {
  const Device device = Device::cpu();
  Tape tape;
  Tensor x = Tensor::full({64, 256}, 1.0, DType::f32, device);
  tape.watch(x);
  const auto live_after = [&](bool checkpointed) {
    const Segment segment = [](const Tensors& in) {
      Tensor h = in[0];
      for (int i = 0; i < 8; ++i) h = ops::rms_norm(h, Tensor());
      return Tensors{h};
    };
    const Tensors out = checkpointed ? checkpoint(tape, segment, {x}) : segment({x});
    const int64_t live = device.allocator().counters().live;
    tape.reset();
    return live;
  };
  const int64_t one = x.nbytes();
  EXPECT_GE(live_after(false), 8 * one);
  EXPECT_LE(live_after(true), 3 * one);
}

TEST(checkpoint, WithoutRecordingItJustRuns) {
  Leaves l;
  Tape tape;
  tape.watch(l.x);
  const NoGrad scope(tape);
  const Tensors out =
      checkpoint(tape, [](const Tensors& in) { return Tensors{ops::rms_norm(in[0], Tensor())}; }, {l.x});
  EXPECT_EQ(tape.size(), 0U);
  EXPECT_FALSE(is_tracked(out));
}

TEST(checkpoint, FailuresInTheSegmentLeaveTheTapeUsable) {
  Leaves l;
  Tape tape;
  tape.watch(l.x);
  int runs = 0;
  const Segment fails_later = [&](const Tensors& in) {
    if (++runs == 2) throw Error("second run");
    return Tensors{ops::rms_norm(in[0], Tensor())};
  };
  const Tensors out = checkpoint(tape, fails_later, {l.x});
  expect_error([&] { tape.backward(out, {l.y}); }, "second run");
  EXPECT_TRUE(tape.recording());
  EXPECT_EQ(tape.size(), 0U);
  expect_error([&] { checkpoint(tape, [](const Tensors&) -> Tensors { throw Error("at once"); }, {l.x}); }, "at once");
  EXPECT_TRUE(tape.recording());
  int outputs = 1;
  const Tensors grown = checkpoint(
      tape, [&](const Tensors& in) { return Tensors(static_cast<size_t>(outputs++), ops::rms_norm(in[0], Tensor())); },
      {l.x});
  expect_error([&] { tape.backward(grown, {l.y}); }, "it must be deterministic");
  tape.zero_grad();
  tape.backward({ops::rms_norm(l.x, Tensor())}, {l.y});
  EXPECT_TRUE(tape.grad(l.x).defined());
}

TEST(checkpoint, AnInputOverwrittenBeforeBackwardIsNoticed) {
  Leaves l;
  Tape tape;
  tape.watch(l.gain);
  const Tensors out = checkpoint(tape, [&](const Tensors& in) { return Tensors{ops::rms_norm(in[0], l.gain)}; }, {l.x});
  l.x.fill_(1);
  expect_error([&] { tape.backward(out, {l.y}); }, "overwritten in place");
}

TEST(checkpoint, RefusesAnotherTapesInputs) {
  Leaves l;
  Tape first;
  Tape second;
  first.watch(l.x);
  const Segment segment = [](const Tensors& in) { return Tensors{ops::rms_norm(in[0], Tensor())}; };
  expect_error([&] { checkpoint(second, segment, {l.x}); }, "another tape");
}

}  // namespace
}  // namespace lamina
