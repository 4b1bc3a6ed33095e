// A chunk of rows at a time: its logits are multiplied out in f32, turned into their gradient in x's type, and
// multiplied on. A chunk is large enough that adding to dweight, which is read and written for each, costs little. Rows
// begin at whole 16 bytes whatever the vocabulary (50,257): products are several times slower otherwise. For types of
// 16 bits the classes too are filled up to a multiple of eight, with rows of zeros in a copy of the weight and columns
// of zeros in the gradient: a sum or a result of odd extent (65) goes to kernels that read single elements.

#include "lamina/ops/linear/gemm_cuda.h"
#include "lamina/ops/linear/linear.h"
#include "lamina/ops/loss/cross_entropy.h"
#include "lamina/ops/loss/cross_entropy_row.cuh"
#include "lamina/tensor/cuda/runtime.h"

namespace lamina::ops::cuda {
namespace {

struct Chunk {
  Tensor x;        ///< [rows, d]
  Tensor logits;   ///< [rows, V] f32, a slice of wider rows
  Tensor dlogits;  ///< [rows, V], x's type; the logits' own memory for f32
  int64_t first;
};

void multiply(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c, float beta) {
  if (a.dim(transpose_a ? 0 : 1) == 0) {
    Tensor(c).fill_(0.0);
    return;
  }
  Product p;
  p.transpose_a = transpose_a;
  p.transpose_b = transpose_b;
  p.m = c.dim(0);
  p.n = c.dim(1);
  p.k = a.dim(transpose_a ? 0 : 1);
  p.beta = beta;
  p.type = a.dtype();
  p.a = a.raw();
  p.lda = a.strides()[0];
  p.b = b.raw();
  p.ldb = b.strides()[0];
  p.c_type = c.dtype();
  p.c = c.raw();
  p.ldc = c.strides()[0];
  product(c.device(), p);
}

void losses_of(const LinearCrossEntropy& args, const Chunk& chunk, const Tensor& share) {
  const int64_t rows = chunk.x.dim(0);
  CrossEntropyRows work;
  work.logits = chunk.logits;
  work.targets = args.targets.slice(0, chunk.first, rows);
  work.bias = args.bias;
  work.options = args.options;
  work.losses = args.losses.slice(0, chunk.first, rows);
  work.share = share;
  const bool per_row = args.grad.defined() && args.options.reduction == Reduction::none;
  work.grad = per_row ? args.grad.slice(0, chunk.first, rows) : args.grad;
  work.dlogits = chunk.dlogits;
  cross_entropy_rows(work);
}

/// dbias (+)= Σ_rows dlogits
void add_bias_gradient(const LinearCrossEntropy& args, const Chunk& chunk) {
  LinearActivationBackward sums;
  sums.dy = chunk.dlogits.contiguous();
  sums.activation = Activation::none;
  sums.dbias = chunk.first == 0 ? args.dbias : Tensor::empty(args.dbias.shape(), args.dbias.dtype(), args.x.device());
  linear_activation_backward(sums);
  if (chunk.first != 0) Tensor(args.dbias).add_(sums.dbias);
}

/// The weight in x's type, with rows of zeros behind its own for types of 16 bits.
Tensor filled_up(const Tensor& weight, DType type, int64_t classes) {
  if (type == DType::f32 || classes == weight.dim(0)) return weight.to(type);
  Tensor filled = Tensor::empty({classes, weight.dim(1)}, type, weight.device());
  filled.slice(0, 0, weight.dim(0)).copy_(weight);
  filled.slice(0, weight.dim(0), classes - weight.dim(0)).fill_(0.0);
  return filled;
}

void fill_zeros(std::initializer_list<Tensor> tensors) {
  for (Tensor tensor : tensors) {
    if (tensor.defined()) tensor.fill_(0.0);
  }
}

}  // namespace

void linear_cross_entropy(const LinearCrossEntropy& args) {
  const Device& device = args.x.device();
  const int64_t rows = args.x.dim(0);
  const int64_t classes = args.weight.dim(0);
  const bool gradients = args.dx.defined() || args.dweight.defined() || args.dbias.defined();
  const Tensor share = Tensor::empty({1}, DType::f32, device);
  target_share(args.targets, classes, args.options, share);
  if (rows == 0) fill_zeros({args.dweight, args.dbias});
  const int64_t at_a_time = std::min(rows, kLossRowsOnGpu);
  const int64_t width = (classes + 7) / 8 * 8;
  const Tensor weight = filled_up(args.weight, args.x.dtype(), width);
  const int64_t extent = weight.dim(0);  // of the classes in products
  const Tensor logits = Tensor::empty({at_a_time, width}, DType::f32, device);
  const bool narrow = gradients && args.x.dtype() != DType::f32;
  // A bias adds up every row: its gradient is summed before the rows are rounded.
  const bool wide_first = narrow && args.dbias.defined();
  const Tensor dlogits = narrow ? Tensor::empty({at_a_time, width}, args.x.dtype(), device) : logits;
  if (narrow && width > classes) dlogits.slice(1, classes, width - classes).fill_(0.0);
  for (int64_t first = 0; first < rows; first += at_a_time) {
    const int64_t count = std::min(at_a_time, rows - first);
    const auto part = [&](const Tensor& of, int64_t columns) { return of.slice(0, 0, count).slice(1, 0, columns); };
    Chunk chunk{args.x.slice(0, first, count), part(logits, classes), {}, first};
    if (gradients) chunk.dlogits = part(wide_first ? logits : dlogits, classes);
    multiply(chunk.x, false, weight, true, part(logits, extent), 0);
    losses_of(args, chunk, share);
    if (args.dbias.defined()) add_bias_gradient(args, chunk);
    if (wide_first) part(dlogits, classes).copy_(chunk.logits);
    const Tensor dx = args.dx.defined() ? args.dx.slice(0, first, count) : Tensor();
    if (dx.defined()) multiply(part(dlogits, extent), false, weight, false, dx, 0);
    if (!args.dweight.defined()) continue;
    multiply(part(dlogits, classes), true, chunk.x, false, args.dweight, first == 0 ? 0.0F : 1.0F);
  }
  if (args.loss.defined()) add_losses(args.losses, args.targets, classes, args.options, args.loss);
}

}  // namespace lamina::ops::cuda
