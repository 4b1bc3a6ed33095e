#include "lamina/ops/optim/sgd.h"

#include "lamina/ops/launch.h"
#include "lamina/ops/optim/sgd_kernel.h"
#include "lamina/ops/optim/slots_kernel.h"

namespace lamina::ops {

void sgd(std::vector<SgdSlot> slots, const SgdOptions& options) {
  check_fraction("sgd", "momentum", options.momentum);
  LAMINA_CHECK(!options.nesterov || options.momentum > 0, "sgd: nesterov needs a momentum above 0; set momentum");
  const bool momentum = options.momentum > 0;
  Work work;
  for (size_t i = 0; i < slots.size(); ++i) {
    SgdSlot& slot = slots[i];
    check_slot("sgd", i, slot);
    if (momentum) check_slot_state("sgd", i, "momentum", slot.momentum, slot);
    check_same_device("sgd", {slots[0].param, slot.param});
    work.flops += (momentum ? 6 : 4) * slot.param.numel();
    work.bytes += slot_bytes(slot, momentum ? 1 : 0);
  }
  if (slots.empty()) return;
  for (const SgdSlot& slot : slots) {
    mark_slot_written("sgd", slot);
    if (momentum) slot.momentum.mark_written("sgd");
  }
  LAMINA_LAUNCH(slots[0].param.device(), work, sgd_update, slots, options);
}

}  // namespace lamina::ops
