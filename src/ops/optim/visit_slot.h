#pragma once

#include "lamina/ops/optim/slots_kernel.h"

namespace lamina::ops {

/// Calls fn(TypeTag<P>{}, TypeTag<G>{}) with the element types of a slot's parameter and gradient. The slot has been
/// checked.
template <class F>
void visit_slot(const ParamSlot& slot, const F& fn) {
  if (slot.param.dtype() == DType::f64) {
    fn(TypeTag<double>{}, TypeTag<double>{});
    return;
  }
  const auto with_grad = [&](auto param) {
    switch (slot.grad.dtype()) {
      case DType::bf16: fn(param, TypeTag<bf16>{}); break;
      case DType::f16: fn(param, TypeTag<f16>{}); break;
      default: fn(param, TypeTag<float>{});
    }
  };
  switch (slot.param.dtype()) {
    case DType::bf16: with_grad(TypeTag<bf16>{}); break;
    case DType::f16: with_grad(TypeTag<f16>{}); break;
    default: with_grad(TypeTag<float>{});
  }
}

/// Calls fn(param type tag, grad type tag, slot, begin, end) for ranges of elements of all slots, in parallel.
template <class Slot, class F>
void run_slots(const std::vector<Slot>& slots, const F& fn) {
  std::vector<int64_t> sizes;
  sizes.reserve(slots.size());
  for (const Slot& slot : slots) sizes.push_back(slot.param.numel());
  Chunks(sizes).run(slots[0].param.device().threads(), [&](size_t index, int64_t begin, int64_t end) {
    const Slot& slot = slots[index];
    visit_slot(slot, [&](auto param, auto grad) { fn(param, grad, slot, begin, end); });
  });
}

}  // namespace lamina::ops
