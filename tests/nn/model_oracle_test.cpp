// The model's logits and loss against plain loops written from the formulas.
#include <gtest/gtest.h>

#include "nn/model_oracle_support.h"

namespace lamina::testing {
namespace {

TEST(ModelOracle, EveryWiring) {
  for (const NamedSpec& named : wirings()) expect_oracle(named);
}

TEST(ModelOracle, EverySwitch) {
  for (const NamedSpec& named : switches()) expect_oracle(named);
}

TEST(ModelOracle, EveryDenseTinyPreset) {
  int checked = 0;
  for (const NamedSpec& named : dense_tiny_presets()) {
    if (!oracle_knows(named.spec)) continue;
    expect_oracle(named);
    ++checked;
  }
  EXPECT_GE(checked, 20);
}

TEST(ModelOracle, LossIsTheMeanCrossEntropyOfTheLogits) {
  const NamedSpec named = changed("llama-tiny", {"head.bias=true", "head.scale.kind=constant", "head.scale.value=0.6",
                                                 "head.soft_cap=2", "embedding.d_embed=16"});
  const Device device = Device::cpu(2);
  nn::Model model(named.spec, device);
  scramble(model);
  const auto ids = random_ids(24, 96);
  auto targets = random_ids(24, 96, 5);
  targets[3] = targets[17] = -1;
  const auto loss_of = [&](const std::vector<double>& logits, bool narrow) {
    double total = 0;
    for (size_t t = 0; t < 24; ++t) {
      if (targets[t] < 0) continue;
      double sum = 0;
      for (size_t v = 0; v < 96; ++v) sum += std::exp(logits[t * 96 + v]);
      const double one = std::log(sum) - logits[t * 96 + static_cast<size_t>(targets[t])];
      total += narrow ? static_cast<double>(static_cast<float>(one)) : one;
    }
    return total / 22;
  };
  const auto wide = in_double(model, device);
  const auto truth = wide->logits(ids_tensor(ids, 2, device)).to_vector<double>();
  const auto naive = model.logits(ids_tensor(ids, 2, device)).to_vector<double>();
  const auto loss = model.loss(ids_tensor(ids, 2, device), ids_tensor(targets, 2, device), {.ignore_index = -1});
  EXPECT_TRUE(loss.auxiliary.empty());
  EXPECT_EQ(loss.total.item(), loss.cross_entropy.item());
  expect_as_close({loss.total.item()}, {loss_of(truth, false)}, {loss_of(naive, true)}, DType::f32, "loss");
}

}  // namespace
}  // namespace lamina::testing
