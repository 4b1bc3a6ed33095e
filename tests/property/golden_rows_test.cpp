// Ragged steps with paged caches equal the full forward for every golden architecture, with its golden weights.
#include <gtest/gtest.h>

#include <filesystem>

#include "lamina/io/hf.h"
#include "nn/row_driver.h"

namespace lamina::testing {
namespace {

TEST(GoldenRows, EveryArchitectureEqualsAFullForward) {
  const Device device = Device::cpu(2);
  uint64_t seed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(LAMINA_GOLDEN_DIR) + "/hf")) {
    const io::Checkpoint checkpoint = io::read_hf(entry.path().string(), device);
    if (!generates_alone(checkpoint.spec)) continue;
    nn::Model model(checkpoint.spec, device);
    model.load_state_dict(checkpoint.tensors);
    const auto wide = in_double(model, device);
    constexpr int64_t kLength = 48;
    expect_rows(model, *wide, std::min(kLength, model.spec().context), ++seed, entry.path().filename().string());
  }
  EXPECT_GT(seed, 60U);
}

}  // namespace
}  // namespace lamina::testing
