#include "lamina/ops/moe/dispatch.h"

#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct Choices {
  int64_t tokens;
  int64_t k;
  int64_t experts;
  int64_t capacity = 0;
  int64_t width = 0;
  DType index = DType::i64;

  std::string describe() const {
    return str(tokens, " tokens x ", width, ", ", k, " of ", experts, capacity > 0 ? str(", capacity ", capacity) : "");
  }
  /// Distinct experts per token, with uneven load.
  Input input() const {
    std::vector<double> values;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t j = 0; j < k; ++j) values.push_back(static_cast<double>((t * t / 3 + t + j) % experts));
    }
    return integers({tokens, k}, values, index);
  }
  int64_t slots() const { return capacity > 0 ? std::min(tokens * k, experts * capacity) : tokens * k; }

  /// Slot of every choice, ordered by expert; -1 if dropped.
  template <class S>
  std::vector<int64_t> slot_of(const Array<S>& indices, std::vector<int64_t>* offsets = nullptr) const {
    std::vector<int64_t> slots(static_cast<size_t>(tokens * k), -1);
    int64_t next = 0;
    for (int64_t e = 0; e < experts; ++e) {
      if (offsets != nullptr) offsets->push_back(next);
      int64_t taken = 0;
      for (int64_t i = 0; i < tokens * k; ++i) {
        if (value_of(indices[i]) != static_cast<double>(e)) continue;
        if (capacity == 0 || taken < capacity) slots[static_cast<size_t>(i)] = next++;
        ++taken;
      }
    }
    if (offsets != nullptr) offsets->push_back(next);
    return slots;
  }
};

std::vector<Choices> choices_sweep() {
  return {{5, 2, 4, 0, 7}, {1, 1, 1, 0, 1},    {0, 2, 3, 0, 5},     {9, 3, 5, 2, 33, DType::i32}, {64, 2, 8, 4, 16},
          {6, 2, 9, 0, 0}, {700, 4, 16, 0, 3}, {40, 1, 3, 100, 65}, {2100, 2, 6, 650, 2}};
}

struct PlanDispatchCase {
  static constexpr const char* name = "plan_dispatch";
  static constexpr bool kBackward = false;
  using Params = Choices;
  static std::vector<DType> dtypes() { return {DType::f32}; }
  static std::vector<Params> sweep() { return choices_sweep(); }
  static std::vector<Params> bench() { return {{16384, 8, 64}}; }
  static std::string describe(const Params& p) { return p.describe(); }
  static std::vector<Input> inputs(const Params& p) { return {p.input()}; }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    const auto plan = ops::plan_dispatch(in[0], p.experts, p.capacity);
    return {plan.offsets, plan.slot_of, plan.choice, plan.kept, plan.dropped};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    std::vector<int64_t> starts;
    const auto slots = p.slot_of(in[0], &starts);
    Array<S> offsets({p.experts + 1});
    for (int64_t e = 0; e <= p.experts; ++e) offsets[e] = S(starts[static_cast<size_t>(e)]);
    Array<S> slot_of({p.tokens, p.k});
    Array<S> choice({p.slots()});
    Array<S> kept({p.tokens, p.k});
    Array<S> dropped(Shape{1});
    for (int64_t i = 0; i < p.slots(); ++i) choice[i] = S(-1);
    for (int64_t i = 0; i < p.tokens * p.k; ++i) {
      const int64_t slot = slots[static_cast<size_t>(i)];
      slot_of[i] = S(slot);
      kept[i] = S(slot >= 0 ? 1 : 0);
      if (slot >= 0) choice[slot] = S(i);
      if (slot < 0) dropped[0] += S(1);
    }
    return {offsets, slot_of, choice, kept, dropped};
  }
};
LAMINA_OP_CASE(PlanDispatchCase);

struct DispatchCase {
  static constexpr const char* name = "dispatch";
  using Params = Choices;
  static std::vector<Params> sweep() { return choices_sweep(); }
  static std::vector<Params> bench() { return {{8192, 2, 8, 0, 1024}}; }
  static std::string describe(const Params& p) { return p.describe(); }
  static std::vector<Input> inputs(const Params& p) { return {{.shape = {p.tokens, p.width}}, p.input()}; }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::dispatch(in[0], ops::plan_dispatch(in[1], p.experts, p.capacity))};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    const auto slots = p.slot_of(in[1]);
    Array<S> y({p.slots(), p.width});
    for (int64_t i = 0; i < p.tokens * p.k; ++i) {
      const int64_t slot = slots[static_cast<size_t>(i)];
      for (int64_t c = 0; slot >= 0 && c < p.width; ++c) y[slot * p.width + c] = in[0][i / p.k * p.width + c];
    }
    return {y};
  }
};
LAMINA_OP_CASE(DispatchCase);

struct CombineCase {
  static constexpr const char* name = "combine";
  using Params = Choices;
  static std::vector<Params> sweep() { return choices_sweep(); }
  static std::vector<Params> bench() { return {{8192, 2, 8, 0, 1024}}; }
  static std::string describe(const Params& p) { return p.describe(); }
  static std::vector<Input> inputs(const Params& p) {
    return {{.shape = {p.slots(), p.width}}, {.shape = {p.tokens, p.k}, .low = 0, .high = 1}, p.input()};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::combine(in[0], in[1], ops::plan_dispatch(in[2], p.experts, p.capacity))};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    const auto slots = p.slot_of(in[2]);
    Array<S> y({p.tokens, p.width});
    for (int64_t i = 0; i < p.tokens * p.k; ++i) {
      const int64_t slot = slots[static_cast<size_t>(i)];
      for (int64_t c = 0; slot >= 0 && c < p.width; ++c) {
        y[i / p.k * p.width + c] += in[1][i] * in[0][slot * p.width + c];
      }
    }
    return {y};
  }
};
LAMINA_OP_CASE(CombineCase);

}  // namespace
}  // namespace lamina::testing
