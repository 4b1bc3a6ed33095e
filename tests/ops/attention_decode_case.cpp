#include "lamina/ops/attention/attention_decode.h"

#include "ops/attention_oracle.h"

namespace lamina::testing {
namespace {

using Kind = ops::AttentionPattern::Kind;

struct AttentionDecodeCase {
  static constexpr const char* name = "attention_decode";
  static constexpr bool kBackward = false;
  struct Params {
    AttentionParams attention;  ///< seq_k is the capacity of the KV caches
    std::vector<double> lengths;
  };

  static std::vector<Params> sweep() {
    const ops::AttentionPattern window{.kind = Kind::window, .window = 70};
    const ops::AttentionPattern global{.kind = Kind::window, .window = 40, .global_tokens = 3};
    const ops::AttentionPattern blocks{.kind = Kind::blocks, .block = 16, .random_blocks = 2, .seed = 3};
    const ops::AttentionPattern strided{.kind = Kind::strided, .window = 5, .stride = 9};
    const ops::AttentionOptions all{.causal = false, .scale = 2.0, .pattern = window, .soft_cap = 3.0};
    return {{{2, 1, 9, 4, 2, 5, 3}, {9, 4}},
            {{1, 1, 1, 1, 1, 1, 1}, {1}},
            {{3, 1, 70, 8, 1, 16, 17}, {70, 0, 33}},
            {{1, 1, 1300, 3, 3, 8, 4}, {1207}},    // several KV chunks
            {{1, 3, 1100, 2, 1, 16, 16}, {1030}},  // several queries
            {{2, 16, 140, 4, 2, 5, 7}, {140, 17}},
            {
                {1, 2, 600, 6, 2, 32, 64},
                {600},
            },
            {{2, 1, 700, 6, 2, 16, 24}, {650, 33}},  // widths are multiples of a 16-byte vector
            {{1, 1, 4300, 2, 1, 16, 16}, {4170}},
            {{2, 1, 300, 9, 1, 72, 128}, {299, 1}},
            {{1, 1, 140, 2, 2, 256, 8}, {140}},
            {{2, 1, 500, 4, 2, 8, 8, {.pattern = window}, false, 0, true}, {500, 0}},
            {{1, 4, 70, 2, 1, 4, 4, {.causal = false}}, {66}},
            {{0, 1, 9, 2, 1, 4, 4}, {}},
            {{1, 0, 9, 2, 1, 4, 4}, {9}},
            {{1, 1, 0, 2, 1, 4, 4}, {0}},
            {{1, 1, 9, 2, 1, 4, 0}, {9}},
            {{2, 2, 700, 2, 1, 4, 4, {}, true}, {650, 333}},
            {{2, 2, 90, 2, 2, 4, 4, {.t5_max_distance = 64}, false, 16}, {80, 33}},
            {{2, 2, 90, 4, 2, 4, 4, {}, false, 0, true}, {80, 0}},
            {{1, 2, 700, 2, 1, 4, 4, {.pattern = window}}, {690}},
            {{1, 2, 700, 2, 1, 4, 4, {.pattern = global}}, {690}},
            {{1, 2, 300, 2, 1, 4, 4, {.pattern = blocks}}, {270}},
            {{1, 2, 300, 2, 1, 4, 4, {.causal = false, .pattern = blocks}}, {270}},
            {{1, 2, 300, 2, 1, 4, 4, {.pattern = strided}}, {270}},
            {{2, 5, 200, 6, 2, 9, 5, all, true, 8, true}, {199, 64}}};
  }
  static std::vector<Params> bench() {
    return {{{1, 1, 16384, 8, 8, 64, 64}, {16384}}, {{1, 1, 16384, 32, 4, 64, 64}, {16384}}};
  }
  static std::string describe(const Params& p) { return describe_attention(p.attention); }

  static std::vector<Input> inputs(const Params& params) {
    const AttentionParams& p = params.attention;
    return {{.shape = {p.batch, p.seq_q, p.heads, p.d_qk}},
            {.shape = {p.batch, p.kv_heads, p.seq_k, p.d_qk}},
            {.shape = {p.batch, p.kv_heads, p.seq_k, p.d_v}},
            integers({p.batch}, params.lengths, DType::i32),
            p.alibi ? Input{.shape = {p.heads}, .low = 0.01, .high = 0.5, .dtype = DType::f32, .differentiable = false}
                    : absent(),
            p.t5_buckets > 0 ? Input{.shape = {p.t5_buckets, p.heads}} : absent(),
            p.sinks ? Input{.shape = {p.heads}} : absent()};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::attention_decode(in[0], in[1], in[2], in[3], p.attention.options, {in[4], in[5], in[6], Tensor()})};
  }

  template <class S>
  static Arrays<S> oracle(const Params& params, const Arrays<S>& in) {
    const AttentionParams& p = params.attention;
    const OracleExtras<S> extras{in[4], in[5], in[6]};
    Array<S> y({p.batch, p.seq_q, p.heads, p.d_v});
    for (int64_t row = 0; row < p.batch * p.seq_q * p.heads; ++row) {
      const int64_t head = row % p.heads;
      const int64_t b = row / p.heads / p.seq_q;
      const auto length = static_cast<int64_t>(params.lengths[static_cast<size_t>(b)]);
      const int64_t i = length - p.seq_q + row / p.heads % p.seq_q;
      const int64_t cache = (b * p.kv_heads + head / (p.heads / p.kv_heads)) * p.seq_k;
      std::vector<S> scores;
      std::vector<int64_t> keys;
      for (int64_t j = 0; j < length; ++j) {
        if (!oracle_sees(p.options, i, j, length)) continue;
        S dot = 0;
        for (int64_t c = 0; c < p.d_qk; ++c) dot += in[0][row * p.d_qk + c] * in[1][(cache + j) * p.d_qk + c];
        keys.push_back(j);
        scores.push_back(oracle_score(p, extras, dot, head, i, j));
      }
      const S* sink = p.sinks ? &in[6].values[static_cast<size_t>(head)] : nullptr;
      const std::vector<S> weights = oracle_weights(scores, sink);
      for (size_t n = 0; n < keys.size(); ++n) {
        for (int64_t c = 0; c < p.d_v; ++c) y[row * p.d_v + c] += weights[n] * in[2][(cache + keys[n]) * p.d_v + c];
      }
    }
    return {y};
  }
};
LAMINA_OP_CASE(AttentionDecodeCase);

/// attention_decode over 8-bit KV caches. The oracle dequantizes the caches first.
struct AttentionDecodeOf8BitsCase {
  static constexpr const char* name = "attention_decode";
  static constexpr const char* form = "of_8_bits";
  static constexpr bool kBackward = false;
  using Params = AttentionDecodeCase::Params;
  static std::vector<DType> dtypes() { return {DType::f32, DType::bf16, DType::f16}; }
  static std::vector<Params> sweep() {
    std::vector<Params> all = AttentionDecodeCase::sweep();
    all.push_back({{2, 1, 70, 16, 2, 64, 64}, {70, 33}});  // eight query heads per KV head
    all.push_back({{1, 1, 530, 4, 1, 128, 128}, {517}});
    all.push_back({{1, 1, 130, 4, 4, 128, 72}, {129}});
    all.push_back({{1, 1, 40, 4, 1, 576, 576}, {37}});
    all.push_back({{2, 1, 1300, 2, 2, 64, 64}, {1207, 66}});  // one query per KV head
    all.push_back({{1, 1, 600, 6, 2, 64, 128}, {577}});
    all.push_back({{1, 2, 200, 14, 2, 128, 64, {.pattern = {.kind = Kind::window, .window = 70}}}, {199}});
    all.push_back({{1, 16, 90, 1, 1, 64, 64, {.soft_cap = 3.0}, true, 0, true}, {83}});
    return all;
  }
  static std::vector<Params> bench() { return AttentionDecodeCase::bench(); }
  static std::string describe(const Params& p) { return AttentionDecodeCase::describe(p) + " of 8 bits"; }

  static std::vector<Input> inputs(const Params& p) {
    std::vector<Input> all = AttentionDecodeCase::inputs(p);
    for (const size_t cache : {size_t{1}, size_t{2}}) {
      all[cache] = {.shape = all[cache].shape, .low = 0, .high = 256, .dtype = DType::u8, .differentiable = false};
      const Shape scales{all[cache].shape[0], all[cache].shape[1], all[cache].shape[2]};
      all.push_back({.shape = scales, .low = 0.002, .high = 0.02, .dtype = DType::f32, .differentiable = false});
    }
    return all;
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::attention_decode(in[0], in[1], in[2], in[3], p.attention.options, {in[4], in[5], in[6], Tensor()},
                                  {in[7], in[8]})};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Arrays<S> whole(in.begin(), in.begin() + 7);
    for (const size_t cache : {size_t{1}, size_t{2}}) {
      const int64_t width = cache == 1 ? p.attention.d_qk : p.attention.d_v;
      for (size_t i = 0; i < whole[cache].values.size(); ++i) {
        const S& scale = in[6 + cache].values[i / static_cast<size_t>(width)];
        whole[cache].values[i] = (whole[cache].values[i] - S(128)) * scale;
      }
    }
    return AttentionDecodeCase::oracle<S>(p, whole);
  }
};
LAMINA_OP_CASE(AttentionDecodeOf8BitsCase);

}  // namespace
}  // namespace lamina::testing
