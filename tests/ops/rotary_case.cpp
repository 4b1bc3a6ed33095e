#include "ops/rotary_oracle.h"

namespace lamina::testing {
namespace {

using ops::RotaryPairing;

struct RotaryCase {
  static constexpr const char* name = "rotary";
  struct Params {
    Shape x;  // [batch, seq, heads, head_dim]
    RotaryPairing pairing = RotaryPairing::half_split;
    int64_t rotary_dim = 0;
    bool per_element = false;
    int64_t offset = 0;
    int positions_rank = 0;  // 0: position = offset + index
    DType position_type = DType::i64;
    int64_t in_place = -1;  // if >= 0: rotate the first `in_place` heads in place
  };

  static std::vector<Params> sweep() {
    const auto interleaved = RotaryPairing::interleaved;
    const auto split = RotaryPairing::half_split;
    return {{{2, 3, 2, 8}},
            {{1, 1, 1, 2}},
            {{1, 1, 1, 2}, interleaved},
            {{2, 5, 3, 64}, split, 0, false, 7},
            {{2, 5, 3, 64}, interleaved, 0, false, 7},
            {{2, 3, 2, 80}, split, 54, true},
            {{2, 3, 2, 80}, interleaved, 54, true},
            {{3, 4, 1, 6}, split, 0, false, 0, 1},
            {{3, 4, 1, 6}, split, 4, true, 0, 2, DType::i32},
            {{3, 4, 2, 7}, interleaved, 6, false, 0, 2},
            {{2, 4, 5, 128}, interleaved, 128, true, 1},
            {{0, 4, 2, 6}},
            {{2, 0, 2, 6}, interleaved},
            {{2, 3, 0, 6}},
            {{2, 3, 2, 0}},
            {{2, 67, 9, 34}, split, 34, false, 3},
            {{1, 130, 7, 48}, interleaved, 20, false, 0, 1},
            {{2, 5, 6, 64}, split, 0, false, 7, 0, DType::i64, 4},
            {{2, 5, 6, 64}, interleaved, 0, false, 0, 2, DType::i64, 4},
            {{2, 3, 5, 80}, split, 54, true, 0, 0, DType::i64, 2},  // the rotated halves are no multiple of a vector
            {{2, 3, 5, 34}, interleaved, 22, false, 0, 1, DType::i64, 5},
            {{2, 3, 5, 8}, split, 0, false, 0, 0, DType::i64, 0}};
  }
  static std::vector<Params> bench() {
    return {{{8, 1024, 12, 64}}, {{8, 1024, 12, 64}, RotaryPairing::interleaved}, {{1, 4096, 32, 128}}};
  }
  static std::string describe(const Params& p) {
    return str(p.x, p.pairing == RotaryPairing::half_split ? " half-split" : " interleaved",
               p.rotary_dim != 0 ? str(" of ", p.rotary_dim) : "", p.per_element ? " per element" : "",
               p.offset != 0 ? str(" offset ", p.offset) : "",
               p.positions_rank != 0 ? str(" positions of rank ", p.positions_rank) : "",
               p.in_place >= 0 ? str(" first ", p.in_place, " in place") : "");
  }
  static int64_t dim(const Params& p) { return p.rotary_dim != 0 ? p.rotary_dim : p.x[3]; }
  static int64_t rows(const Params& p) { return p.x[1] + p.offset + 3; }
  static std::vector<Input> inputs(const Params& p) {
    const Input table{.shape = {rows(p), p.per_element ? dim(p) : dim(p) / 2}, .differentiable = false};
    return {{.shape = p.x}, table, table, oracle_positions(p.positions_rank, p.x[0], p.x[1], rows(p), p.position_type)};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    const ops::RotaryOptions options{
        .pairing = p.pairing, .rotary_dim = p.rotary_dim, .offset = p.offset, .positions = in[3]};
    if (p.in_place >= 0) return {ops::rotary_in_place(in[0].clone(), p.in_place, in[1], in[2], options)};
    return {ops::rotary(in[0], in[1], in[2], options)};
  }

  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    const OracleTurn turn{p.pairing, dim(p), p.per_element};
    Array<S> y(p.x);
    for (int64_t i = 0; i < y.numel(); ++i) {
      const int64_t c = i % p.x[3];
      const int64_t token = i / p.x[3] / p.x[2];
      const bool left_out = p.in_place >= 0 && i / p.x[3] % p.x[2] >= p.in_place;
      const int64_t position = oracle_position(p.positions_rank, in[3], p.offset, token, p.x[1]);
      const auto element = [&](int64_t n) { return in[0][i - c + n]; };
      y[i] = left_out ? in[0][i] : turn.of(in[1], in[2], position, c, element);
    }
    return {y};
  }
};
LAMINA_OP_CASE(RotaryCase);

}  // namespace
}  // namespace lamina::testing
