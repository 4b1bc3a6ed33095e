// Processes a chunk of rows at a time: computes its logits in x's dtype, turns them into gradients in place, and
// multiplies these with weight and x. Chunks are large, so that the read-modify-write of dweight per chunk costs
// little.
//
// Rows of logits are padded to 16 bytes for every vocabulary size (such as 50,257), because unaligned GEMMs are several
// times slower. For 16-bit types the classes are also padded to a multiple of eight with zero rows in a copy of the
// weight, because GEMMs with an odd extent use scalar kernels. The logits and gradients of those classes stay zero.

#include "lamina/ops/elementwise/reduce_kernel.h"
#include "lamina/ops/linear/gemm/gemm_cuda.h"
#include "lamina/ops/loss/class_shard.cuh"
#include "lamina/ops/loss/cross_entropy_kernel.h"
#include "lamina/ops/loss/cross_entropy_row.cuh"
#include "lamina/tensor/cuda/runtime.h"

namespace lamina::ops::cuda {
namespace {

struct Chunk {
  Tensor x;       ///< [rows, d]
  Tensor logits;  ///< [rows, V] in x's dtype, a slice of padded rows; overwritten by their gradient
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

/// Computes the losses of a chunk and, with `gradients`, overwrites the logits with their gradients.
void take_rows(const LinearCrossEntropy& args, const Chunk& chunk, const Tensor& share, bool gradients) {
  if (args.shard.ranks != nullptr) return shard_rows(args, chunk.logits, chunk.first, share, gradients);
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
  if (gradients) work.dlogits = chunk.logits;
  cross_entropy_rows(work);
}

/// dbias = Σ_rows dlogits for the first chunk; later chunks add to it.
void add_bias_gradient(const LinearCrossEntropy& args, const Chunk& chunk) {
  const Tensor sums =
      chunk.first == 0 ? args.dbias : Tensor::empty(args.dbias.shape(), args.dbias.dtype(), args.x.device());
  const Tensor dlogits = chunk.logits.contiguous();
  reduce_middle(ReduceMiddle{dlogits, 1, dlogits.dim(0), dlogits.dim(1), 1.0, sums});
  if (chunk.first != 0) Tensor(args.dbias).add_(sums);
}

/// The weight in x's dtype, padded with zero rows for 16-bit types.
Tensor pad_classes(const Tensor& weight, DType type, int64_t classes) {
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
  const int64_t all_classes = args.shard.ranks == nullptr ? classes : args.shard.classes;
  target_share(args.targets, all_classes, args.options, share);
  if (rows == 0) fill_zeros({args.dweight, args.dbias});
  const int64_t at_a_time = std::min(rows, kLossRowsOnGpu);
  const int64_t width = (classes + 7) / 8 * 8;
  const Tensor weight = pad_classes(args.weight, args.x.dtype(), width);
  const int64_t extent = weight.dim(0);  // classes in the GEMMs, including padding
  const Tensor logits = Tensor::empty({at_a_time, width}, args.x.dtype(), device);
  for (int64_t first = 0; first < rows; first += at_a_time) {
    const int64_t count = std::min(at_a_time, rows - first);
    const auto columns = [&](int64_t n) { return logits.slice(0, 0, count).slice(1, 0, n); };
    const Chunk chunk{args.x.slice(0, first, count), columns(classes), first};
    multiply(chunk.x, false, weight, true, columns(extent), 0);
    take_rows(args, chunk, share, gradients);
    if (args.dbias.defined()) add_bias_gradient(args, chunk);
    const Tensor dx = args.dx.defined() ? args.dx.slice(0, first, count) : Tensor();
    if (dx.defined()) multiply(columns(extent), false, weight, false, dx, 0);
    if (!args.dweight.defined()) continue;
    multiply(chunk.logits, true, chunk.x, false, args.dweight, first == 0 ? 0.0F : 1.0F);
  }
  if (args.loss.defined()) add_losses(args.losses, args.targets, all_classes, args.options, args.loss);
}

}  // namespace lamina::ops::cuda
