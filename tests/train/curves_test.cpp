// The training loop against PyTorch's; tools/peers/make_training_curves.py writes the golden files.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/base/files.h"
#include "lamina/io/safetensors.h"
#include "lamina/train/learner.h"
#include "lamina/train/parameter_groups.h"

namespace lamina::train {
namespace {

struct Curve {
  Recipe recipe;
  std::vector<double> losses;
  std::vector<double> norms;
  io::SafetensorsFile tensors;

  nn::StateDict weights(const std::string& when) const {
    nn::StateDict dict;
    for (const auto& [name, tensor] : tensors.tensors()) {
      if (name.starts_with(when)) dict.push_back({name.substr(when.size()), tensor});
    }
    return dict;
  }
  /// batches [batches, rows, length + 1]
  data::Batch batch(int64_t pass) const {
    const Tensor all = tensors.tensor("batches");
    const int64_t rows = all.dim(1);
    const int64_t length = all.dim(2) - 1;
    const std::vector<int64_t> values = all.slice(0, pass % all.dim(0), 1).contiguous().to_vector<int64_t>();
    data::Batch batch{.rows = rows, .length = length, .ids = {}, .targets = {}, .document_starts = {}};
    for (int64_t row = 0; row < rows; ++row) {
      const auto start = values.begin() + row * (length + 1);
      batch.ids.insert(batch.ids.end(), start, start + length);
      batch.targets.insert(batch.targets.end(), start + 1, start + 1 + length);
    }
    return batch;
  }
};

Curve read_curve(const std::string& name) {
  const std::string base = std::string(LAMINA_GOLDEN_DIR) + "/training/" + name;
  const auto json = nlohmann::json::parse(read_text(base + ".json"));
  return {resolve_recipe(read_recipe(json["recipe"].dump(), name), 0, name), json["losses"].get<std::vector<double>>(),
          json["grad_norms"].get<std::vector<double>>(),
          io::SafetensorsFile::open(base + ".safetensors", Device::cpu(1))};
}

TEST(TrainingCurves, EqualPyTorchs) {
  for (const char* name : {"gpt2", "llama"}) {
    const Curve curve = read_curve(name);
    Learner learner(curve.recipe, Device::cpu(1));
    learner.load_weights(curve.weights("before."));
    ASSERT_EQ(curve.losses.size(), 50U);
    for (int64_t step = 0; step < 50; ++step) {
      const StepResult result = learner.step(step, [&](int64_t pass) { return curve.batch(pass); });
      const auto i = static_cast<size_t>(step);
      EXPECT_NEAR(result.loss, curve.losses[i], 1e-3) << name << " step " << step;
      EXPECT_NEAR(result.grad_norm, curve.norms[i], 5e-3) << name << " step " << step;
    }
    learner.with_kept_weights([&](const nn::StateDict& weights) {
      const nn::StateDict expected = curve.weights("after.");
      for (const auto& [key, tensor] : expected) {
        const auto ours =
            std::find_if(weights.begin(), weights.end(), [&key = key](const auto& w) { return w.name == key; });
        ASSERT_NE(ours, weights.end()) << key;
        const std::vector<float> a = ours->tensor.detach().contiguous().to_vector<float>();
        const std::vector<float> b = tensor.to_vector<float>();
        for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 5e-3) << name << " " << key << " " << i;
      }
    });
  }
}

TEST(TrainingCurves, ABatchIsOverfitted) {
  Curve curve = read_curve("llama");
  curve.recipe.schedule = ConstantSchedule{};
  Learner learner(curve.recipe, Device::cpu(1));
  double loss = 0;
  for (int64_t step = 0; step < 150; ++step) {
    loss = learner.step(step, [&](int64_t) { return curve.batch(0); }).loss;
  }
  EXPECT_LT(loss, 0.2);
}

TEST(TrainingCurves, ANumberThatIsNotFiniteStopsWithItsPlace) {
  Curve curve = read_curve("llama");
  Learner learner(curve.recipe, Device::cpu(1));
  for (auto& [name, tensor] : learner.model().named_parameters()) {
    if (name == "layers.1.ffn.down.weight") tensor.detach().slice(0, 3, 1).fill_(std::nan(""));
  }
  try {
    learner.step(7, [&](int64_t pass) { return curve.batch(pass); });
    FAIL() << "expected NotFinite";
  } catch (const NotFinite& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("update 8: the weight layers.1.ffn.down.weight holds nan at element 72 of [16,24]"),
              std::string::npos)
        << message;
  }
  for (const NamedTensor& entry : learner.training_state()) {
    if (!entry.name.ends_with(".updates")) continue;
    EXPECT_EQ(entry.tensor.item(), 0) << entry.name;
  }
}

TEST(TrainingCurves, ARateTooHighStopsWithTheGradientOrLoss) {
  Curve curve = read_curve("gpt2");
  auto& adamw = std::get<AdamWChoice>(curve.recipe.optimizer);
  adamw.lr = 1e30;
  curve.recipe.schedule = ConstantSchedule{};
  Learner learner(curve.recipe, Device::cpu(1));
  EXPECT_THROW(
      for (int64_t step = 0; step < 5; ++step) learner.step(step, [&](int64_t pass) { return curve.batch(pass); }),
      NotFinite);
}

TEST(ParameterKind, ProductsDecayAndAreOrthogonalisedAndTablesAreNot) {
  const std::map<std::string, std::map<std::string, ParameterKind>> expected = {
      {"gpt2-tiny",
       {{"layers.0.mixer.qkv.weight", ParameterKind::matrix},
        {"layers.0.mixer.qkv.bias", ParameterKind::vector},
        {"layers.0.mixer_norm.weight", ParameterKind::vector},
        {"embedding.weight", ParameterKind::embedding},
        {"position.weight", ParameterKind::embedding}}},
      {"mamba-tiny",
       {{"layers.0.mixer.in.weight", ParameterKind::matrix},
        {"layers.0.mixer.a_log", ParameterKind::vector},
        {"layers.0.mixer.conv.weight", ParameterKind::vector}}},
      {"mixtral-tiny", {{"layers.0.ffn.experts.in.weight", ParameterKind::matrix}}}};
  for (const auto& [preset, kinds] : expected) {
    const nn::Model model(arch::resolve(arch::load_preset(preset)), Device::meta());
    size_t found = 0;
    for (const auto& [name, parameter] : model.named_parameters()) {
      const auto kind = kinds.find(name);
      if (kind == kinds.end()) continue;
      ++found;
      EXPECT_EQ(parameter_kind(name, parameter), kind->second) << preset << " " << name;
    }
    EXPECT_EQ(found, kinds.size()) << preset;
  }
}

}  // namespace
}  // namespace lamina::train
