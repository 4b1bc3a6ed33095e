// Packed projections: one tensor with several named parts, or separate tensors when adopted from a checkpoint.
#include "lamina/nn/projection.h"

#include <gtest/gtest.h>

#include "lamina/autograd/tape.h"
#include "support/close.h"
#include "support/names_of.h"

namespace lamina::testing {
namespace {

class Owner final : public nn::Module {
 public:
  Owner(std::vector<nn::ProjectionPart> parts, const Device& device)
      : packed("qkv", std::move(parts), 4, nn::ParameterFactory(device, {.seed = 3})) {
    add_child("", packed);
  }
  nn::PackedLinear packed;
};

const std::vector<std::vector<nn::ProjectionPart>> kLayouts{
    {{"q", 3, false}, {"k", 2, false}, {"v", 5, false}},
    {{"q", 3, true}, {"k", 2, true}, {"v", 5, true}},
    {{"q", 3, false}, {"k", 2, true}, {"v", 5, false}},
};

/// Roundings in a result or gradient: a row of x and the bias, then the sum over the rows of x.
constexpr int64_t kRoundings = 4 + 1 + 2 * 3;

/// Gives every weight and bias a distinct value.
void number(nn::Module& module) {
  float next = 0.1F;
  for (auto& [name, tensor] : module.state_dict()) {
    std::vector<float> values(static_cast<size_t>(tensor.numel()));
    for (float& value : values) value = std::sin(next += 0.7F);
    Tensor target = tensor;
    target.copy_(Tensor::from(values, tensor.shape(), Device::cpu(1)));
  }
}

struct Outputs {
  std::vector<double> whole;
  std::vector<std::vector<double>> parts;
  std::vector<std::vector<double>> grads;
};
Outputs outputs_of(Owner& owner, const Device& device) {
  Tape tape;
  for (auto& [name, tensor] : owner.named_parameters()) tape.watch(tensor);
  std::vector<float> input(2 * 3 * 4);
  for (size_t i = 0; i < input.size(); ++i) input[i] = std::cos(static_cast<float>(i));
  const Tensor x = Tensor::from(input, {2, 3, 4}, device);
  Outputs found;
  found.whole = owner.packed.forward(x).to_vector<double>();
  const std::vector<Tensor> parts = owner.packed.forward_parts(x);
  std::vector<Tensor> seeds;
  for (const Tensor& part : parts) {
    found.parts.push_back(part.to_vector<double>());
    seeds.push_back(part.detach().clone());
  }
  tape.backward(parts, seeds);
  for (const auto& [name, grad] : owner.named_gradients(tape)) found.grads.push_back(grad.to_vector<double>());
  return found;
}

TEST(PackedLinear, HasOneTensorForOptimizersAndOnePerNameForFiles) {
  const Device device = Device::cpu(1);
  const Owner plain(kLayouts[0], device);
  EXPECT_EQ(names_of(plain.named_parameters()), std::vector<std::string>{"qkv.weight"});
  EXPECT_EQ(names_of(plain.state_dict()), (std::vector<std::string>{"q.weight", "k.weight", "v.weight"}));
  EXPECT_TRUE(plain.state_dict()[1].tensor.shares_memory_with(plain.named_parameters()[0].tensor));
  EXPECT_EQ(plain.state_dict()[2].tensor.shape(), (Shape{5, 4}));
  const Owner biased(kLayouts[1], device);
  EXPECT_EQ(names_of(biased.named_parameters()), (std::vector<std::string>{"qkv.weight", "qkv.bias"}));
  const Owner mixed(kLayouts[2], device);
  EXPECT_EQ(names_of(mixed.state_dict()), (std::vector<std::string>{"q.weight", "k.weight", "v.weight", "k.bias"}));
}

TEST(PackedLinear, PackedAndUnpackedAgreeInValuesAndGradients) {
  const Device device = Device::cpu(2);
  for (const auto& layout : kLayouts) {
    Owner packed(layout, device);
    number(packed);
    Owner unpacked(layout, Device::meta());
    nn::StateDict values;
    for (const auto& [name, tensor] : packed.state_dict()) values.push_back({name, tensor.clone()});
    unpacked.adopt_state_dict(values);
    EXPECT_EQ(names_of(unpacked.named_parameters()), names_of(packed.state_dict()));
    const Outputs a = outputs_of(packed, device);
    const Outputs b = outputs_of(unpacked, device);
    const auto expect_close = [](const std::vector<double>& ours, const std::vector<double>& truth) {
      EXPECT_LE(largest_error(ours, truth), rounding_tolerance(truth, kRoundings, DType::f32));
    };
    expect_close(a.whole, b.whole);
    for (size_t i = 0; i < a.parts.size(); ++i) expect_close(a.parts[i], b.parts[i]);
    ASSERT_EQ(a.grads.size(), b.grads.size());
    for (size_t i = 0; i < a.grads.size(); ++i) expect_close(a.grads[i], b.grads[i]);
  }
}

// y = x · Wᵀ + b by hand, for the middle part, which has its own bias.
TEST(PackedLinear, PartsAreTheirOwnProducts) {
  const Device device = Device::cpu(1);
  Owner owner(kLayouts[2], device);
  number(owner);
  const auto weight = owner.state_dict()[1].tensor.to_vector<double>();
  const auto bias = owner.state_dict()[3].tensor.to_vector<double>();
  const Tensor x = Tensor::from(std::vector<float>{1, -2, 0.5F, 3}, {1, 4}, device);
  const auto y = owner.packed.forward_parts(x)[1].to_vector<double>();
  for (size_t o = 0; o < 2; ++o) {
    const double expected =
        weight[4 * o] - 2 * weight[4 * o + 1] + 0.5 * weight[4 * o + 2] + 3 * weight[4 * o + 3] + bias[o];
    EXPECT_NEAR(y[o], expected, rounding_tolerance({expected}, kRoundings, DType::f32));
  }
}

TEST(PackedLinear, ConversionsKeepItWhole) {
  const Device device = Device::cpu(1);
  Owner owner(kLayouts[1], device);
  owner.to(DType::bf16);
  EXPECT_EQ(owner.named_parameters().size(), 2U);
  for (const auto& [name, tensor] : owner.state_dict()) EXPECT_EQ(tensor.dtype(), DType::bf16) << name;
  Owner other(kLayouts[1], device);
  number(other);
  owner.load_state_dict(other.state_dict());
  EXPECT_NEAR(owner.state_dict()[2].tensor.to_vector<double>()[7], other.state_dict()[2].tensor.to_vector<double>()[7],
              0x1p-8);
  nn::StateDict wrong = other.state_dict();
  wrong[1].name = "kk.weight";
  expect_error([&] { owner.load_state_dict(wrong); }, "'k.weight' is missing");
}

TEST(PackedLinear, GradientsByNameAreUndefinedBeforeAnyArrived) {
  Owner owner(kLayouts[0], Device::cpu(1));
  Tape tape;
  for (auto& [name, tensor] : owner.named_parameters()) tape.watch(tensor);
  for (const auto& [name, grad] : owner.named_gradients(tape)) EXPECT_FALSE(grad.defined()) << name;
}

}  // namespace
}  // namespace lamina::testing
