// A model and an optimizer together: the loss of a pattern that can be learned falls.
#include <gtest/gtest.h>

#include "lamina/train/optimizer.h"
#include "nn/model_support.h"

namespace lamina::testing {
namespace {

TEST(ModelTraining, TheLossOfARepeatedPatternFalls) {
  const Device device = Device::cpu(2);
  for (const char* preset : {"gpt2-tiny", "llama-tiny", "gemma-2-tiny", "olmo-2-tiny", "gpt-neox-tiny"}) {
    nn::Model model(changed(preset, {}).spec, device, {.seed = 1});
    std::vector<int64_t> ids;
    std::vector<int64_t> targets;
    for (int64_t i = 0; i < 4 * 16; ++i) {
      ids.push_back(7 * i % 11);
      targets.push_back(7 * (i + 1) % 11);
    }
    Tape tape;
    train::ParamGroup group{.lr = 3e-3};
    for (auto& [name, tensor] : model.named_parameters()) {
      tape.watch(tensor);
      group.params.push_back({name, tensor});
    }
    train::AdamW optimizer({group});
    double first = 0;
    double last = 0;
    for (int step = 0; step < 60; ++step) {
      tape.zero_grad();
      const auto loss = model.loss(ids_tensor(ids, 4, device), ids_tensor(targets, 4, device));
      (step == 0 ? first : last) = loss.total.item();
      tape.backward(loss.total);
      const NoGrad off(tape);
      optimizer.step(tape);
    }
    EXPECT_NEAR(first, std::log(96.0), 0.5) << preset;
    EXPECT_LT(last, first / 2) << preset;
  }
}

}  // namespace
}  // namespace lamina::testing
