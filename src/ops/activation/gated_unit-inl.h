// A gated unit for vectors of gates and ups, forward and backward.
#if defined(LAMINA_OPS_ACTIVATION_GATED_UNIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_ACTIVATION_GATED_UNIT_INL_H_
#undef LAMINA_OPS_ACTIVATION_GATED_UNIT_INL_H_
#else
#define LAMINA_OPS_ACTIVATION_GATED_UNIT_INL_H_
#endif

#include <hwy/highway.h>

#include "lamina/base/simd_activation-inl.h"
#include "lamina/ops/activation/gated_activation.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

template <class V>
struct GateUp {
  V gate;
  V up;
};

/// The GateOptions, broadcast to vectors of D.
template <class D, class Function>
struct GatedUnit {
  D d;
  hn::Vec<D> alpha, inverse_alpha, limit, offset;

  explicit GatedUnit(const GateOptions& options)
      : alpha(constant(d, options.alpha)),
        inverse_alpha(constant(d, 1.0 / options.alpha)),
        limit(constant(d, options.limit)),
        offset(constant(d, options.up_offset)) {}

  HWY_INLINE hn::Vec<D> forward(GateUp<hn::Vec<D>> in) const {
    const auto gate = hn::Min(limit, in.gate);
    const auto up = hn::Min(limit, hn::Max(hn::Neg(limit), in.up));
    const auto value = hn::Mul(Function::value(d, hn::Mul(alpha, gate)), inverse_alpha);
    return hn::Mul(value, hn::Add(up, offset));
  }

  HWY_INLINE GateUp<hn::Vec<D>> backward(GateUp<hn::Vec<D>> in, hn::Vec<D> dout) const {
    const auto gate = hn::Min(limit, in.gate);
    const auto up = hn::Min(limit, hn::Max(hn::Neg(limit), in.up));
    const auto f = Function::both(d, hn::Mul(alpha, gate));
    const auto dgate = hn::Mul(hn::Mul(dout, hn::Add(up, offset)), f.slope);
    const auto dup = hn::Mul(dout, hn::Mul(f.value, inverse_alpha));
    return {hn::IfThenZeroElse(hn::Gt(in.gate, limit), dgate), hn::IfThenZeroElse(hn::Gt(hn::Abs(in.up), limit), dup)};
  }
};

template <class F>
void visit_gate(Gate gate, F&& fn) {
  switch (gate) {
    case Gate::glu: return fn(Sigmoid{});
    case Gate::reglu: return fn(Relu{});
    case Gate::geglu: return fn(Gelu{});
    case Gate::geglu_tanh: return fn(GeluTanh{});
    case Gate::swiglu: return fn(Silu{});
    case Gate::liglu: return fn(Identity{});
  }
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
