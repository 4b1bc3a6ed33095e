// A step with positions in device memory, as CUDA graphs replay it, equals cached_logits().
#include <gtest/gtest.h>

#include "nn/model_support.h"

namespace lamina::testing {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kRoom = 48;

/// A cache whose rows have different lengths.
nn::ModelCache filled(nn::Model& model, const std::vector<int64_t>& counts) {
  nn::ModelCache cache = model.make_cache(kRows, kRoom);
  const std::vector<int64_t> ids = random_ids(kRows * 7, model.spec().vocab_size, 3);
  model.cached_logits(ids_tensor(ids, kRows, model.device()), cache, {.counts = counts, .last_only = true});
  return cache;
}

TEST(ModelStep, EqualsCachedLogits) {
  int stepped = 0;
  std::vector<NamedSpec> all = switches();
  for (const std::string& name : arch::preset_names()) {
    if (name.ends_with("-tiny")) all.push_back({name, arch::resolve(arch::load_preset(name), name)});
  }
  all.push_back(changed("llama-tiny", {"layers[0].pattern[0].mixer.pattern={\"kind\":\"window\",\"size\":4}"}));
  for (const NamedSpec& named : all) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, named.name);
    nn::Model model(named.spec, Device::cpu(2));
    scramble(model);
    const std::vector<int64_t> counts{7, 2, 5};
    nn::ModelCache expected = filled(model, counts);
    nn::ModelCache cache = filled(model, counts);
    if (!model.can_step(cache)) continue;
    ++stepped;
    nn::DevicePositions clock(kRows, model.device());
    clock.set(cache.lengths());
    for (uint64_t step = 0; step < 24; ++step) {  // more steps than the window size
      const Tensor ids = ids_tensor(random_ids(kRows, named.spec.vocab_size, 100 + step), kRows, model.device());
      const auto truth = model.cached_logits(ids, expected).to_vector<float>();
      cache.prepare_step();
      const auto ours = model.step_logits(ids, clock, cache).to_vector<float>();
      clock.advance();
      ASSERT_EQ(ours.size(), truth.size());
      for (size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(ours[i], truth[i], 1e-4) << "step " << step << ", " << i;
    }
    EXPECT_EQ(cache.lengths(), expected.lengths());
  }
  EXPECT_GT(stepped, 30);
}

TEST(ModelStep, AFullCacheIsAnErrorAndStaysAsItIs) {
  nn::Model model(arch::resolve(arch::load_preset("llama-tiny"), "llama-tiny"), Device::cpu(1));
  nn::ModelCache cache = model.make_cache(2, 3);
  model.cached_logits(ids_tensor({1, 2, 3, 1, 2, 3}, 2, model.device()), cache, {.counts = {2, 3}});
  EXPECT_NE(error_of([&] { cache.prepare_step(); }).find("row 1 is full with 3 tokens"), std::string::npos);
  EXPECT_EQ(cache.lengths(), (std::vector<int64_t>{2, 3}));
}

}  // namespace
}  // namespace lamina::testing
