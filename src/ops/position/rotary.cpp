#include "lamina/ops/position/rotary.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/position/rotary_kernel.h"

namespace lamina::ops {
namespace {

constexpr const char* kOp = "rotary";

/// Positions as contiguous i64, in the form that the kernel takes; undefined if the offset suffices.
Tensor checked_positions(const char* op, const Tensor& x, int64_t rows, const RotaryOptions& options) {
  const int64_t seq = x.dim(1);
  if (!options.positions.defined()) {
    LAMINA_CHECK(options.offset >= 0 && options.offset <= rows && seq <= rows - options.offset, op, ": positions ",
                 options.offset, " to ", options.offset, " + ", seq, " are outside the tables of ", rows,
                 " positions; make longer tables with rotary_tables, or a shorter sequence");
    return {};
  }
  const Tensor& given = options.positions;
  LAMINA_CHECK(given.dtype() == DType::i64 || given.dtype() == DType::i32, op, ": positions is ", given.dtype(),
               "; expected i64 or i32");
  LAMINA_CHECK(given.shape() == Shape{seq} || (given.shape() == Shape{x.dim(0), seq}), op, ": positions is ",
               given.shape(), "; expected [", seq, "] or [", x.dim(0), ",", seq, "] for x ", x.shape());
  LAMINA_CHECK(options.offset == 0, op, ": both positions and the offset ", options.offset,
               " are given; add the offset to the positions");
  return given.to(DType::i64).contiguous();
}

Work work_of(const Tensor& x) { return {3 * x.numel(), 2 * x.nbytes()}; }

}  // namespace

RotaryArgs checked_rotary(const char* op, const Tensor& x, const Tensor& cos, const Tensor& sin,
                          const RotaryOptions& options) {
  check_floating(op, "x", x);
  LAMINA_CHECK(x.rank() == 4, op, ": x is ", x.shape(), "; expected [batch, seq, heads, head_dim]");
  const int64_t rotary_dim = checked_rotary_dim(op, cos, sin, options.rotary_dim, x.dim(3));
  check_same_device(op, {x, cos, sin, options.positions});

  RotaryArgs args;
  args.cos = as_accumulation(cos, x.dtype());
  args.sin = as_accumulation(sin, x.dtype());
  args.positions = checked_positions(op, x, cos.dim(0), options);
  args.offset = options.offset;
  args.rotary_dim = rotary_dim;
  args.pairing = options.pairing;
  args.transposed = false;
  return args;
}

int64_t checked_rotary_dim(const char* op, const Tensor& cos, const Tensor& sin, int64_t rotary_dim, int64_t head_dim) {
  if (rotary_dim == 0) rotary_dim = head_dim;
  LAMINA_CHECK(rotary_dim >= 0 && rotary_dim <= head_dim && rotary_dim % 2 == 0, op, ": the rotary dimension is ",
               rotary_dim, "; expected an even number of at most head_dim = ", head_dim);
  check_floating(op, "cos", cos);
  check_floating(op, "sin", sin);
  LAMINA_CHECK(cos.rank() == 2 && (cos.dim(1) == rotary_dim || 2 * cos.dim(1) == rotary_dim), op, ": cos is ",
               cos.shape(), "; expected [positions, ", rotary_dim / 2, "] or [positions, ", rotary_dim,
               "] for a rotary dimension of ", rotary_dim);
  check_shape(op, "sin", sin, cos.shape());
  return rotary_dim;
}

Tensor rotary(const Tensor& x, const Tensor& cos, const Tensor& sin, const RotaryOptions& options) {
  RotaryArgs args = checked_rotary(kOp, x, cos, sin, options);
  args.x = x.strides()[3] == 1 ? x : x.contiguous();
  args.y = Tensor::empty(x.shape(), x.dtype(), x.device());
  LAMINA_LAUNCH(x.device(), work_of(x), rotary, args);

  Tensor y = args.y;
  args.x = args.y = Tensor();  // the tape keeps the tables, not x and y
  record(kOp, {x}, {y}, {args.cos, args.sin, args.positions}, [args](Backward& b) mutable {
    args.x = b.grad();
    args.y = Tensor::empty(args.x.shape(), args.x.dtype(), args.x.device());
    args.transposed = true;
    LAMINA_LAUNCH(args.x.device(), work_of(args.x), rotary, args);
    b.add(0, std::move(args.y));
    args.x = Tensor();
  });
  return y;
}

Tensor rotary_in_place(const Tensor& x, int64_t heads, const Tensor& cos, const Tensor& sin,
                       const RotaryOptions& options) {
  RotaryArgs args = checked_rotary(kOp, x, cos, sin, options);
  LAMINA_CHECK(heads >= 0 && heads <= x.dim(2), kOp, ": the first ", heads, " heads of x ", x.shape(),
               " were requested; expected at most ", x.dim(2));
  LAMINA_CHECK(x.is_contiguous(), kOp, ": x is overwritten and must be contiguous; use rotary() for a view");
  Tensor y = x.detach();
  y.mark_written(kOp);
  args.x = args.y = y.slice(2, 0, heads);
  LAMINA_LAUNCH(x.device(), work_of(args.x), rotary, args);

  args.x = args.y = Tensor();
  record(kOp, {x}, {y}, {args.cos, args.sin, args.positions}, [args, heads](Backward& b) mutable {
    Tensor dx = b.grad_to_overwrite();
    args.x = args.y = dx.slice(2, 0, heads);
    args.transposed = true;
    LAMINA_LAUNCH(dx.device(), work_of(args.x), rotary, args);
    args.x = args.y = Tensor();
    b.add(0, std::move(dx));
  });
  return y;
}

}  // namespace lamina::ops
