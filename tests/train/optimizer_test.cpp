#include "lamina/train/optimizer.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "lamina/ops/norm/rms_norm.h"
#include "lamina/ops/optim/grad_norm.h"
#include "ops/optim_oracle.h"
#include "support/close.h"

namespace lamina::train {
namespace {

using lamina::testing::expect_error;
using lamina::testing::make_tensor;
using lamina::testing::random_values;

Tensor random_tensor(const Shape& shape, uint64_t seed, DType dtype = DType::f32) {
  return make_tensor(random_values(static_cast<size_t>(shape.numel()), seed, dtype), shape, dtype, Device::cpu());
}

struct Model {
  Tensor matrix = random_tensor({6, 4}, 1);
  Tensor embedding = random_tensor({5, 4}, 2);
  Tensor gain = random_tensor({4}, 3, DType::bf16);

  std::vector<ParamGroup> groups() const {
    return {{.params = {{"matrix", matrix}}, .lr = 0.1, .weight_decay = 0.1},
            {.params = {{"embedding", embedding}, {"gain", gain}}, .lr = 0.01, .orthogonalize = false}};
  }
  std::vector<Tensor> gradients(uint64_t step) const {
    return {random_tensor({6, 4}, 10 * step), random_tensor({5, 4}, 10 * step + 1),
            random_tensor({4}, 10 * step + 2, DType::bf16)};
  }
  std::vector<std::vector<double>> values() const {
    return {matrix.to_vector<double>(), embedding.to_vector<double>(), gain.to_vector<double>()};
  }
};

using Maker = std::function<std::unique_ptr<Optimizer>(const Model&)>;

std::vector<std::pair<std::string, Maker>> makers() {
  return {{"adamw", [](const Model& m) { return std::make_unique<AdamW>(m.groups()); }},
          {"sgd", [](const Model& m) { return std::make_unique<Sgd>(m.groups()); }},
          {"momentum",
           [](const Model& m) {
             return std::make_unique<Sgd>(m.groups(), ops::SgdOptions{0.9, true});
           }},
          {"muon", [](const Model& m) { return std::make_unique<Muon>(m.groups()); }}};
}

NamedTensors copy_of(const NamedTensors& state) {
  NamedTensors result;
  for (const NamedTensor& entry : state) result.push_back({entry.name, entry.tensor.clone()});
  return result;
}

TEST(optimizer, ResumedEqualsUninterruptedToTheBit) {
  for (const auto& [name, make] : makers()) {
    const Model whole;
    const auto straight = make(whole);
    for (uint64_t step = 0; step < 6; ++step) straight->step(whole.gradients(step));

    const Model resumed;
    NamedTensors saved;
    {
      const auto before = make(resumed);
      for (uint64_t step = 0; step < 3; ++step) before->step(resumed.gradients(step));
      saved = copy_of(before->state());
    }
    const auto after = make(resumed);
    after->load_state(saved);
    for (uint64_t step = 3; step < 6; ++step) after->step(resumed.gradients(step));
    EXPECT_EQ(whole.values(), resumed.values()) << name;
  }
}

TEST(optimizer, StateIsNamedAfterTheParameters) {
  const Model model;
  std::vector<std::string> names;
  for (const NamedTensor& entry : Muon(model.groups()).state()) names.push_back(entry.name);
  EXPECT_EQ(names, (std::vector<std::string>{"matrix.updates", "matrix.momentum", "embedding.updates", "embedding.m",
                                             "embedding.v", "gain.updates", "gain.master", "gain.m", "gain.v"}));
}

TEST(optimizer, SkipsParametersWithoutGradientAndTheirCount) {
  const Model model;
  AdamW optimizer(model.groups());
  const auto before = model.values();
  std::vector<Tensor> grads = model.gradients(1);
  grads[1] = Tensor();
  optimizer.step(grads);
  const auto after = model.values();
  EXPECT_NE(before[0], after[0]);
  EXPECT_EQ(before[1], after[1]);
  for (const NamedTensor& entry : optimizer.state()) {
    const bool count = entry.name.ends_with(".updates");
    if (count) {
      EXPECT_EQ(entry.tensor.item(), entry.name == "embedding.updates" ? 0 : 1) << entry.name;
    }
  }
}

TEST(optimizer, GroupsHaveTheirOwnSettings) {
  const Model model;
  Sgd optimizer(model.groups());
  optimizer.set_lr(1, 0.5);
  EXPECT_EQ(optimizer.group_count(), 2U);
  EXPECT_EQ(optimizer.lr(0), 0.1);
  EXPECT_EQ(optimizer.lr(1), 0.5);
  const auto before = model.values();
  const auto grads = model.gradients(1);
  optimizer.step(grads);
  const auto g = grads[1].to_vector<float>();
  const auto p = model.embedding.to_vector<float>();
  for (size_t i = 0; i < p.size(); ++i) EXPECT_FLOAT_EQ(p[i], static_cast<float>(before[1][i]) - 0.5F * g[i]);
}

TEST(optimizer, TrainsFromTheTape) {
  const Device device = Device::cpu();
  Tape tape;
  Tensor gain = Tensor::full({8}, 2.0, DType::bf16, device);
  tape.watch(gain, DType::f32);
  AdamW optimizer({{.params = {{"gain", gain}}, .lr = 0.1}});
  const Tensor x = random_tensor({3, 8}, 5, DType::bf16);
  const Tensor ones = Tensor::full({3, 8}, 1.0, DType::bf16, device);
  for (int step = 0; step < 3; ++step) {
    tape.zero_grad();
    tape.backward({ops::rms_norm(x, gain)}, {ones});
    EXPECT_EQ(tape.grad(gain).dtype(), DType::f32);
    ops::clip_grad_norm_(optimizer.gradients(tape), {.max_norm = 1.0, .names = optimizer.names()});
    optimizer.step(tape);
  }
  EXPECT_NE(gain.to_vector<double>(), std::vector<double>(8, 2.0));
}

TEST(optimizer, UpdateBetweenForwardAndBackwardIsNoticed) {
  Tape tape;
  Tensor x = random_tensor({3, 8}, 5);
  tape.watch(x);
  Sgd optimizer({{.params = {{"x", x}}, .lr = 0.1}});
  const Tensor y = ops::rms_norm(x, Tensor());
  optimizer.step(std::vector<Tensor>{random_tensor({3, 8}, 6)});
  expect_error([&] { tape.backward({y}, {random_tensor({3, 8}, 7)}); }, "overwritten in place");
}

TEST(optimizer, RefusesWhatDoesNotFit) {
  const Model model;
  const auto twice = [&](const std::string& other) {
    return std::vector<ParamGroup>{{.params = {{"matrix", model.matrix}, {other, model.matrix}}}};
  };
  expect_error([&] { AdamW a(twice("matrix")); }, "given twice");
  expect_error([&] { AdamW a(twice("head")); }, "the same memory");
  expect_error([&] { AdamW a({{.params = {{"x", Tensor()}}}}); }, "undefined");
  expect_error([&] { AdamW a({{.params = {{"x", model.matrix.transpose(0, 1)}}}}); }, "contiguous");
  expect_error([&] { AdamW a({{.params = {{"x", model.matrix}}, .lr = -1.0}}); }, "lr is -1");
  expect_error([&] { AdamW a(model.groups(), {.beta1 = 1.0}); }, "beta1 is 1");
  expect_error([&] { Sgd a(model.groups(), {.momentum = -1.0}); }, "momentum is -1");
  expect_error([&] { Muon a(model.groups(), {.steps = -3}); }, "Newton-Schulz");
  AdamW optimizer(model.groups());
  expect_error([&] { optimizer.step(std::vector<Tensor>{}); }, "0 gradients for 3 parameters");
  expect_error([&] { optimizer.step(Tape()); }, "not a leaf of this tape");
}

TEST(optimizer, RefusesForeignState) {
  const Model model;
  AdamW optimizer(model.groups());
  optimizer.step(model.gradients(1));
  const auto before = copy_of(optimizer.state());
  auto missing = copy_of(before);
  missing.pop_back();
  expect_error([&] { optimizer.load_state(missing); }, "gain.v is missing");
  auto extra = copy_of(before);
  extra.push_back({"other.m", Tensor::zeros({1}, DType::f32, Device::cpu())});
  expect_error([&] { optimizer.load_state(extra); }, "other.m belongs to no parameter");
  auto shaped = copy_of(before);
  shaped[1].tensor = Tensor::zeros({4, 6}, DType::f32, Device::cpu());
  expect_error([&] { optimizer.load_state(shaped); }, "matrix.m is f32 [4,6]; expected f32 [6,4]");
  auto negative = copy_of(before);
  negative[0].tensor.fill_(-1);
  expect_error([&] { optimizer.load_state(negative); }, "expected a count");
  const auto after = optimizer.state();
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(before[i].tensor.to_vector<double>(), after[i].tensor.to_vector<double>());
  }
}

}  // namespace
}  // namespace lamina::train
