#include "lamina/ops/attention/rotary_attention.h"

#include <cmath>

#include "ops/attention_oracle.h"
#include "ops/rotary_oracle.h"

namespace lamina::testing {
namespace {

using ops::RotaryPairing;

struct RotaryAttentionCase {
  static constexpr const char* name = "rotary_attention";
  struct Params {
    int64_t batch, seq, heads, kv_heads, d;
    ops::AttentionOptions options = {};
    RotaryPairing pairing = RotaryPairing::half_split;
    int64_t rotary_dim = 0;
    int64_t offset = 0;
    bool per_element = false;
    bool sinks = false;
  };

  static std::vector<Params> sweep() {
    return {{1, 200, 1, 1, 64},  // a whole head fits one thread block
            {1, 256, 1, 1, 64},
            {1, 129, 2, 2, 64, {.scale = 0.2}, RotaryPairing::half_split, 64, 5},
            {1, 130, 2, 1, 16},
            {1, 130, 1, 1, 16, {}, RotaryPairing::interleaved},
            {1, 130, 1, 1, 16, {}, RotaryPairing::half_split, 0, 0, true},
            {1, 130, 1, 1, 16, {}, RotaryPairing::half_split, 8},
            {1, 130, 1, 1, 32, {}, RotaryPairing::half_split, 0, 3},
            {1, 70, 1, 1, 16, {.causal = false}},
            {1, 130, 1, 1, 16, {}, RotaryPairing::half_split, 0, 0, false, true},
            {2, 7, 4, 2, 6, {}, RotaryPairing::interleaved, 4, 1},
            {1, 1, 1, 1, 2},
            {0, 5, 2, 1, 4},
            {2, 0, 2, 1, 4}};
  }
  /// Shapes that use the one-pass backward.
  static std::vector<Params> gpu_sweep() {
    return {{1, 576, 2, 1, 64}, {1, 640, 1, 1, 64, {}, RotaryPairing::half_split, 64, 5}};
  }
  static std::vector<Params> bench() { return {{12, 256, 6, 6, 64}}; }
  static std::string describe(const Params& p) {
    return str(describe_attention(attention(p)), " turned ", dim(p),
               p.pairing == RotaryPairing::interleaved ? " interleaved" : "", p.per_element ? " per element" : "",
               p.offset != 0 ? str(" offset ", p.offset) : "");
  }
  static AttentionParams attention(const Params& p) {
    return {p.batch, p.seq, p.seq, p.heads, p.kv_heads, p.d, p.d, p.options, false, 0, p.sinks};
  }
  static int64_t dim(const Params& p) { return p.rotary_dim != 0 ? p.rotary_dim : p.d; }
  static std::vector<Input> inputs(const Params& p) {
    const Input table{.shape = {p.seq + p.offset + 2, p.per_element ? dim(p) : dim(p) / 2},
                      .dtype = DType::f32,
                      .differentiable = false};
    return {{.shape = {p.batch, p.seq, p.heads + 2 * p.kv_heads, p.d}},
            table,
            table,
            p.sinks ? Input{.shape = {p.heads}} : absent()};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    const ops::HeadRotation rotation{
        in[1], in[2], {.pairing = p.pairing, .rotary_dim = p.rotary_dim, .offset = p.offset, .positions = Tensor()}};
    ops::AttentionExtras extras;
    extras.sinks = in[3];
    return {ops::rotary_attention(in[0].clone(), p.heads, p.kv_heads, rotation, p.options, extras)};
  }

  /// Element c of the head that starts at index `at`, rotated.
  template <class S>
  static S turned(const Params& p, const Arrays<S>& in, int64_t at, int64_t position, int64_t c) {
    const OracleTurn turn{p.pairing, dim(p), p.per_element};
    return turn.of(in[1], in[2], p.offset + position, c, [&](int64_t i) { return in[0][at + i]; });
  }

  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    const OracleExtras<S> extras{in[3], in[3], in[3]};
    const int64_t all = p.heads + 2 * p.kv_heads;
    const auto place = [&](int64_t b, int64_t i, int64_t head) { return ((b * p.seq + i) * all + head) * p.d; };
    Array<S> y({p.batch, p.seq, p.heads, p.d});
    for (int64_t n = 0; n < p.batch * p.heads; ++n) {
      const int64_t b = n / p.heads;
      const int64_t head = n % p.heads;
      const int64_t kv_head = head / (p.heads / p.kv_heads);
      std::vector<S> queries;
      std::vector<S> keys;
      for (int64_t i = 0; i < p.seq; ++i) {
        for (int64_t c = 0; c < p.d; ++c) {
          queries.push_back(turned(p, in, place(b, i, head), i, c));
          keys.push_back(turned(p, in, place(b, i, p.heads + kv_head), i, c));
        }
      }
      for (int64_t i = 0; i < p.seq; ++i) {
        std::vector<S> scores;
        for (int64_t j = 0; j < (p.options.causal ? i + 1 : p.seq); ++j) {
          S dot = 0;
          for (int64_t c = 0; c < p.d; ++c) {
            dot += queries[static_cast<size_t>(i * p.d + c)] * keys[static_cast<size_t>(j * p.d + c)];
          }
          scores.push_back(oracle_score(attention(p), extras, dot, head, i, j));
        }
        const std::vector<S> weights =
            oracle_weights(scores, p.sinks ? &in[3].values[static_cast<size_t>(head)] : nullptr);
        for (size_t j = 0; j < weights.size(); ++j) {
          const int64_t value = place(b, static_cast<int64_t>(j), p.heads + p.kv_heads + kv_head);
          for (int64_t c = 0; c < p.d; ++c)
            y[((b * p.seq + i) * p.heads + head) * p.d + c] += weights[j] * in[0][value + c];
        }
      }
    }
    return {y};
  }
};
LAMINA_OP_CASE(RotaryAttentionCase);

}  // namespace
}  // namespace lamina::testing
