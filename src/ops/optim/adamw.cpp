#include "lamina/ops/optim/adamw.h"

#include "lamina/ops/launch.h"
#include "lamina/ops/optim/adamw_kernel.h"
#include "lamina/ops/optim/slots_kernel.h"

namespace lamina::ops {

void adamw(std::vector<AdamWSlot> slots, const AdamWOptions& options) {
  check_fraction("adamw", "beta1", options.beta1);
  check_fraction("adamw", "beta2", options.beta2);
  check_not_negative("adamw", "eps", options.eps);
  Work work;
  for (size_t i = 0; i < slots.size(); ++i) {
    AdamWSlot& slot = slots[i];
    check_slot("adamw", i, slot);
    check_slot_state("adamw", i, "m", slot.m, slot);
    check_slot_state("adamw", i, "v", slot.v, slot);
    LAMINA_CHECK(slot.step >= 1, "adamw: step of parameter ", i, " is ", slot.step, "; the first step is 1");
    check_same_device("adamw", {slots[0].param, slot.param});
    work.flops += 14 * slot.param.numel();
    work.bytes += slot_bytes(slot, 2);
  }
  if (slots.empty()) return;
  if (options.dynamics.defined()) {
    LAMINA_CHECK(slots[0].param.device().kind() == DeviceKind::cuda,
                 "adamw: dynamics were given, but the parameters are on ", slots[0].param.device(),
                 "; dynamics need a cuda device");
    check_dtype("adamw", "dynamics", options.dynamics, DType::f32);
    check_shape("adamw", "dynamics", options.dynamics, {4});
    check_same_device("adamw", {slots[0].param, options.dynamics});
  }
  for (const AdamWSlot& slot : slots) {
    mark_slot_written("adamw", slot);
    slot.m.mark_written("adamw");
    slot.v.mark_written("adamw");
  }
  LAMINA_LAUNCH(slots[0].param.device(), work, adamw_update, slots, options);
}

}  // namespace lamina::ops
