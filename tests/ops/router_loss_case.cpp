#include "lamina/ops/moe/router_loss.h"

#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct BalanceLossCase {
  static constexpr const char* name = "balance_loss";
  struct Params {
    int64_t tokens;
    int64_t experts;
    int64_t k;
    DType index = DType::i64;
  };
  static std::vector<Params> sweep() {
    return {{7, 5, 1}, {1, 1, 1}, {0, 4, 2}, {33, 8, 2, DType::i32}, {300, 67, 6}, {5, 16, 3}};
  }
  static std::vector<Params> bench() { return {{8192, 256, 8}}; }
  static std::string describe(const Params& p) { return str(p.tokens, " tokens, ", p.k, " of ", p.experts); }
  static std::vector<Input> inputs(const Params& p) {
    std::vector<double> choices;
    for (int64_t i = 0; i < p.tokens * p.k; ++i) choices.push_back(static_cast<double>((i * i + 3 * i) % p.experts));
    return {{.shape = {p.tokens, p.experts}, .low = -2, .high = 2}, integers({p.tokens, p.k}, choices, p.index)};
  }
  static std::vector<Tensor> run(const Params&, const std::vector<Tensor>& in) {
    return {ops::balance_loss(in[0], in[1])};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    using std::exp;
    Array<S> loss(Shape{1});
    for (int64_t e = 0; e < p.experts && p.tokens > 0; ++e) {
      S mean = 0;
      for (int64_t t = 0; t < p.tokens; ++t) {
        S sum = 0;
        for (int64_t i = 0; i < p.experts; ++i) sum += exp(in[0][t * p.experts + i]);
        mean += exp(in[0][t * p.experts + e]) / sum / S(p.tokens);
      }
      double chosen = 0;
      for (int64_t i = 0; i < p.tokens * p.k; ++i) chosen += value_of(in[1][i]) == static_cast<double>(e) ? 1 : 0;
      loss[0] += S(p.experts) * S(chosen / static_cast<double>(p.tokens * p.k)) * mean;
    }
    return {loss};
  }
};
LAMINA_OP_CASE(BalanceLossCase);

struct RouterZLossCase {
  static constexpr const char* name = "router_z_loss";
  struct Params {
    int64_t tokens;
    int64_t experts;
  };
  static std::vector<Params> sweep() { return {{7, 5}, {1, 1}, {0, 4}, {33, 8}, {300, 67}}; }
  static std::vector<Params> bench() { return {{8192, 256}}; }
  static std::string describe(const Params& p) { return str(p.tokens, " tokens, ", p.experts, " experts"); }
  static std::vector<Input> inputs(const Params& p) { return {{.shape = {p.tokens, p.experts}, .low = -2, .high = 2}}; }
  static std::vector<Tensor> run(const Params&, const std::vector<Tensor>& in) { return {ops::router_z_loss(in[0])}; }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    using std::exp;
    using std::log;
    Array<S> loss(Shape{1});
    for (int64_t t = 0; t < p.tokens; ++t) {
      S sum = 0;
      for (int64_t i = 0; i < p.experts; ++i) sum += exp(in[0][t * p.experts + i]);
      loss[0] += log(sum) * log(sum) / S(p.tokens);
    }
    return {loss};
  }
};
LAMINA_OP_CASE(RouterZLossCase);

}  // namespace
}  // namespace lamina::testing
