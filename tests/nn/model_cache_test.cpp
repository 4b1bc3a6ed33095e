// Decoding with a KV cache equals the full forward for every switch, however the tokens are split into calls.
#include <gtest/gtest.h>

#include <numeric>

#include "lamina/autograd/tape.h"
#include "nn/model_support.h"
#include "support/close.h"

namespace lamina::testing {
namespace {

constexpr int64_t kTokens = 13;

std::vector<NamedSpec> cached_specs() {
  std::vector<NamedSpec> all = dense_tiny_presets();
  for (auto& more : {wirings(), switches()}) all.insert(all.end(), more.begin(), more.end());
  const std::string pattern = "layers[0].pattern[0].mixer.pattern.";
  all.push_back(changed("llama-tiny", {pattern + "kind=bigbird", pattern + "block=2", pattern + "random_blocks=1"}));
  all.push_back(changed("llama-tiny", {"position.scaling.kind=ntk", "position.scaling.factor=4"}));
  all.push_back(changed(
      "llama-tiny", {"position.scaling.kind=yarn", "position.scaling.factor=4", "position.scaling.original_length=8"}));
  all.push_back(changed("llama-tiny", {"position.scaling.kind=llama3", "position.scaling.original_length=8"}));
  return all;
}

bool changes_with_length(const arch::ArchSpec& spec) {
  for (const arch::Block* block : arch::layer_blocks(spec)) {
    const auto* attention = std::get_if<arch::Attention>(&block->mixer);
    const auto* rope = attention == nullptr ? nullptr : std::get_if<arch::Rope>(&*attention->position);
    if (rope == nullptr) continue;
    if (std::holds_alternative<arch::DynamicNtkScaling>(rope->scaling)) return true;
    if (std::holds_alternative<arch::LongRopeScaling>(rope->scaling)) return true;
  }
  return false;
}

/// Positions [first, first + count) of every sequence in [batch, seq, vocab].
std::vector<double> some_rows(const Tensor& logits, int64_t first, int64_t count) {
  return logits.slice(1, first, count).to_vector<double>();
}

/// Feeds ids [batch, seq] in pieces of the given sizes and returns the logits of each.
std::vector<std::vector<double>> decode(nn::Model& model, const Tensor& ids, const std::vector<int64_t>& pieces) {
  nn::ModelCache cache = model.make_cache(ids.dim(0), kTokens + 3);
  std::vector<std::vector<double>> found;
  int64_t at = 0;
  for (const int64_t size : pieces) {
    found.push_back(model.cached_logits(ids.slice(1, at, size).contiguous(), cache).to_vector<double>());
    at += size;
  }
  EXPECT_EQ(at, kTokens);
  return found;
}

TEST(ModelCache, DecodingInAnyPiecesEqualsTheWholeForward) {
  const Device device = Device::cpu(2);
  for (const NamedSpec& named : cached_specs()) {
    if (changes_with_length(named.spec)) continue;
    nn::Model model(named.spec, device);
    scramble(model);
    const Tensor ids = ids_tensor(random_ids(2 * kTokens, named.spec.vocab_size), 2, device);
    const auto wide = in_double(model, device);
    const Tensor truth = wide->logits(ids);
    const double naive = naive_error(model, *wide, ids);
    for (const std::vector<int64_t>& pieces :
         std::vector<std::vector<int64_t>>{{5, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 4, 4, 4}, {kTokens}}) {
      int64_t at = 0;
      const auto found = decode(model, ids, pieces);
      for (size_t i = 0; i < pieces.size(); ++i) {
        expect_within(found[i], some_rows(truth, at, pieces[i]), naive,
                      str(named.name, ", piece ", i, " of ", pieces[i]));
        at += pieces[i];
      }
    }
  }
}

TEST(ModelCache, LongPiecesBehindACachedStart) {
  const Device device = Device::cpu(2);
  for (const char* base : {"llama-tiny", "gemma-2-tiny", "bloom-tiny", "t5-tiny"}) {
    const NamedSpec named = changed(base, {});
    nn::Model model(named.spec, device);
    scramble(model);
    const Tensor ids = ids_tensor(random_ids(40, named.spec.vocab_size), 1, device);
    nn::ModelCache cache = model.make_cache(1, 40);
    model.cached_logits(ids.slice(1, 0, 9).contiguous(), cache);
    const auto ours = model.cached_logits(ids.slice(1, 9, 31).contiguous(), cache).to_vector<double>();
    const auto wide = in_double(model, device);
    expect_within(ours, some_rows(wide->logits(ids), 9, 31), naive_error(model, *wide, ids), named.name);
  }
}

/// Prompts of different lengths, padded, then three one-token steps.
void expect_ragged(const NamedSpec& named) {
  const Device device = Device::cpu(2);
  nn::Model model(named.spec, device);
  scramble(model);
  const auto wide = in_double(model, device);
  const std::vector<int64_t> prompts{3, 7, 5};
  std::vector<std::vector<int64_t>> rows;
  for (size_t r = 0; r < 3; ++r) rows.push_back(random_ids(prompts[r] + 3, named.spec.vocab_size, 20 + r));
  double naive = 0;
  for (const auto& row : rows) naive = std::max(naive, naive_error(model, *wide, ids_tensor(row, 1, device)));
  nn::ModelCache cache = model.make_cache(3, 16);
  std::vector<int64_t> lengths(3, 0);
  for (int step = 0; step < 4; ++step) {
    const int64_t seq = step == 0 ? 7 : 1;
    std::vector<int64_t> fed;
    for (size_t r = 0; r < 3; ++r) {
      for (int64_t s = 0; s < seq; ++s)
        fed.push_back(s < prompts[r] || step > 0 ? rows[r][static_cast<size_t>(lengths[r] + s)] : 0);
    }
    for (size_t r = 0; r < 3; ++r) lengths[r] += step == 0 ? prompts[r] : 1;
    const nn::CachedOptions options{.counts = step == 0 ? prompts : std::vector<int64_t>{}, .last_only = true};
    const Tensor ours = model.cached_logits(ids_tensor(fed, 3, device), cache, options);
    EXPECT_EQ(cache.lengths(), lengths);
    for (int64_t r = 0; r < 3; ++r) {
      const int64_t n = lengths[static_cast<size_t>(r)];
      std::vector<int64_t> alone(rows[static_cast<size_t>(r)].begin(), rows[static_cast<size_t>(r)].begin() + n);
      const Tensor ids = ids_tensor(alone, 1, device);
      expect_within(ours.slice(0, r, 1).to_vector<double>(), some_rows(wide->logits(ids), n - 1, 1), naive,
                    str(named.name, " row ", r, " step ", step));
    }
  }
}

const std::vector<std::string> kDynamic{"position.scaling.kind=dynamic_ntk", "position.scaling.factor=2",
                                        "position.scaling.original_length=5"};
const std::vector<std::string> kLongRope{
    "position.scaling={\"kind\":\"longrope\",\"original_length\":6,"
    "\"short_factor\":[1,1.1,1.2,1.3],\"long_factor\":[1.5,2,3,4]}"};

TEST(ModelCache, RaggedRowsEqualEachRowAlone) {
  for (const char* base : {"llama-tiny", "gpt2-tiny", "bloom-tiny", "t5-tiny", "gemma-3-tiny", "transformer-tiny"}) {
    expect_ragged(changed(base, {}));
  }
  expect_ragged(changed("llama-tiny", kDynamic));
  expect_ragged(changed("llama-tiny", kLongRope));
}

/// Dynamic RoPE scaling changes the rotation of every key once the sequence exceeds the training length.
TEST(ModelCache, RotationsThatChangeWithTheLengthAreNeverStale) {
  const Device device = Device::cpu(2);
  for (const auto& sets : {kDynamic, kLongRope}) {
    const NamedSpec named = changed("llama-tiny", sets);
    nn::Model model(named.spec, device);
    scramble(model);
    const auto wide = in_double(model, device);
    const Tensor ids = ids_tensor(random_ids(2 * kTokens, 96), 2, device);
    nn::ModelCache cache = model.make_cache(2, kTokens);
    for (int64_t at = 0; at < kTokens;) {
      const int64_t size = at == 0 ? 3 : at == 7 ? 2 : 1;
      const Tensor ours = model.cached_logits(ids.slice(1, at, size).contiguous(), cache, {.last_only = true});
      at += size;
      const Tensor so_far = ids.slice(1, 0, at).contiguous();
      expect_within(ours.to_vector<double>(), some_rows(wide->logits(so_far), at - 1, 1),
                    naive_error(model, *wide, ids), str(named.name, " at ", at));
    }
    // Ensures that the length matters; otherwise the test could not fail.
    const Tensor short_logits = model.logits(ids.slice(1, 0, 4).contiguous());
    const Tensor long_logits = model.logits(ids);
    EXPECT_GT(largest_error(some_rows(short_logits, 3, 1), some_rows(long_logits, 3, 1)), 1e-3) << named.name;
  }
}

// A row with zero new tokens stays unchanged while others advance, even at the end of the position table.
TEST(ModelCache, ARowMayRest) {
  const Device device = Device::cpu(2);
  for (const char* preset : {"gpt2-tiny", "llama-tiny"}) {
    nn::Model model(changed(preset, {}).spec, device);
    scramble(model);
    const auto a = random_ids(65, 96, 1);
    const auto b = random_ids(6, 96, 2);
    nn::ModelCache cache = model.make_cache(2, 70);
    nn::ModelCache first = cache.rows(0, 1);
    model.cached_logits(ids_tensor({a.begin(), a.begin() + 64}, 1, device), first);
    for (size_t t = 0; t < 6; ++t) {
      const Tensor ours = model.cached_logits(ids_tensor({0, b[t]}, 2, device), cache, {.counts = {0, 1}});
      if (t < 5) continue;
      const auto alone = some_rows(model.logits(ids_tensor(b, 1, device)), 5, 1);
      expect_same_model(model, some_rows(ours.slice(0, 1, 1), 0, 1), alone, preset);
    }
    EXPECT_EQ(cache.lengths(), (std::vector<int64_t>{64, 6}));
    cache.truncate(0, 63);
    const Tensor ours = model.cached_logits(ids_tensor({a[63], 0}, 2, device), cache, {.counts = {1, 0}});
    const auto alone = some_rows(model.logits(ids_tensor({a.begin(), a.begin() + 64}, 1, device)), 63, 1);
    expect_same_model(model, some_rows(ours.slice(0, 0, 1), 0, 1), alone, preset);
  }
}

TEST(ModelCache, RowsCanBeFilledApartCutBackAndReordered) {
  const Device device = Device::cpu(2);
  const NamedSpec named = changed("llama-tiny", {});
  nn::Model model(named.spec, device);
  scramble(model);
  const auto a = random_ids(9, 96, 1);
  const auto b = random_ids(9, 96, 2);
  const auto last = [&](const std::vector<int64_t>& ids) {
    return some_rows(model.logits(ids_tensor(ids, 1, device)), static_cast<int64_t>(ids.size()) - 1, 1);
  };
  nn::ModelCache cache = model.make_cache(2, 12);
  EXPECT_EQ(cache.bytes(), 2 * 2 * 2 * 12 * 2 * 8 * 4);  // layers, k and v, rows, tokens, heads, width, bytes per value
  for (int64_t row = 0; row < 2; ++row) {
    nn::ModelCache one = cache.rows(row, 1);
    model.cached_logits(ids_tensor(row == 0 ? a : b, 1, device), one);
  }
  cache.truncate(1, 4);
  cache.reorder(std::vector<int64_t>{1, 0});
  EXPECT_EQ(cache.lengths(), (std::vector<int64_t>{4, 9}));
  const Tensor ours = model.cached_logits(ids_tensor({b[4], 11}, 2, device), cache);
  auto longer = a;
  longer.push_back(11);
  expect_same_model(model, some_rows(ours.slice(0, 0, 1), 0, 1), last({b.begin(), b.begin() + 5}), "cut back");
  expect_same_model(model, some_rows(ours.slice(0, 1, 1), 0, 1), last(longer), "reordered");
  expect_error([&] { cache.truncate(0, 6); }, "holds 5 tokens and cannot be cut to 6");
  expect_error([&] { cache.reset(2); }, "expected one in [0, 2)");
  expect_error([&] { model.cached_logits(ids_tensor(random_ids(10, 96), 2, device), cache); }, "capacity of 12");
  expect_error([&] { model.cached_logits(ids_tensor(a, 1, device), cache); }, "the cache has 2 rows");
  Tape tape;
  for (auto& [name, tensor] : model.named_parameters()) tape.watch(tensor);
  expect_error([&] { model.cached_logits(ids_tensor({1, 2}, 2, device), cache); }, "NoGrad");
}

}  // namespace
}  // namespace lamina::testing
