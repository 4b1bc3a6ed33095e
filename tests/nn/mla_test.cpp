// Multi-head latent attention (MLA) and its latent cache, against the expanded formula in plain loops.
#include "support/block_oracle.h"

namespace lamina::testing {
namespace {

constexpr int64_t kMlaWidth = 10;

struct MlaOracle {
  arch::Mla m;
  bool interleaved = false;
  bool rotates = true;
  int64_t window = 1000;

  template <class S>
  Array<S> operator()(const Weights<S>& w, const Array<S>& x) const {
    using std::tanh;
    const int64_t batch = x.dim(0);
    const int64_t seq = x.dim(1);
    const int64_t heads = m.n_heads;
    const int64_t width = m.qk_nope + m.qk_rope;
    const auto turn = [&](Array<S> part, int64_t n) {
      part.shape = {batch, seq, n, m.qk_rope};
      return rotates ? plain::rotate(part, m.qk_rope, 10000.0, interleaved) : part;
    };
    Array<S> q =
        m.q_lora_rank
            ? plain::linear(w, "mixer.q_up",
                            plain::rms_norm(w, "mixer.q_norm", plain::linear(w, "mixer.q_down", x), m.norm_eps))
            : plain::linear(w, "mixer.q", x);
    q.shape = {batch, seq, heads, width};
    const Array<S> q_rope = turn(plain::columns(q, m.qk_nope, m.qk_rope), heads);
    const Array<S> down = plain::linear(w, "mixer.kv_down", x);
    const Array<S> key = turn(plain::columns(down, m.kv_lora_rank, m.qk_rope), 1);
    const Array<S> latent = plain::rms_norm(w, "mixer.kv_norm", plain::columns(down, 0, m.kv_lora_rank), m.norm_eps);
    const Array<S> up = plain::linear(w, "mixer.kv_up", latent);
    const int64_t up_width = m.qk_nope + m.v_head_dim;
    Array<S> y(Shape{batch, seq, heads * m.v_head_dim});
    for (int64_t at = 0; at < batch * seq * heads; ++at) {
      const int64_t head = at % heads;
      const int64_t i = at / heads % seq;
      const int64_t first = at / heads - i;
      const auto up_at = [&](int64_t j) { return ((first + j) * heads + head) * up_width; };
      const auto score = [&](int64_t j) {
        S sum(0);
        for (int64_t c = 0; c < m.qk_nope; ++c) sum += q[at * width + c] * up[up_at(j) + c];
        for (int64_t c = 0; c < m.qk_rope; ++c) sum += q_rope[at * m.qk_rope + c] * key[(first + j) * m.qk_rope + c];
        sum *= S(*m.scale);
        return m.soft_cap ? S(*m.soft_cap) * tanh(sum / S(*m.soft_cap)) : sum;
      };
      const auto value = [&](int64_t j, int64_t c) { return up[up_at(j) + m.qk_nope + c]; };
      const auto out = plain::attend<S>(
          i, m.v_head_dim, [&](int64_t j) { return i - j < window; }, score, value);
      for (int64_t c = 0; c < m.v_head_dim; ++c) y[at * m.v_head_dim + c] = out[static_cast<size_t>(c)];
    }
    return plain::linear(w, "mixer.o", y);
  }
};

arch::Mla small() {
  return {.n_heads = 3, .q_lora_rank = 5, .kv_lora_rank = 6, .qk_nope = 4, .qk_rope = 2, .v_head_dim = 3};
}
/// A latent so wide that expanding it is cheaper for all but a few queries.
arch::Mla wide() { return {.n_heads = 5, .kv_lora_rank = 12, .qk_nope = 2, .qk_rope = 4, .v_head_dim = 1}; }

/// A latent so narrow that even long pieces use the absorbed form, attention over the latents.
arch::Mla narrow() { return {.n_heads = 2, .kv_lora_rank = 8, .qk_nope = 8, .qk_rope = 2, .v_head_dim = 6}; }

BlockPart mla_part(const arch::Mla& m, const arch::Position& position = arch::Rope{}) {
  return BlockPart(one_block(kMlaWidth, m, arch::NoFfn{}, position));
}
arch::Mla mla_of(const BlockPart& part) { return std::get<arch::Mla>(part.block().mixer); }

TEST(Mla, HasTheListedWeights) {
  expect_listed_weights(mla_part(small()));
  arch::Mla direct = wide();
  direct.bias = true;
  expect_listed_weights(mla_part(direct));
}

TEST(Mla, ForwardAndGradientsAreThoseOfTheExpandedFormula) {
  const BlockPart part = mla_part(small());
  expect_as_oracle(part, {2, 6, kMlaWidth}, MlaOracle{mla_of(part)});

  arch::Mla direct = wide();
  direct.bias = true;
  direct.scale = 0.7;
  direct.soft_cap = 1.5;
  const BlockPart turned = mla_part(direct, arch::Rope{.pairing = arch::Pairing::interleaved});
  expect_as_oracle(turned, {2, 6, kMlaWidth}, MlaOracle{.m = mla_of(turned), .interleaved = true});

  arch::Mla local = small();
  local.pattern = arch::WindowPattern{.size = 3};
  const BlockPart windowed = mla_part(local, arch::NoPosition{});
  expect_as_oracle(windowed, {1, 7, kMlaWidth}, MlaOracle{.m = mla_of(windowed), .rotates = false, .window = 3});
}

TEST(Mla, CachedLatentsGiveTheFullForward) {
  for (const arch::Mla& m : {small(), wide(), narrow()}) {
    for (const auto pairing : {arch::Pairing::half_split, arch::Pairing::interleaved}) {
      const BlockPart part = mla_part(m, arch::Rope{.pairing = pairing});
      // Pieces of up to 8, 1 and 56 tokens use the absorbed form; 40 tokens are too many for attention_decode.
      expect_cached_equals_full(part, part.input({2, 11, kMlaWidth}));
      expect_cached_equals_full(part, part.input({1, 40, kMlaWidth}));
      expect_ragged_rows_are_independent(part, kMlaWidth);
      expect_documents_are_apart(part, kMlaWidth);
    }
  }
  arch::Mla local = small();
  local.pattern = arch::WindowPattern{.size = 4};
  local.soft_cap = 2.0;
  const BlockPart part = mla_part(local);
  expect_cached_equals_full(part, part.input({2, 12, kMlaWidth}));
}

TEST(Mla, CacheHoldsTheLatentAndTheSharedKeyAlone) {
  const BlockPart part = mla_part(small());
  const auto cache = part.mixer->make_cache(2, 100, DType::bf16, part.device);
  EXPECT_EQ(cache->bytes(), 2 * 100 * (6 + 2) * 2);
  EXPECT_TRUE(cache->can_truncate());
}

}  // namespace
}  // namespace lamina::testing
