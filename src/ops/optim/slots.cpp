#include "lamina/ops/optim/slots.h"

#include <cmath>

#include "lamina/ops/launch.h"
#include "lamina/ops/optim/slots_kernel.h"

namespace lamina::ops {
namespace {

void check_like_param(const char* op, size_t index, const char* name, const Tensor& tensor, const Tensor& param) {
  LAMINA_CHECK(tensor.shape() == param.shape(), op, ": ", name, " of parameter ", index, " is ", tensor.shape(),
               ", the parameter is ", param.shape(), "; the shapes must be equal");
  LAMINA_CHECK(tensor.device() == param.device(), op, ": ", name, " of parameter ", index, " is on ", tensor.device(),
               ", the parameter on ", param.device(), "; move them together with to(device)");
}

void check_written_in_place(const char* op, size_t index, const char* name, const Tensor& tensor, DType dtype) {
  LAMINA_CHECK(tensor.dtype() == dtype, op, ": ", name, " of parameter ", index, " is ", tensor.dtype(), "; expected ",
               dtype);
  LAMINA_CHECK(tensor.is_contiguous(), op, ": ", name, " ", tensor.shape(), " of parameter ", index,
               " is a strided view; it is written in place and must be contiguous");
}

}  // namespace

void check_not_negative(const char* op, const char* name, double value) {
  LAMINA_CHECK(std::isfinite(value) && value >= 0, op, ": ", name, " is ", value, "; expected a finite number >= 0");
}

void check_fraction(const char* op, const char* name, double value) {
  LAMINA_CHECK(value >= 0 && value < 1, op, ": ", name, " is ", value, "; expected a number in [0, 1)");
}

void check_slot(const char* op, size_t index, ParamSlot& slot) {
  LAMINA_CHECK(slot.param.defined(), op, ": parameter ", index, " is undefined; pass a tensor");
  LAMINA_CHECK(slot.grad.defined(), op, ": parameter ", index,
               " has no gradient; run backward first, or leave the parameter out of this step");
  const DType dtype = slot.param.dtype();
  LAMINA_CHECK(is_floating(dtype), op, ": parameter ", index, " is ", dtype, "; expected f32, f64, bf16 or f16");
  check_written_in_place(op, index, "param", slot.param, dtype);
  check_like_param(op, index, "grad", slot.grad, slot.param);
  LAMINA_CHECK(is_floating(slot.grad.dtype()) && (slot.grad.dtype() == DType::f64) == (dtype == DType::f64), op,
               ": grad of parameter ", index, " is ", slot.grad.dtype(), ", the parameter is ", dtype,
               "; expected f64 for f64, else f32, bf16 or f16");
  if (slot.master.defined()) {
    LAMINA_CHECK(size_of(dtype) == 2, op, ": parameter ", index, " is ", dtype,
                 " and has a master copy; only bf16 and f16 parameters have one");
    check_like_param(op, index, "master", slot.master, slot.param);
    check_written_in_place(op, index, "master", slot.master, DType::f32);
  }
  check_not_negative(op, "lr", slot.lr);
  check_not_negative(op, "weight_decay", slot.weight_decay);
  slot.grad = slot.grad.detach().contiguous();
}

void check_slot_state(const char* op, size_t index, const char* name, const Tensor& state, const ParamSlot& slot) {
  LAMINA_CHECK(state.defined(), op, ": ", name, " of parameter ", index, " is undefined; initialise it with zeros");
  check_like_param(op, index, name, state, slot.param);
  check_written_in_place(op, index, name, state, accumulation_type(slot.param.dtype()));
}

void mark_slot_written(const char* op, const ParamSlot& slot) {
  slot.param.mark_written(op);
  if (slot.master.defined()) slot.master.mark_written(op);
}

int64_t slot_bytes(const ParamSlot& slot, int64_t states) {
  const int64_t wide = slot.param.numel() * static_cast<int64_t>(size_of(accumulation_type(slot.param.dtype())));
  const int64_t weights = slot.master.defined() ? 2 * wide + slot.param.nbytes() : 2 * slot.param.nbytes();
  return weights + slot.grad.nbytes() + 2 * states * wide;
}

}  // namespace lamina::ops
