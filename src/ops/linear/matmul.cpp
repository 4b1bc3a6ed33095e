#include "lamina/ops/linear/matmul_kernel.h"

#include <cmath>

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/linear/gemm.h"

namespace lamina::ops {
namespace {

/// Maps a batch of a to the matrix of b that it uses.
BatchIndex shared_index(const Tensor& a, const Tensor& b) {
  const int leading = a.rank() - 2;
  const int missing = a.rank() - b.rank();
  LAMINA_CHECK(missing >= 0, "matmul: b ", b.shape(), " has more dimensions than a ", a.shape(),
               "; give a the batch dimensions");
  Shape batches;
  Shape shared;
  for (int axis = 0; axis < leading; ++axis) {
    const int64_t extent = axis < missing ? 1 : b.dim(axis - missing);
    LAMINA_CHECK(extent == a.dim(axis) || extent == 1, "matmul: b ", b.shape(), " does not fit a ", a.shape(),
                 ": a batch dimension of b must be 1 or that of a; expected ", a.dim(axis), " at axis ", axis);
    batches.push_back(a.dim(axis));
    shared.push_back(extent);
  }
  return {batches, shared};
}

Work product_work(const BatchedProduct& p) {
  return {2 * p.batch * p.m * p.n * p.k, p.a.nbytes() + p.b.nbytes() + p.c.nbytes()};
}

/// The gradient of a, in a's layout: alpha · dc · op(b)ᵀ, transposed if a was.
Tensor gradient_of_a(const BatchedProduct& forward, const Tensor& dc, const Shape& shape) {
  BatchedProduct p;
  p.batch = forward.batch;
  p.alpha = forward.alpha;
  p.c = Tensor::empty(shape, dc.dtype(), dc.device());
  if (!forward.transpose_a) {
    p.a = dc, p.b = forward.b, p.b_index = forward.b_index;
    p.transpose_b = !forward.transpose_b;
    p.m = forward.m, p.n = forward.k, p.k = forward.n;
  } else {
    p.a = forward.b, p.a_index = forward.b_index, p.b = dc;
    p.transpose_a = forward.transpose_b;
    p.transpose_b = true;
    p.m = forward.k, p.n = forward.m, p.k = forward.n;
  }
  LAMINA_LAUNCH(dc.device(), product_work(p), batched_product, p);
  return p.c;
}

/// The gradient of b, in b's layout: alpha · op(a)ᵀ · dc, transposed if b was, summed over the batches that share a
/// matrix.
Tensor gradient_of_b(const BatchedProduct& forward, const Tensor& dc, const Shape& shape) {
  BatchedProduct p;
  p.batch = forward.batch;
  p.alpha = forward.alpha;
  p.c_index = forward.b_index;
  const DType type = !p.c_index.is_shared() ? dc.dtype() : accumulation_type(dc.dtype());
  p.c = !p.c_index.is_shared() ? Tensor::empty(shape, type, dc.device()) : Tensor::zeros(shape, type, dc.device());
  if (!forward.transpose_b) {
    p.a = forward.a, p.b = dc;
    p.transpose_a = !forward.transpose_a;
    p.m = forward.k, p.n = forward.n, p.k = forward.m;
  } else {
    p.a = dc, p.b = forward.a;
    p.transpose_a = true;
    p.transpose_b = forward.transpose_a;
    p.m = forward.n, p.n = forward.k, p.k = forward.m;
  }
  LAMINA_LAUNCH(dc.device(), product_work(p), batched_product, p);
  return p.c;
}

void check_arguments(const Tensor& a, const Tensor& b, const MatmulOptions& options) {
  check_floating("matmul", "a", a);
  check_dtype("matmul", "b", b, a.dtype());
  check_rank_at_least("matmul", "a", a, 2);
  check_rank_at_least("matmul", "b", b, 2);
  check_same_device("matmul", {a, b});
  check_finite("matmul", "alpha", options.alpha);
  const int64_t k = a.dim(options.transpose_a ? -2 : -1);
  LAMINA_CHECK(b.dim(options.transpose_b ? -1 : -2) == k, "matmul: op(a) of a ", a.shape(), " has ", k,
               " columns and op(b) of b ", b.shape(), " has ", b.dim(options.transpose_b ? -1 : -2),
               " rows; they must be equal: check the shapes and the transposes");
}

}  // namespace

BatchIndex::BatchIndex(const Shape& batches, const Shape& shared)
    : batches_(batches), shared_(shared), is_shared_(!(batches == shared)) {}

int64_t BatchIndex::operator()(int64_t batch) const {
  if (!is_shared_) return batch;
  int64_t stride = 1;
  int64_t at = 0;
  for (int axis = batches_.rank() - 1; axis >= 0; --axis) {
    if (shared_[axis] != 1) at += batch % batches_[axis] * stride;
    batch /= batches_[axis];
    stride *= shared_[axis];
  }
  return at;
}

Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options) {
  check_arguments(a, b, options);
  BatchedProduct p;
  p.b_index = shared_index(a, b);
  p.a = a.detach().contiguous();
  p.b = b.detach().contiguous();
  p.transpose_a = options.transpose_a;
  p.transpose_b = options.transpose_b;
  p.m = a.dim(options.transpose_a ? -1 : -2);
  p.n = b.dim(options.transpose_b ? -2 : -1);
  p.k = a.dim(options.transpose_a ? -2 : -1);
  p.alpha = options.alpha;
  p.batch = 1;
  for (int axis = 0; axis < a.rank() - 2; ++axis) p.batch *= a.dim(axis);
  Shape shape = a.shape();
  shape[-2] = p.m;
  shape[-1] = p.n;
  p.c = Tensor::empty(shape, a.dtype(), a.device());
  LAMINA_LAUNCH(a.device(), product_work(p), batched_product, p);

  Tensor c = p.c;
  const std::vector<Tensor> saved{p.a, p.b};
  p.a = p.b = p.c = {};  // the tape keeps only `saved`
  record("matmul", {a, b}, {c}, saved, [forward = p, a_shape = a.shape(), b_shape = b.shape()](Backward& back) mutable {
    forward.a = back.saved(0);
    forward.b = back.saved(1);
    const Tensor dc = back.grad(0);
    if (back.needs(0)) back.add(0, gradient_of_a(forward, dc, a_shape));
    if (back.needs(1)) back.add(1, gradient_of_b(forward, dc, b_shape));
  });
  return c;
}

namespace cpu {
namespace {

template <class T>
void multiply(const Threads& threads, const BatchedProduct& args, int64_t batch) {
  const auto at = [](const Tensor& tensor, int64_t matrix, int64_t elements) -> void* {
    if (elements == 0) return nullptr;
    return static_cast<char*>(tensor.raw()) + matrix * elements * static_cast<int64_t>(size_of(tensor.dtype()));
  };
  FusedGemm<T> p;
  p.m = args.m;
  p.n = args.n;
  p.k = args.k;
  p.alpha = static_cast<T>(args.alpha);
  p.beta = args.c_index.is_shared() ? T{1} : T{0};
  p.a = {at(args.a, args.a_index(batch), p.m * p.k), args.a.dtype(), args.transpose_a ? p.m : p.k, args.transpose_a};
  p.b = {at(args.b, args.b_index(batch), p.k * p.n), args.b.dtype(), args.transpose_b ? p.k : p.n, args.transpose_b};
  p.kernel = product_kernel(args.a.device(), args.a.dtype());
  gemm_to(threads, p, at(args.c, args.c_index(batch), p.m * p.n), args.c.dtype(), p.n);
}

}  // namespace

void batched_product(const BatchedProduct& args) {
  if (args.c.numel() == 0) return;
  if (args.k == 0) {
    if (!args.c_index.is_shared()) Tensor(args.c).fill_(0.0);
    return;
  }
  constexpr int64_t kSmall = 1 << 22;  // multiplications; smaller matrices take one thread each
  const Threads& threads = args.c.device().threads();
  const auto one = [&](int64_t batch) {
    args.c.dtype() == DType::f64 ? multiply<double>(threads, args, batch) : multiply<float>(threads, args, batch);
  };
  const bool whole_tasks = !args.c_index.is_shared() && (args.m * args.n * args.k <= kSmall || args.batch >= 64);
  if (whole_tasks) {
    threads.tasks(args.batch, one);
  } else {
    for (int64_t batch = 0; batch < args.batch; ++batch) one(batch);
  }
}

}  // namespace cpu

}  // namespace lamina::ops
