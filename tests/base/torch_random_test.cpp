#include "lamina/base/torch_random.h"

#include <gtest/gtest.h>

#include "lamina/tensor/tensor.h"
#include "support/module_golden.h"

namespace lamina::testing {
namespace {

Tensor draw(const nlohmann::json& entry, const Device& device) {
  const DType dtype = *dtype_from_name(entry.at("dtype").get<std::string>());
  Tensor values = Tensor::empty({entry.at("n").get<int64_t>()}, dtype, device);
  visit_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    TorchGenerator generator(entry.at("seed").get<uint64_t>());
    const std::span<T> span(values.data<T>(), static_cast<size_t>(values.numel()));
    const auto fill = entry.at("dist") == "uniform" ? torch_uniform<T> : torch_normal<T>;
    fill(generator, span, entry.at("a").get<double>(), entry.at("b").get<double>());
  });
  return values;
}

TEST(TorchRandom, UniformEqualsPyTorchToTheBit) {
  const Device device = Device::cpu(1);
  const auto file = golden_tensors(device);
  int checked = 0;
  for (const auto& entry : golden_cases("init")) {
    if (entry.at("dist") != "uniform") continue;
    EXPECT_EQ(worst_ulps(draw(entry, device), file.tensor(entry.at("key"))), 0.0) << entry;
    ++checked;
  }
  EXPECT_EQ(checked, 84);
}

TEST(TorchRandom, NormalEqualsPyTorchToAFewUlp) {
  const Device device = Device::cpu(1);
  const auto file = golden_tensors(device);
  int checked = 0;
  for (const auto& entry : golden_cases("init")) {
    if (entry.at("dist") != "normal") continue;
    // A value near zero is the difference of the mean and a multiple of the deviation; its rounding error is theirs.
    const double floor = std::max(entry.at("a").get<double>(), entry.at("b").get<double>());
    EXPECT_LE(worst_ulps(draw(entry, device), file.tensor(entry.at("key")), floor), 4.0) << entry;
    ++checked;
  }
  EXPECT_EQ(checked, 84);
}

TEST(TorchRandom, WordsAreThoseOfTheTwister) {
  TorchGenerator generator(5489);
  EXPECT_EQ(generator.random32(), 3499211612U);
  for (int i = 1; i < 9999; ++i) generator.random32();
  EXPECT_EQ(generator.random32(), 4123659995U);
}

TEST(TorchRandom, SeedsBeyond32BitsAreCutAsPyTorchCutsThem) {
  EXPECT_EQ(TorchGenerator(7).random32(), TorchGenerator((uint64_t{9} << 32) + 7).random32());
}

TEST(TorchRandom, NothingIsDrawnForNoValues) {
  TorchGenerator generator(1);
  torch_uniform(generator, std::span<float>{}, 0.0, 1.0);
  torch_normal(generator, std::span<double>{}, 0.0, 1.0);
  EXPECT_EQ(generator.random32(), TorchGenerator(1).random32());
}

}  // namespace
}  // namespace lamina::testing
