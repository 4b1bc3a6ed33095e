#include "lamina/infer/golden.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "lamina/io/hf.h"
#include "lamina/ops/elementwise/elementwise.h"

namespace lamina::infer {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> cases() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(std::string(LAMINA_GOLDEN_DIR) + "/hf")) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string folder_of(const std::string& name) { return std::string(LAMINA_GOLDEN_DIR) + "/hf/" + name; }

/// A model in memory of its own, so that a test may spoil it.
struct Loaded {
  explicit Loaded(const std::string& folder, const Device& device)
      : checkpoint(io::read_hf(folder, device)),
        golden(io::SafetensorsFile::open(folder + "/golden.safetensors", device)),
        model(with_global_tokens(checkpoint.spec, golden), device) {
    model.load_state_dict(checkpoint.tensors);
  }
  std::vector<Comparison> compare(const GoldenOptions& options = {}) {
    return compare_with_golden(model, golden, names(), options);
  }
  NameGradients names() const {
    return [this](const nn::StateDict& gradients) {
      return io::hf_parameters(checkpoint.family, checkpoint.spec, gradients);
    };
  }
  io::Checkpoint checkpoint;
  io::SafetensorsFile golden;
  nn::Model model;
};

int count_differing(const std::vector<Comparison>& rows) {
  return static_cast<int>(std::count_if(rows.begin(), rows.end(), [](const Comparison& row) { return !row.ok(); }));
}

void scale_keys(nn::Model& model, double factor) {
  for (auto& [name, tensor] : model.state_dict()) {
    if (name == "layers.1.mixer.k.weight") tensor.copy_(ops::scale(tensor, factor));
  }
}

class HuggingFaceGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(HuggingFaceGolden, LogitsLossEveryGradientAndGreedyTokensAgree) {
  const Device device = Device::cpu();
  const std::string folder = folder_of(GetParam());
  Loaded loaded(folder, device);
  const std::vector<Comparison> rows = loaded.compare();
  EXPECT_GT(rows.size(), 10U);
  for (const Comparison& row : rows) {
    EXPECT_TRUE(row.ok()) << row.name << ": absolute " << row.absolute << ", relative " << row.relative << " "
                          << row.error;
  }
}

INSTANTIATE_TEST_SUITE_P(All, HuggingFaceGolden, ::testing::ValuesIn(cases()),
                         [](const auto& one) { return one.param; });

/// One weight moved by a thousandth of its size must be noticed, or the comparison proves nothing.
TEST(Golden, NoticesASmallChange) {
  const Device device = Device::cpu();
  const std::string folder = folder_of("llama_gqa");
  Loaded loaded(folder, device);
  scale_keys(loaded.model, 1.001);
  EXPECT_GT(count_differing(loaded.compare()), 0);
}

/// The bf16 tolerance covers the rounding of bf16, and little more.
TEST(Golden, AllowsBf16ItsRoundingAlone) {
  const Device device = Device::cpu();
  Loaded loaded(folder_of("llama_gqa"), device);
  const std::vector<Comparison> before = loaded.compare();
  const GoldenOptions allowed = bf16_tolerances(loaded.model, loaded.golden, loaded.names());
  const std::vector<Comparison> after = loaded.compare();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i].absolute, after[i].absolute) << before[i].name;
  EXPECT_GT(allowed.logits_tolerance, 1e-3);
  EXPECT_LT(allowed.logits_tolerance, 0.1);
  for (auto& [name, tensor] : loaded.model.state_dict()) tensor.copy_(tensor.to(DType::bf16).to(tensor.dtype()));
  EXPECT_GT(count_differing(loaded.compare()), 0);
  EXPECT_EQ(count_differing(loaded.compare(allowed)), 0);
  scale_keys(loaded.model, 2);
  EXPECT_GT(count_differing(loaded.compare(allowed)), 0);
}

TEST(Golden, SaysWhatItCannotCompare) {
  const Device device = Device::cpu();
  const std::string folder = folder_of("gpt2");
  Loaded loaded(folder, device);
  const io::SafetensorsFile golden = io::SafetensorsFile::open(folder_of("llama_gqa") + "/golden.safetensors", device);
  const auto unchanged = [](const nn::StateDict& gradients) { return NamedTensors(gradients); };
  int unknown = 0;
  for (const Comparison& row : compare_with_golden(loaded.model, golden, unchanged)) {
    EXPECT_FALSE(row.ok() && row.name == "logits");
    unknown += row.error.find("no gradient of this name") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(unknown, 5);
  const io::SafetensorsFile empty = io::SafetensorsFile::open(folder + "/model.safetensors", device);
  EXPECT_THROW(compare_with_golden(loaded.model, empty, unchanged), Error);
}

}  // namespace
}  // namespace lamina::infer
