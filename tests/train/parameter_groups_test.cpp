#include "lamina/train/parameter_groups.h"

#include <gtest/gtest.h>

#include "nn/model_support.h"
#include "ops/optim_oracle.h"

namespace lamina::testing {
namespace {

std::vector<double> piece(const std::vector<double>& all, size_t index, size_t size) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(index * size);
  return {begin, begin + static_cast<std::ptrdiff_t>(size)};
}

/// The first Muon update, by plain loops, of each of the concatenated matrices [rows, cols] in `values`.
std::vector<double> muon_updated(const std::vector<double>& values, const std::vector<double>& grads, int64_t rows,
                                 int64_t cols) {
  const auto size = static_cast<size_t>(rows * cols);
  std::vector<double> all;
  for (size_t i = 0; i * size < values.size(); ++i) {
    PlainParam<double> one;
    one.p = piece(values, i, size);
    one.g = piece(grads, i, size);
    one.m.assign(size, 0);
    one.lr = 0.02;
    plain_muon(one, rows, cols, 0.95, true,
               std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(cols))));
    all.insert(all.end(), one.p.begin(), one.p.end());
  }
  return all;
}

/// Parameters hold q, k and v, gate and up, and all experts in one tensor; checkpoints name them apart.
TEST(ParameterGroups, MuonTurnsEveryMatrixOfACheckpointByItself) {
  const train::Recipe recipe = train::read_recipe(
      R"({"architecture": "llama-tiny", "data": {"train": "a.txt"}, "steps": 1, "optimizer": "muon"})", "test");
  const Device device = Device::cpu(1);
  for (const char* preset : {"llama-tiny", "mixtral-tiny"}) {
    nn::Model model(changed(preset, {}).spec, device, {.seed = 1});
    Tape tape;
    for (auto& [name, tensor] : model.named_parameters()) tape.watch(tensor);
    const Tensor ids = ids_tensor(random_ids(22, model.spec().vocab_size), 2, device);
    tape.backward(model.loss(ids, ids).total);
    std::map<std::string, std::vector<double>> expected;
    std::map<std::string, Tensor> grads;
    for (const auto& [name, gradient] : model.named_gradients(tape)) grads.emplace(name, gradient);
    for (const auto& [name, weight] : model.state_dict()) {
      if (!name.starts_with("layers.") || weight.rank() < 2) continue;
      expected[name] =
          muon_updated(weight.to_vector<double>(), grads.at(name).to_vector<double>(), weight.dim(-2), weight.dim(-1));
    }
    ASSERT_GE(expected.size(), 7U) << preset;
    train::make_optimizer(model, recipe)->step(tape);
    for (const auto& [name, weight] : model.state_dict()) {
      if (!expected.contains(name)) continue;
      EXPECT_LE(largest_error(weight.to_vector<double>(), expected.at(name)), 1e-5) << preset << " " << name;
    }
  }
}

}  // namespace
}  // namespace lamina::testing
