#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "lamina/arch/count.h"
#include "lamina/arch/layers.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"

namespace lamina::arch {
namespace {

const std::filesystem::path kHere = std::filesystem::path(__FILE__).parent_path();

nlohmann::json read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

/// The number under the first of `keys` that the model's config.json has.
int64_t config_number(const nlohmann::json& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (config.contains(key) && config[key].is_number()) return config[key].get<int64_t>();
  }
  return -1;
}

/// golden_parameters.json holds the parameter count of each checkpoint, summed over the shapes in its header.
TEST(Golden, parametersEqualTheCheckpoints) {
  const nlohmann::json totals = read_file(kHere / "golden_parameters.json");
  ASSERT_EQ(totals.size(), 28U);
  for (const auto& [name, total] : totals.items()) {
    const ArchSpec spec = resolve(load_arch((kHere / "specs" / (name + ".json")).string()), name);
    EXPECT_EQ(count_parameters(spec).total, total.get<int64_t>()) << name;
  }
}

TEST(Golden, specsAgreeWithTheConfigurations) {
  for (const auto& entry : std::filesystem::directory_iterator(kHere / "specs")) {
    SCOPED_TRACE(entry.path().stem().string());
    const nlohmann::json config =
        read_file(std::filesystem::path(LAMINA_GOLDEN_DIR) / "hf" / entry.path().stem() / "config.json");
    const ArchSpec spec = resolve(load_arch(entry.path().string()));
    EXPECT_EQ(spec.vocab_size, config_number(config, {"vocab_size"}));
    EXPECT_EQ(spec.d_model, config_number(config, {"hidden_size", "n_embd"}));
    EXPECT_EQ(layer_count(spec), config_number(config, {"num_hidden_layers", "n_layer"}));
    EXPECT_EQ(spec.head.tied, config["tie_word_embeddings"].get<bool>());
    const int64_t context = config_number(config, {"max_position_embeddings", "n_positions"});
    if (context > 0) {
      EXPECT_EQ(spec.context, context);
    }
    for (const char* key : {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"}) {
      if (!config.contains(key)) continue;
      EXPECT_EQ(std::visit([](const auto& norm) { return norm.eps; }, spec.norm), config[key].get<double>());
    }
    const int64_t heads = config_number(config, {"num_attention_heads", "n_head"});
    const auto* attention = std::get_if<Attention>(&layer_blocks(spec).front()->mixer);
    if (attention != nullptr) {
      EXPECT_EQ(attention->n_heads, heads);
    }
  }
}

}  // namespace
}  // namespace lamina::arch
