#include "lamina/ops/position/norm_rotary.h"

#include <cmath>

#include "ops/rotary_oracle.h"

namespace lamina::testing {
namespace {

using ops::RotaryPairing;

struct NormRotaryCase {
  static constexpr const char* name = "norm_rotary";
  struct Params {
    Shape x;  // [batch, seq, heads, head_dim]
    RotaryPairing pairing = RotaryPairing::half_split;
    int64_t rotary_dim = 0;
    bool weight = true;
    double weight_offset = 0.0;
    double eps = 1e-5;
    int64_t offset = 0;
    int positions_rank = 0;    // 0: position = offset + index
    int64_t more_heads = 0;    // heads after those of x in the packed projection
    bool per_element = false;  // one table entry per element, not per pair
    int64_t group = 0;
  };

  static std::vector<Params> sweep() {
    const auto interleaved = RotaryPairing::interleaved;
    const auto split = RotaryPairing::half_split;
    return {{{2, 3, 2, 16}},
            {{1, 1, 1, 2}},  // narrower than a 16-byte vector
            {{2, 5, 3, 64}, split, 0, true, 1.0, 1e-6, 7},
            {{2, 5, 3, 64}, interleaved, 0, true, 1.0, 1e-6, 7},
            {{2, 3, 4, 128}, split, 0, false},
            {{1, 4, 2, 128}, interleaved, 0, false, 0.0, 1e-2},
            {{2, 3, 3, 48}, split, 32, true, 0.0, 1e-5, 1},  // partial rotation of a head
            {{2, 3, 3, 48}, interleaved, 16, true, 0.0, 1e-5, 1},
            {{1, 3, 2, 56}, split, 16},  // an odd number of 16-byte vectors
            {{1, 2, 3, 256}, split, 0, true, 0.0, 1e-5, 3},
            {{1, 2, 1, 256}, interleaved, 64},
            {{1, 2, 2, 264}, split, 0},  // wider than a group of lanes handles
            {{3, 4, 1, 32}, split, 0, true, 0.0, 1e-5, 0, 1},
            {{3, 4, 2, 32}, interleaved, 32, true, 0.0, 1e-5, 0, 2},
            {{2, 5, 4, 16}, split, 0, true, 0.5, 1e-5, 2, 0, 3},
            {{2, 5, 1, 64}, split, 0, true, 0.0, 1e-5, 0, 0, 2},
            {{2, 3, 2, 32}, split, 0, true, 0.0, 1e-5, 0, 0, 0, true},
            {{2, 3, 2, 32}, split, 0, true, 0.0, 1e-5, 0, 0, 0, false, 8},
            {{2, 3, 2, 80}, split, 54},
            {{0, 4, 2, 16}},
            {{2, 0, 2, 16}},
            {{2, 3, 0, 16}},
            {{2, 3, 2, 0}}};
  }
  static std::vector<Params> bench() { return {{{8, 1024, 12, 64}}, {{1, 4096, 32, 128}}}; }
  static std::string describe(const Params& p) {
    return str(p.x, p.pairing == RotaryPairing::half_split ? " half-split" : " interleaved",
               p.rotary_dim != 0 ? str(" of ", p.rotary_dim) : "", p.weight ? "" : " no weight",
               p.weight_offset != 0 ? str(" weight offset ", p.weight_offset) : "",
               p.offset != 0 ? str(" offset ", p.offset) : "",
               p.positions_rank != 0 ? str(" positions of rank ", p.positions_rank) : "",
               p.more_heads != 0 ? str(" before ", p.more_heads) : "", p.per_element ? " per element" : "",
               p.group != 0 ? str(" group ", p.group) : "");
  }
  static int64_t dim(const Params& p) { return p.rotary_dim != 0 ? p.rotary_dim : p.x[3]; }
  static int64_t rows(const Params& p) { return p.x[1] + p.offset + 3; }
  static std::vector<Input> inputs(const Params& p) {
    const Input table{.shape = {rows(p), p.per_element ? dim(p) : dim(p) / 2}, .differentiable = false};
    Shape all = p.x;
    all[2] += p.more_heads;
    return {{.shape = all},
            p.weight ? Input{.shape = {p.x[3]}} : absent(),
            table,
            table,
            oracle_positions(p.positions_rank, p.x[0], p.x[1], rows(p))};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    const ops::RmsNormOptions norm{.eps = p.eps, .group_size = p.group, .weight_offset = p.weight_offset};
    const ops::RotaryOptions rotation{
        .pairing = p.pairing, .rotary_dim = p.rotary_dim, .offset = p.offset, .positions = in[4]};
    return {ops::norm_rotary(in[0].slice(2, 0, p.x[2]), in[1], in[2], in[3], norm, rotation)};
  }

  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    using std::sqrt;
    const int64_t head_dim = p.x[3];
    const int64_t group = p.group != 0 ? p.group : head_dim;
    const OracleTurn turn{p.pairing, dim(p), p.per_element};
    Array<S> y(p.x);
    for (int64_t row = 0; row < p.x[0] * p.x[1] * p.x[2]; ++row) {
      const int64_t token = row / p.x[2];
      const int64_t from = (token * (p.x[2] + p.more_heads) + row % p.x[2]) * head_dim;
      std::vector<S> normed;
      for (int64_t i = 0; i < head_dim; ++i) {
        S squares = 0;
        for (int64_t j = i / group * group; j < (i / group + 1) * group; ++j)
          squares += in[0][from + j] * in[0][from + j];
        S v = in[0][from + i] / sqrt(squares / S(group) + S(p.eps));
        if (p.weight) v *= in[1][i] + S(p.weight_offset);
        normed.push_back(v);
      }
      const int64_t position = oracle_position(p.positions_rank, in[4], p.offset, token, p.x[1]);
      for (int64_t c = 0; c < head_dim; ++c) {
        y[row * head_dim + c] =
            turn.of(in[2], in[3], position, c, [&](int64_t i) { return normed[static_cast<size_t>(i)]; });
      }
    }
    return {y};
  }
};
LAMINA_OP_CASE(NormRotaryCase);

/// Queries and keys of one packed projection, each with its own norm weight.
struct NormRotaryPackedCase {
  static constexpr const char* name = "norm_rotary";
  static constexpr const char* form = "joined";
  struct Params {
    int64_t batch, seq, n_heads, n_kv_heads, head_dim;
    RotaryPairing pairing = RotaryPairing::half_split;
    int64_t rotary_dim = 0;
    bool weights = true;
    int64_t offset = 0;
  };

  static std::vector<Params> sweep() {
    return {{2, 5, 4, 2, 32},
            {1, 3, 3, 1, 64, RotaryPairing::interleaved, 32, true, 4},
            {2, 3, 2, 2, 128, RotaryPairing::half_split, 0, false},
            {1, 4, 2, 1, 6},
            {0, 4, 2, 1, 16},
            {1, 2, 0, 0, 16}};
  }
  static std::vector<Params> bench() { return {{8, 1024, 12, 12, 64}}; }
  static std::string describe(const Params& p) {
    return str("[", p.batch, ",", p.seq, ",", p.n_heads, " + 2 · ", p.n_kv_heads, ",", p.head_dim, "]",
               p.pairing == RotaryPairing::half_split ? " half-split" : " interleaved",
               p.rotary_dim != 0 ? str(" of ", p.rotary_dim) : "", p.weights ? "" : " no weights",
               p.offset != 0 ? str(" offset ", p.offset) : "");
  }
  /// The parameters of the queries (part 0) or keys (part 1) alone.
  static NormRotaryCase::Params part_of(const Params& p, int part) {
    NormRotaryCase::Params one{{p.batch, p.seq, part == 0 ? p.n_heads : p.n_kv_heads, p.head_dim}, p.pairing};
    one.rotary_dim = p.rotary_dim;
    one.weight = p.weights;
    one.offset = p.offset;
    return one;
  }
  static std::vector<Input> inputs(const Params& p) {
    const std::vector<Input> of_one = NormRotaryCase::inputs(part_of(p, 0));
    const Shape all{p.batch, p.seq, p.n_heads + 2 * p.n_kv_heads, p.head_dim};
    return {{.shape = all}, of_one[1], of_one[1], of_one[2], of_one[3]};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    const ops::NormedHeads heads = ops::norm_rotary_packed(
        in[0], p.n_heads, p.n_kv_heads, in[1], in[2], in[3], in[4], {},
        {.pairing = p.pairing, .rotary_dim = p.rotary_dim, .offset = p.offset, .positions = Tensor()});
    return {heads.q, heads.k, heads.v};
  }

  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    const auto heads_of = [&](int64_t first, int64_t count) {
      Array<S> some({p.batch, p.seq, count, p.head_dim});
      for (int64_t i = 0; i < some.numel(); ++i) {
        const int64_t token = i / p.head_dim / count;
        some[i] = in[0][token * in[0].dim(2) * p.head_dim + first * p.head_dim + i % (count * p.head_dim)];
      }
      return some;
    };
    const auto normed = [&](int part, const Array<S>& heads) {
      return NormRotaryCase::oracle<S>(part_of(p, part),
                                       {heads, in[1 + static_cast<size_t>(part)], in[3], in[4], {}})[0];
    };
    return {normed(0, heads_of(0, p.n_heads)), normed(1, heads_of(p.n_heads, p.n_kv_heads)),
            heads_of(p.n_heads + p.n_kv_heads, p.n_kv_heads)};
  }
};
LAMINA_OP_CASE(NormRotaryPackedCase);

}  // namespace
}  // namespace lamina::testing
