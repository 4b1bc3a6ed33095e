// 8-bit KV caches. A value errs by up to 1/254 of the largest in its head; bf16 errs by 1/512 of the value itself. So
// logits may err several times as much as with bf16, however the tokens are split, moved and read back.
#include <gtest/gtest.h>

#include <cmath>

#include "lamina/infer/generator.h"
#include "nn/model_support.h"

namespace lamina::testing {
namespace {

using text::TokenId;

constexpr int64_t kKept = 60;

/// Bound on the error ratio between 8-bit and bf16 caches. An 8-bit step is 1/127 of the largest value; a bf16 step is
/// 2^-8 to 2^-7 of each value. The largest value is assumed to be four times a typical one.
constexpr double kMoreThanBf16 = 4.0 * 256 / 127 * 1.5;

double deviation(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

/// Compares the error of use(u8) with that of use(bf16); use(f32) is the truth.
template <class Use>
void expect_near_f32(const std::string& what, const Use& use) {
  const std::vector<double> truth = use(DType::f32);
  const double ours = deviation(use(DType::u8), truth);
  const double narrow = deviation(use(DType::bf16), truth);
  EXPECT_GT(ours, 0) << what << ": nothing was rounded";
  EXPECT_LE(ours, kMoreThanBf16 * narrow) << what << ": bf16 errs by " << narrow;
}

void append(std::vector<double>& all, const Tensor& logits) {
  const auto more = logits.to_vector<double>();
  all.insert(all.end(), more.begin(), more.end());
}

TEST(CacheOf8Bits, AnyPiecesBehindACachedStart) {
  const Device device = Device::cpu(2);
  // No MoE models: a tiny difference can change the choice of experts.
  std::vector<NamedSpec> all;
  for (const char* preset : {"llama-tiny", "gpt2-tiny", "bloom-tiny", "t5-tiny", "gemma-2-tiny", "gemma-3-tiny",
                             "transformer-xl-tiny", "hybrid-tiny"}) {
    all.push_back(changed(preset, {}));
  }
  const std::string mixer = "layers[0].pattern[0].mixer.";
  all.push_back(changed("llama-tiny", {mixer + "sinks=true"}));
  all.push_back(changed("llama-tiny", {mixer + "pattern.kind=window", mixer + "pattern.size=5", "context=400"}));
  all.push_back(changed("deepseek-tiny", {"layers[1].pattern[0].ffn={\"kind\":\"gated\",\"d_ff\":56}"}));
  for (const NamedSpec& named : all) {
    nn::Model model(named.spec, device);
    scramble(model);
    const Tensor ids = ids_tensor(random_ids(2 * kKept, named.spec.vocab_size), 2, device);
    expect_near_f32(named.name, [&](DType dtype) {
      nn::ModelCache cache = model.make_cache(2, kKept, dtype);
      std::vector<double> logits;
      int64_t at = 0;
      for (const int64_t size : {7, 1, 1, 4, 20, 1, 18, 1, 3, 1, 1, 1, 1}) {
        const Tensor piece = model.cached_logits(ids.slice(1, at, size).contiguous(), cache);
        if (at > 0) append(logits, piece);  // the first logits come from unrounded keys
        at += size;
      }
      EXPECT_EQ(at, kKept);
      return logits;
    });
  }
}

TEST(CacheOf8Bits, RowsAreFilledApartCutBackAndReordered) {
  const Device device = Device::cpu(2);
  const std::string pattern = "layers[0].pattern[0].mixer.pattern.";
  for (const std::vector<std::string>& sets :
       std::vector<std::vector<std::string>>{{}, {pattern + "kind=window", pattern + "size=6", "context=400"}}) {
    nn::Model model(changed("llama-tiny", sets).spec, device);
    scramble(model);
    const auto a = random_ids(30, 96, 1);
    const auto b = random_ids(30, 96, 2);
    expect_near_f32(sets.empty() ? "all" : "window", [&](DType dtype) {
      nn::ModelCache cache = model.make_cache(2, 60, dtype);
      for (int64_t row = 0; row < 2; ++row) {
        nn::ModelCache one = cache.rows(row, 1);
        model.cached_logits(ids_tensor(row == 0 ? a : b, 1, device), one);
      }
      cache.truncate(1, 29);
      cache.reorder(std::vector<int64_t>{1, 0});
      EXPECT_EQ(cache.lengths(), (std::vector<int64_t>{29, 30}));
      std::vector<double> logits;
      for (const int64_t id : {3, 50, 11, 70}) {
        append(logits, model.cached_logits(ids_tensor({id, id + 1}, 2, device), cache));
      }
      // Twenty more tokens for one row, which reads its keys back from the cache.
      nn::ModelCache one = cache.rows(1, 1);
      append(logits, model.cached_logits(ids_tensor({a.begin(), a.begin() + 20}, 1, device), one));
      append(logits, model.cached_logits(ids_tensor({5, 6}, 2, device), cache));
      return logits;
    });
  }
}

// Each row is quantized by itself, so its results do not depend on the rest of the batch.
TEST(CacheOf8Bits, RaggedRowsAnswerAsTheyDoAlone) {
  const Device device = Device::cpu(2);
  for (const char* preset : {"llama-tiny", "mistral-tiny", "hybrid-tiny"}) {
    nn::Model model(arch::resolve(arch::load_preset(preset)), device);
    scramble(model);
    std::vector<std::vector<TokenId>> prompts;
    for (const int64_t length : {3, 17, 4, 1, 9}) {
      const auto ids = random_ids(length, 96, static_cast<uint64_t>(length));
      prompts.emplace_back(ids.begin(), ids.end());
    }
    const infer::GenerateOptions greedy{
        .max_tokens = 12, .sampler = {.temperature = 0}, .stop_tokens = {3, 7, 41}, .cache_dtype = DType::u8};
    const auto together = infer::generate(model, prompts, greedy);
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(infer::generate(model, {prompts[i]}, greedy)[0].ids, together[i].ids) << preset << " row " << i;
    }
    EXPECT_EQ(infer::generate(model, prompts, greedy)[1].ids, together[1].ids);
    infer::Session session(model, 0, DType::u8);
    EXPECT_EQ(session.turn(prompts[1], greedy).ids, together[1].ids);
  }
}

TEST(CacheOf8Bits, WeighsAByteANumberAndAScaleAHead) {
  const Device device = Device::cpu(1);
  const nn::Model model(changed("llama-tiny", {}).spec, device);
  EXPECT_EQ(model.make_cache(3, 12, DType::u8).bytes(), 2 * 2 * 3 * 12 * 2 * (8 + 4));
  EXPECT_EQ(model.make_cache(3, 12, DType::bf16).bytes(), 2 * 2 * 3 * 12 * 2 * 8 * 2);
  EXPECT_EQ(nn::cache_dtype_named("q8"), DType::u8);
  EXPECT_EQ(nn::cache_dtype_named("bf16"), DType::bf16);
  expect_error([&] { nn::cache_dtype_named("u8"); }, "expected f32, bf16, f16, f64 or q8");
  expect_error([&] { model.make_cache(1, 4, DType::i32); }, "a cache of i32 for weights of f32");
  const nn::Model wide(model.spec(), device, {.dtype = DType::f64});
  expect_error([&] { wide.make_cache(1, 4, DType::u8); }, "expected f64 for f64 weights");
  const nn::Model biased(changed("falcon-rw-tiny", {}).spec, device);
  expect_error([&] { biased.make_cache(1, 4, DType::u8); }, "rounded ALiBi");
}

}  // namespace
}  // namespace lamina::testing
