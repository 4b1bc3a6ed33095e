#include "lamina/ops/elementwise/scatter_rows.h"

#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct ScatterRowsCase {
  static constexpr const char* name = "scatter_rows_";
  static constexpr bool kBackward = false;
  struct Params {
    int64_t slots, rows, width;
  };
  static std::vector<Params> sweep() { return {{1, 1, 1}, {4, 0, 3}, {5, 5, 7}, {9, 4, 64}, {40, 33, 1025}}; }
  static std::vector<Params> bench() { return {{256, 256, 32768}}; }
  static std::string describe(const Params& p) { return str("slots", p.slots, "_rows", p.rows, "_width", p.width); }
  /// Distinct slots in an order that is not ascending.
  static int64_t slot_of(const Params& p, int64_t row) { return (p.slots - 1 - row + p.slots / 2) % p.slots; }
  static std::vector<Input> inputs(const Params& p) {
    std::vector<double> slots;
    for (int64_t row = 0; row < p.rows; ++row) slots.push_back(static_cast<double>(slot_of(p, row)));
    return {{.shape = {p.slots, p.width}}, integers({p.rows}, slots), {.shape = {p.rows, p.width}}};
  }
  static std::vector<Tensor> run(const Params& /*p*/, const std::vector<Tensor>& in) {
    const Tensor table = in[0].clone();
    ops::scatter_rows_(table, in[1], in[2]);
    return {table};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Array<S> table = in[0];
    for (int64_t row = 0; row < p.rows; ++row) {
      for (int64_t c = 0; c < p.width; ++c) table[slot_of(p, row) * p.width + c] = in[2][row * p.width + c];
    }
    return {table};
  }
};
LAMINA_OP_CASE(ScatterRowsCase);

}  // namespace
}  // namespace lamina::testing
