// Ragged steps with paged caches equal forward passes over whole sequences.
#include <gtest/gtest.h>

#include "nn/row_driver.h"

namespace lamina::testing {
namespace {

constexpr int64_t kLength = 60;

/// Longer sequences than the context of the tiny presets need no new weights, except learned positions.
int64_t length_for(const arch::ArchSpec& spec) { return std::min(kLength, spec.context); }

void expect_rows_of(const NamedSpec& named, uint64_t seed) {
  const Device device = Device::cpu(2);
  nn::Model model(named.spec, device);
  scramble(model);
  const auto wide = in_double(model, device);
  expect_rows(model, *wide, length_for(named.spec), seed, named.name);
}

TEST(ModelRows, EverySwitchEqualsAFullForward) {
  uint64_t seed = 1;
  for (const NamedSpec& named : switches()) expect_rows_of(named, ++seed);
}

TEST(ModelRows, EveryTinyPresetEqualsAFullForward) {
  uint64_t seed = 100;
  for (const std::string& name : arch::preset_names()) {
    if (!name.ends_with("-tiny")) continue;
    const arch::ArchSpec spec = arch::resolve(arch::load_preset(name), name);
    if (generates_alone(spec)) expect_rows_of({name, spec}, ++seed);
  }
}

TEST(ModelRows, EveryWiringEqualsAFullForward) {
  uint64_t seed = 200;
  for (const NamedSpec& named : wirings()) expect_rows_of(named, ++seed);
}

/// With 16-bit weights, a GPU runs everything in 16 bits. The error may be that of a model of bf16 weights, except that
/// a router may choose another expert.
TEST(ModelRows, ActivationsOf16Bits) {
  const Device device = Device::cpu(2);
  for (const std::string& name : arch::preset_names()) {
    if (!name.ends_with("-tiny")) continue;
    const arch::ArchSpec spec = arch::resolve(arch::load_preset(name), name);
    if (!generates_alone(spec)) continue;
    nn::Model model(spec, device);
    const auto wide = in_double(model, device);
    nn::Model half(spec, device, {.dtype = DType::bf16});
    half.load_state_dict(model.state_dict());
    model.store_weights(nn::parse_weight_formats("bf16"));
    const int64_t length = length_for(spec);
    const Tensor ids = ids_tensor(random_ids(4 * length, spec.vocab_size, 3), 4, device);
    const double naive = largest_error(half.logits(ids), wide->logits(ids));
    RowSchedule schedule(model, *wide, length, 3);
    schedule.driver().set_activations(DType::bf16);
    double most = 0;
    const double error = schedule.run(most);
    const auto blocks = arch::layer_blocks(spec);
    const bool routes = std::any_of(blocks.begin(), blocks.end(), [](const arch::Block* block) {
      return std::holds_alternative<arch::Moe>(block->ffn);
    });
    EXPECT_LE(error, routes ? most : 2 * naive + epsilon(DType::bf16) * most) << name;
    EXPECT_GT(error, epsilon(DType::f32) * most) << name << ": activations were not rounded";
  }
}

TEST(ModelRows, PagesThatLeftTheWindowAreFreed) {
  const NamedSpec named =
      changed("llama-tiny", {"layers[0].pattern[0].mixer.pattern={\"kind\":\"window\",\"size\":4}"});
  const Device device = Device::cpu(2);
  nn::Model model(named.spec, device);
  scramble(model);
  const auto wide = in_double(model, device);
  EXPECT_GT(expect_rows(model, *wide, kLength, 5, named.name), 4);
}

/// A wrong page must be noticed, or the comparisons prove nothing.
TEST(ModelRows, ACopiedPageServesAnotherRow) {
  const NamedSpec named{"llama-tiny", arch::resolve(arch::load_preset("llama-tiny"), "llama-tiny")};
  nn::Model model(named.spec, Device::cpu(1));
  scramble(model);
  auto cache = model.make_sequence_cache({.pages = {4}});
  const auto step = [&](const std::vector<int64_t>& ids, int32_t page, int32_t offset) {
    const auto count = static_cast<int32_t>(ids.size());
    nn::RowBatch rows;
    ops::PagedRows paged{Tensor::from(std::vector<int32_t>{page}, {1, 1}, model.device()),
                         Tensor::from(std::vector<int32_t>{offset + count}, {1}, model.device()),
                         Tensor::from(std::vector<int32_t>{0, count}, {2}, model.device()),
                         {offset + count},
                         {0, count}};
    rows.groups = {paged};
    rows.host_counts = {count};
    rows.host_offsets = {offset};
    std::vector<int64_t> positions;
    for (int32_t i = 0; i < count; ++i) positions.push_back(offset + i);
    rows.positions = Tensor::from(positions, {count}, model.device());
    return model.row_logits(Tensor::from(ids, {count}, model.device()), rows, *cache).to_vector<double>();
  };
  step({1, 2, 3, 4, 5}, 2, 0);
  step({7, 7, 7, 7, 7}, 0, 0);
  cache->copy_page(0, 2, 1);
  const std::vector<double> expected = step({6}, 2, 5);
  EXPECT_EQ(step({6}, 1, 5), expected);
  EXPECT_NE(step({6}, 0, 5), expected);
}

TEST(ModelRows, ACopiedStateServesAnotherRow) {
  const NamedSpec named{"mamba-tiny", arch::resolve(arch::load_preset("mamba-tiny"), "mamba-tiny")};
  nn::Model model(named.spec, Device::cpu(1));
  scramble(model);
  auto cache = model.make_sequence_cache({.pages = {1}, .state_slots = 3});
  const auto step = [&](int64_t id, int32_t slot, int32_t offset) {
    nn::RowBatch rows;
    rows.slots = Tensor::from(std::vector<int32_t>{slot}, {1}, model.device());
    rows.host_counts = {1};
    rows.host_offsets = {offset};
    rows.positions = Tensor::from(std::vector<int64_t>{offset}, {1}, model.device());
    return model.row_logits(Tensor::from(std::vector<int64_t>{id}, {1}, model.device()), rows, *cache)
        .to_vector<double>();
  };
  const std::vector<double> first = step(4, 1, 0);
  cache->copy_state(1, 2);
  const std::vector<double> second = step(5, 1, 1);
  EXPECT_EQ(step(5, 2, 1), second);
  EXPECT_NE(step(5, 1, 1), second);
  cache->clear_state(1);
  EXPECT_EQ(step(4, 1, 0), first);
}

TEST(ModelRows, BadStepsAreErrors) {
  nn::Model model(arch::resolve(arch::load_preset("llama-tiny"), "llama-tiny"), Device::cpu(1));
  const auto message = [&](const nn::SequenceCacheOptions& options) {
    return error_of([&] { model.make_sequence_cache(options); });
  };
  EXPECT_NE(message({.pages = {1}, .page_size = 24}).find("power of two"), std::string::npos);
  EXPECT_NE(message({.pages = {}}).find("page counts of 0 groups"), std::string::npos);
  EXPECT_NE(message({.pages = {0}}).find("0 pages"), std::string::npos);
  EXPECT_NE(message({.pages = {1}, .dtype = DType::f64}).find("f64"), std::string::npos);
  auto cache = model.make_sequence_cache({.pages = {1}});
  EXPECT_NE(error_of([&] { cache->copy_page(0, 0, 1); }).find("pages in [0, 1)"), std::string::npos);
  const Tensor ids = Tensor::from(std::vector<int64_t>{1}, {1}, model.device());
  EXPECT_NE(error_of([&] { model.row_logits(ids, {}, *cache); }).find("page tables of 0 groups"), std::string::npos);
  nn::Model states(arch::resolve(arch::load_preset("mamba-tiny"), "mamba-tiny"), Device::cpu(1));
  EXPECT_NE(error_of([&] { states.make_sequence_cache({.pages = {1}}); }).find("state slots"), std::string::npos);
}

}  // namespace
}  // namespace lamina::testing
