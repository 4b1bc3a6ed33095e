// Attention weights and residual streams that a forward pass reports, against plain loops written from the formulas.
#include <gtest/gtest.h>

#include <numeric>

#include "nn/model_oracle_support.h"

namespace lamina::testing {
namespace {

class Collector final : public nn::ForwardObserver {
 public:
  bool wants_attention(int64_t layer) const override { return layer != skipped; }
  void attention(int64_t layer, int64_t first_key, const Tensor& weights) override {
    const std::vector<double> values = weights.to_vector<double>();
    const int64_t seq = weights.dim(1), heads = weights.dim(2), keys = weights.dim(3);
    std::vector<double>& map = maps[layer];
    map.resize(static_cast<size_t>(heads * seq * seq), -1.0);
    for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
      const int64_t query = i / keys / heads;
      const int64_t head = i / keys % heads;
      map[static_cast<size_t>((head * seq + query) * seq + first_key + i % keys)] = values[static_cast<size_t>(i)];
    }
  }
  bool wants_residual() const override { return true; }
  void residual(int64_t layer, const Tensor& x) override {
    EXPECT_EQ(layer, static_cast<int64_t>(residuals.size()));
    residuals.push_back(x.to_vector<double>());
  }

  int64_t skipped = -1;
  std::map<int64_t, std::vector<double>> maps;  ///< by layer: [heads, seq, seq]
  std::vector<std::vector<double>> residuals;
};

template <class S>
std::vector<double> oracle_attention(const nn::Model& model, const std::vector<int64_t>& ids, int64_t layer) {
  const OracleWeights weights = weights_of(model);
  const ModelOracle<S> oracle(model.spec(), weights);
  oracle.logits(ids);
  std::vector<double> flat;
  for (const auto& row : oracle.attention().at("layers." + std::to_string(layer) + ".mixer.")) {
    flat.insert(flat.end(), row.begin(), row.end());
  }
  return flat;
}

void expect_oracle_attention(const NamedSpec& named, int64_t tokens) {
  const Device device = Device::cpu(2);
  nn::Model model(named.spec, device);
  scramble(model);
  const auto ids = random_ids(tokens, named.spec.vocab_size);
  Collector collector;
  const Tensor observed = model.logits(ids_tensor(ids, 1, device), {.observer = &collector});
  size_t mixers = 0;
  for (const arch::Block* block : arch::layer_blocks(named.spec)) mixers += arch::has_mixer(*block) ? 1 : 0;
  ASSERT_EQ(collector.maps.size(), mixers) << named.name;
  for (const auto& [layer, map] : collector.maps) {
    expect_as_close(map, oracle_attention<double>(model, ids, layer), oracle_attention<float>(model, ids, layer),
                    DType::f32, named.name);
  }
  // Observing does not change the result beyond rounding.
  expect_as_close(observed.to_vector<double>(), oracle_logits<double>(model, ids), oracle_logits<float>(model, ids),
                  DType::f32, named.name);
}

TEST(ForwardObserver, AttentionOfEverySwitchIsTheFormula) {
  for (const NamedSpec& named : switches()) expect_oracle_attention(named, 11);
}

TEST(ForwardObserver, AttentionOfEveryWiringIsTheFormula) {
  for (const NamedSpec& named : wirings()) expect_oracle_attention(named, 7);
}

TEST(ForwardObserver, AttentionOfManyKeysIsTheFormula) {
  expect_oracle_attention(changed("llama-tiny", {}), 131);  // several ranges of keys, the last one short
}

TEST(ForwardObserver, RowsSumToOneForEveryKindOfAttention) {
  int mixers = 0;
  for (const char* name : {"deepseek-tiny", "transformer-xl-tiny", "llama-tiny"}) {
    const NamedSpec named = changed(name, {});
    const Device device = Device::cpu(2);
    nn::Model model(named.spec, device);
    scramble(model);
    const int64_t seq = 70;
    Collector collector;
    model.hidden(ids_tensor(random_ids(seq, named.spec.vocab_size), 1, device), {.observer = &collector});
    EXPECT_FALSE(collector.maps.empty()) << name;
    for (const auto& [layer, map] : collector.maps) {
      ++mixers;
      for (size_t row = 0; row * seq < map.size(); ++row) {
        const auto begin = map.begin() + static_cast<std::ptrdiff_t>(row) * seq;
        const auto query = static_cast<std::ptrdiff_t>(row % seq);
        EXPECT_NEAR(std::accumulate(begin, begin + query + 1, 0.0), 1.0, rounding_tolerance({1.0}, seq, DType::f32))
            << name << " layer " << layer;
        EXPECT_EQ(std::accumulate(begin + query + 1, begin + seq, 0.0), 0.0) << name << " layer " << layer;
      }
    }
  }
  EXPECT_GE(mixers, 6);
}

TEST(ForwardObserver, OnlyWantedLayersAreReported) {
  const NamedSpec named = changed("llama-tiny", {});
  const Device device = Device::cpu(1);
  nn::Model model(named.spec, device);
  Collector collector;
  collector.skipped = 0;
  const Tensor ids = ids_tensor(random_ids(5, named.spec.vocab_size), 1, device);
  const Tensor hidden = model.hidden(ids, {.observer = &collector});
  EXPECT_EQ(collector.maps.count(0), 0U);
  EXPECT_EQ(collector.maps.size() + 1, arch::layer_blocks(named.spec).size());
  EXPECT_EQ(collector.residuals.size(), arch::layer_blocks(named.spec).size());
  EXPECT_EQ(hidden.to_vector<double>().size(), collector.residuals.back().size());
}

}  // namespace
}  // namespace lamina::testing
