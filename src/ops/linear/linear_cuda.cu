// Products by cuBLASLt; the bias goes with the product, and so does gelu_tanh for bf16 and f16. Other activations take
// one pass of their own over the finished product, and so does the gradient of every activation, which adds up the
// columns for the bias on the way: a block takes a strip of columns and a range of rows, and a second kernel adds the
// ranges in order.

#include "lamina/ops/activation/activation.cuh"
#include "lamina/ops/activation/activation.h"
#include "lamina/ops/linear/gemm_cuda.h"
#include "lamina/ops/linear/linear.h"
#include "lamina/ops/linear/matmul.h"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: what kernels share

/// A matrix as a product takes it: its rows or its columns are dense.
struct Operand {
  const void* data;
  int64_t ld;
  bool transposed;
};

Operand operand(const Tensor& matrix) {
  const Shape& strides = matrix.strides();
  if (strides[1] == 1 || matrix.dim(1) == 1) return {matrix.raw(), std::max(strides[0], matrix.dim(1)), false};
  return {matrix.raw(), std::max(strides[1], matrix.dim(0)), true};
}

void set_a(Product& p, const Operand& a, bool transpose) {
  p.a = a.data;
  p.lda = a.ld;
  p.transpose_a = a.transposed != transpose;
}
void set_b(Product& p, const Operand& b, bool transpose) {
  p.b = b.data;
  p.ldb = b.ld;
  p.transpose_b = b.transposed != transpose;
}

constexpr int kStrip = 32;   // columns of a block
constexpr int kRanges = 64;  // at most, of rows

/// dz = dy · act'(z), and the sums of the columns over a range of rows. Threads lie [8 rows][32 columns].
template <class T, class Function>
__global__ void activation_columns(int64_t rows, int64_t out, int64_t range, const T* z, const T* dy, T* dz,
                                   float* partial) {
  __shared__ float sums[8][kStrip];
  const int64_t column = blockIdx.x * int64_t{kStrip} + threadIdx.x;
  const int64_t begin = blockIdx.y * range;
  const int64_t end = min(rows, begin + range);
  float sum = 0;
  if (column < out) {
    for (int64_t row = begin + threadIdx.y; row < end; row += 8) {
      const int64_t at = row * out + column;
      float value = to_float(dy[at]);
      if (dz != nullptr) {
        value *= Function::both(to_float(z[at])).slope;
        dz[at] = from_float<T>(value);
      }
      sum += value;
    }
  }
  if (partial == nullptr) return;
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= out) return;
  for (int i = 1; i < 8; ++i) sum += sums[i][threadIdx.x];
  partial[blockIdx.y * out + column] = sum;
}

__global__ void add_ranges(int64_t ranges, int64_t out, const float* partial, float* total) {
  const int64_t column = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (column >= out) return;
  float sum = 0;
  for (int64_t i = 0; i < ranges; ++i) sum += partial[i * out + column];
  total[column] = sum;
}

template <class T>
void activation_backward_of(const LinearActivationBackward& args) {
  const Device& device = args.dy.device();
  const cudaStream_t stream = stream_of(device);
  const int64_t rows = args.dy.dim(0);
  const int64_t out = args.dy.dim(1);
  const int64_t range = std::max<int64_t>(64, (rows + kRanges - 1) / kRanges);
  const int64_t ranges = (rows + range - 1) / range;
  const Tensor partial = args.dbias.defined() ? Tensor::empty({ranges, out}, DType::f32, device) : Tensor();
  const dim3 grid(static_cast<unsigned>((out + kStrip - 1) / kStrip), static_cast<unsigned>(ranges));
  visit_activation<DeviceType<T>>(args.activation, [&](auto function) {
    activation_columns<DeviceType<T>, decltype(function)>
        <<<grid, dim3(kStrip, 8), 0, stream>>>(rows, out, range, device_data<T>(args.z), device_data<T>(args.dy),
                                               device_data<T>(args.dz), device_data<float>(partial));
  });
  check_launch("linear");
  if (!partial.defined()) return;
  add_ranges<<<blocks_for(out, 256), 256, 0, stream>>>(ranges, out, device_data<float>(partial),
                                                       device_data<float>(args.dbias));
  check_launch("linear");
}

/// act(bias) in every row: what is left where there is nothing to sum over.
void forward_of_nothing(const LinearForward& args, const Tensor& before) {
  Tensor rows = before;
  rows.fill_(0.0);
  if (args.bias.defined()) {
    const Tensor bias = args.bias.to(args.y.dtype());
    for (int64_t row = 0; row < rows.dim(0); ++row) rows.slice(0, row, 1).reshape({rows.dim(1)}).copy_(bias);
  }
}

}  // namespace

void linear_forward(const LinearForward& args) {
  if (args.y.numel() == 0) return;
  const Device& device = args.x.device();
  const bool fused = args.activation == Activation::gelu_tanh && args.y.dtype() != DType::f32;
  const bool apart = args.activation != Activation::none && !fused;
  const Tensor before = apart && args.z.defined() ? args.z : args.y;
  if (args.x.dim(1) == 0) {
    const Tensor target = args.z.defined() ? args.z : args.y;
    forward_of_nothing(args, target);
    if (args.activation != Activation::none) activation_forward(target, args.activation, args.y);
    return;
  }
  const Tensor weight = args.weight.to(args.x.dtype());
  const Tensor bias = args.bias.defined() ? args.bias.to(args.y.dtype()) : Tensor();
  Product p;
  p.m = args.x.dim(0);
  p.n = args.y.dim(1);
  p.k = args.x.dim(1);
  p.type = args.x.dtype();
  set_a(p, operand(args.x), false);
  set_b(p, operand(weight), true);
  p.c_type = args.y.dtype();
  p.c = before.raw();
  p.ldc = p.n;
  p.bias = bias.defined() ? bias.raw() : nullptr;
  p.gelu_tanh = fused;
  p.before = fused && args.z.defined() ? args.z.raw() : nullptr;
  product(device, p);
  if (apart) activation_forward(before, args.activation, args.y);
}

void linear_activation_backward(const LinearActivationBackward& args) {
  if (args.dy.dim(1) == 0) return;
  if (args.dy.dim(0) == 0) {
    if (args.dbias.defined()) Tensor(args.dbias).fill_(0.0);
    return;
  }
  visit_floating("linear", args.dy.dtype(),
                 [&](auto tag) { activation_backward_of<typename decltype(tag)::type>(args); });
}

void linear_backward(const LinearBackward& args) {
  const Device& device = args.x.device();
  const int64_t rows = args.x.dim(0);
  const int64_t in = args.x.dim(1);
  const int64_t out = args.weight.dim(0);
  const Tensor dz = args.dz.to(args.x.dtype());
  if (args.dx.defined() && out == 0) {
    Tensor(args.dx).fill_(0.0);
  } else if (args.dx.defined()) {
    const Tensor weight = args.weight.to(args.x.dtype());
    Product p;
    p.m = rows;
    p.n = in;
    p.k = out;
    p.type = args.x.dtype();
    set_a(p, operand(dz), false);
    set_b(p, operand(weight), false);
    p.c_type = args.dx.dtype();
    p.c = args.dx.raw();
    p.ldc = in;
    product(device, p);
  }
  if (!args.dweight.defined()) return;
  if (rows == 0) {
    if (!args.accumulate) Tensor(args.dweight).fill_(0.0);
    return;
  }
  Product p;
  p.m = out;
  p.n = in;
  p.k = rows;
  p.type = args.x.dtype();
  set_a(p, operand(dz), true);
  set_b(p, operand(args.x), false);
  p.c_type = args.dweight.dtype();
  p.c = args.dweight.raw();
  p.ldc = in;
  p.beta = args.accumulate ? 1.0F : 0.0F;
  product(device, p);
}

void batched_product(const BatchedProduct& args) {
  if (args.c.numel() == 0) return;
  if (args.k == 0) {
    if (args.c_index.empty()) Tensor(args.c).fill_(0.0);
    return;
  }
  Product p;
  p.transpose_a = args.transpose_a;
  p.transpose_b = args.transpose_b;
  p.m = args.m;
  p.n = args.n;
  p.k = args.k;
  p.alpha = static_cast<float>(args.alpha);
  p.beta = args.c_index.empty() ? 0.0F : 1.0F;
  p.type = args.a.dtype();
  p.c_type = args.c.dtype();
  p.lda = args.transpose_a ? p.m : p.k;
  p.ldb = args.transpose_b ? p.k : p.n;
  p.ldc = p.n;
  const auto at = [](const Tensor& tensor, const std::vector<int64_t>& index, int64_t batch, int64_t elements) {
    const int64_t matrix = index.empty() ? batch : index[static_cast<size_t>(batch)];
    return static_cast<char*>(tensor.raw()) + matrix * elements * static_cast<int64_t>(size_of(tensor.dtype()));
  };
  const bool own = args.a_index.empty() && args.b_index.empty() && args.c_index.empty();
  if (own) {
    p.batch = args.batch;
    p.stride_a = p.m * p.k;
    p.stride_b = p.k * p.n;
    p.stride_c = p.m * p.n;
  }
  for (int64_t batch = 0; batch < (own ? 1 : args.batch); ++batch) {
    p.a = at(args.a, args.a_index, batch, p.m * p.k);
    p.b = at(args.b, args.b_index, batch, p.k * p.n);
    p.c = at(args.c, args.c_index, batch, p.m * p.n);
    product(args.c.device(), p);
  }
}

}  // namespace lamina::ops::cuda
