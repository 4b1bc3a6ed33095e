#include "lamina/ops/launch.h"

#include <cmath>

namespace lamina::ops {

void no_cuda(const char* kernel) {
  throw Error(
      str(kernel, ": the tensors are on a cuda device and this build has no CUDA; rebuild with nvcc installed"));
}

void check_floating(const char* op, const char* name, const Tensor& tensor) {
  LAMINA_CHECK(tensor.defined(), op, ": ", name, " is undefined; pass a tensor");
  LAMINA_CHECK(is_floating(tensor.dtype()), op, ": ", name, " is ", tensor.dtype(),
               "; expected f32, f64, bf16 or f16; convert with to(dtype)");
}

void check_dtype(const char* op, const char* name, const Tensor& tensor, DType expected) {
  LAMINA_CHECK(tensor.defined(), op, ": ", name, " is undefined; pass a tensor");
  LAMINA_CHECK(tensor.dtype() == expected, op, ": ", name, " is ", tensor.dtype(), "; expected ", expected,
               "; convert with to(dtype)");
}

void check_shape(const char* op, const char* name, const Tensor& tensor, const Shape& expected) {
  LAMINA_CHECK(tensor.defined(), op, ": ", name, " is undefined; expected a tensor ", expected);
  LAMINA_CHECK(tensor.shape() == expected, op, ": ", name, " is ", tensor.shape(), "; expected ", expected,
               " to fit the other arguments");
}

void check_rank_at_least(const char* op, const char* name, const Tensor& tensor, int rank) {
  LAMINA_CHECK(tensor.defined(), op, ": ", name, " is undefined; pass a tensor");
  LAMINA_CHECK(tensor.rank() >= rank, op, ": ", name, " ", tensor.shape(), " has rank ", tensor.rank(),
               "; expected at least ", rank);
}

void check_same_device(const char* op, std::initializer_list<Tensor> tensors) {
  const Tensor* first = nullptr;
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    if (first == nullptr) first = &tensor;
    const bool one_gpu =
        tensor.device().kind() == first->device().kind() && tensor.device().index() == first->device().index();
    LAMINA_CHECK(
        tensor.device() == first->device(), op, ": one argument is on ", first->device(), ", another on ",
        one_gpu ? str("a second handle of it, whose stream is not ordered with the first") : str(tensor.device()),
        "; move them together with to(device)");
  }
}

void check_finite(const char* op, const char* name, double value) {
  LAMINA_CHECK(std::isfinite(value), op, ": ", name, " is ", value, "; expected a finite number");
}

Tensor as_accumulation(const Tensor& tensor, DType like) {
  return tensor.detach().to(accumulation_type(like)).contiguous();
}

}  // namespace lamina::ops
