#include "lamina/ops/moe/grouped_linear.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/linear/gemm.h"
#include "lamina/ops/moe/grouped_linear_kernel.h"

namespace lamina::ops {
namespace {

constexpr const char* kOp = "grouped_linear";

void check(const Tensor& x, const Tensor& weight, const Tensor& offsets, const Tensor& bias) {
  check_floating(kOp, "x", x);
  check_floating(kOp, "weight", weight);
  LAMINA_CHECK(x.rank() == 2 && weight.rank() == 3 && weight.dim(2) == x.dim(1), kOp, ": x is ", x.shape(),
               ", weight is ", weight.shape(), "; expected [slots, in] and [experts, out, in]");
  LAMINA_CHECK(offsets.defined() && (offsets.dtype() == DType::i32 || offsets.dtype() == DType::i64), kOp,
               ": offsets must be an i32 or i64 tensor; give the offsets of a dispatch plan");
  check_shape(kOp, "offsets", offsets, {weight.dim(0) + 1});
  if (bias.defined()) {
    check_floating(kOp, "bias", bias);
    check_shape(kOp, "bias", bias, {weight.dim(0), weight.dim(1)});
  }
  check_same_device(kOp, {x, weight, offsets, bias});
}

/// The dtype in which the kernels take x, weight and y: x's own dtype if they multiply it directly, else the
/// accumulation type.
DType operand_type(const Tensor& x) {
  const bool narrow = x.device().like() == DeviceKind::cuda || rounds_to_bf16(x.device(), x.dtype());
  return narrow ? x.dtype() : accumulation_type(x.dtype());
}

void run_backward(Backward& b) {
  GroupedLinearBackward back;
  back.x = b.saved(0);
  back.weight = b.saved(1);
  back.offsets = b.saved(2);
  const DType operand = back.x.dtype();
  const DType accumulate = accumulation_type(operand);
  back.dy = b.grad(0).to(operand);
  const Device& device = back.x.device();
  const int64_t experts = back.weight.dim(0);
  const int64_t out = back.weight.dim(1);
  if (b.needs(0)) back.dx = Tensor::empty(back.x.shape(), operand, device);
  if (b.needs(1)) {
    back.dweight = b.accumulator(1);
    back.accumulate = back.dweight.defined() && back.dweight.dtype() == accumulate && back.dweight.is_contiguous();
    if (!back.accumulate) back.dweight = Tensor::empty(back.weight.shape(), accumulate, device);
  }
  if (b.needs(2)) back.dbias = Tensor::empty({experts, out}, accumulate, device);
  const int64_t products = (b.needs(0) ? 1 : 0) + (b.needs(1) ? 1 : 0);
  LAMINA_LAUNCH(device,
                (Work{2 * products * back.dy.numel() * back.x.dim(1),
                      products * (back.x.nbytes() + back.dy.nbytes() + back.weight.nbytes())}),
                grouped_linear_backward, back);
  if (b.needs(0)) b.add(0, std::move(back.dx));
  if (b.needs(1) && !back.accumulate) b.add(1, std::move(back.dweight));
  if (b.needs(2)) b.add(2, std::move(back.dbias));
}

}  // namespace

Tensor grouped_linear(const Tensor& x, const Tensor& weight, const Tensor& offsets, const Tensor& bias) {
  check(x, weight, offsets, bias);
  const DType operand = operand_type(x);
  GroupedLinearForward args;
  args.x = x.detach().to(operand).contiguous();
  args.weight = weight.detach().to(operand).contiguous();
  args.offsets = offsets.to(DType::i64).contiguous();
  if (bias.defined()) args.bias = as_accumulation(bias, x.dtype());
  LAMINA_LAUNCH(x.device(), (Work{}), check_offsets, args.offsets, x.dim(0));
  args.y = Tensor::empty({x.dim(0), weight.dim(1)}, operand, x.device());
  LAMINA_LAUNCH(x.device(),
                (Work{2 * args.y.numel() * x.dim(1),
                      x.nbytes() + weight.nbytes() + args.y.numel() * static_cast<int64_t>(size_of(x.dtype()))}),
                grouped_linear_forward, args);
  Tensor y = args.y.to(x.dtype());
  record(kOp, {x, weight, bias}, {y}, {args.x, args.weight, args.offsets}, run_backward);
  return y;
}

}  // namespace lamina::ops
