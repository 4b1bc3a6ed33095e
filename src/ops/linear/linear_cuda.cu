// GEMMs by cuBLASLt; fused/few_rows_cuda.cu handles few rows. The bias is fused into the GEMM, as is gelu_tanh in bf16
// and f16. Other activations take a separate pass over the result.
//
// The gradient of an activation also takes a separate pass, which sums the columns for the bias gradient. It is
// memory-bound: a block takes a strip of columns and a range of rows, with as many ranges as give one wave of blocks; a
// thread has several rows in flight. The ranges are added in order. Without an activation, reduce_middle sums the
// columns before the GEMMs, because cuBLASLt's fused bias gradient uses a kernel that takes twice as long.
//
// If the preceding layer ends with gelu_tanh and its z is known, the GEMM that computes dx also multiplies by
// gelu_tanh'(z): the result is dz of that layer.

#include "lamina/ops/activation/activation.cuh"
#include "lamina/ops/activation/activation_kernel.h"
#include "lamina/ops/elementwise/reduce_kernel.h"
#include "lamina/ops/linear/gemm/gemm_cuda.h"
#include "lamina/ops/linear/linear_kernel.h"
#include "lamina/ops/linear/matmul_kernel.h"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers

/// A matrix operand. Its rows or its columns are contiguous.
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

constexpr int kLanes = 32;    // threads along the columns of a block, kWidth columns each
constexpr int kRows = 8;      // rows of a block at a time
constexpr int kRanges = 128;  // maximum number of row ranges

/// dz = dy · act'(z), and the column sums of dz over a range of rows. Threads are laid out as [kRows][kLanes].
template <class T, int kWidth, class Function>
__global__ void __launch_bounds__(kLanes* kRows, 4)
    activation_columns(int64_t rows, int64_t out, int64_t range, const T* z, const T* dy, T* dz, float* partial) {
  using S = Vec<T, kWidth>;
  constexpr int kRowsInFlight = 2;  // rows in flight per thread
  __shared__ float sums[kRows][kLanes * kWidth];
  const int64_t column = (blockIdx.x * int64_t{kLanes} + threadIdx.x) * kWidth;
  const int64_t begin = blockIdx.y * range;
  const int64_t end = min(rows, begin + range);
  float sum[kWidth] = {};
  for (int64_t first = begin + threadIdx.y; first < end && column < out; first += kRows * kRowsInFlight) {
    S in[kRowsInFlight];
    S before[kRowsInFlight];
#pragma unroll
    for (int n = 0; n < kRowsInFlight; ++n) {
      const int64_t at = (first + n * kRows) * out + column;
      if (first + n * kRows < end) {
        in[n] = *reinterpret_cast<const S*>(dy + at);
        before[n] = *reinterpret_cast<const S*>(z + at);
      }
    }
#pragma unroll
    for (int n = 0; n < kRowsInFlight; ++n) {
      const int64_t at = (first + n * kRows) * out + column;
      if (first + n * kRows < end) {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          const float slope = Function::both(to_float(before[n].values[j])).slope;
          const float value = to_float(in[n].values[j]) * slope;
          in[n].values[j] = from_float<T>(value);
          sum[j] += value;
        }
        store_vector_plain(dz + at, in[n]);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kWidth; ++j) sums[threadIdx.y][threadIdx.x * kWidth + j] = sum[j];
  __syncthreads();
  for (int i = threadIdx.y * kLanes + threadIdx.x; i < kLanes * kWidth; i += kLanes * kRows) {
    const int64_t at = blockIdx.x * int64_t{kLanes} * kWidth + i;
    if (at >= out) continue;
    float total = 0;
    for (int row = 0; row < kRows; ++row) total += sums[row][i];
    partial[blockIdx.y * out + at] = total;
  }
}

template <class T>
void activation_backward_of(const LinearActivationBackward& args) {
  const Device& device = args.dy.device();
  const int64_t rows = args.dy.dim(0);
  const int64_t out = args.dy.dim(1);
  Tensor partial;
  const auto launch = [&](auto kernel, int width) {
    const int64_t strips = (out + kLanes * width - 1) / (kLanes * width);
    int resident = 1;
    LAMINA_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kLanes * kRows, 0), "linear");
    const int64_t wave = static_cast<int64_t>(std::max(resident, 1)) * sm_count(device);
    const int64_t tasks = (rows + 4 * kRows - 1) / (4 * kRows);
    const int64_t ranges = std::clamp<int64_t>(std::min(wave / strips, tasks), 1, kRanges);
    const int64_t range = (rows + ranges - 1) / ranges;
    // Rounding up may leave the last ranges empty; leave those out.
    const int64_t used = (rows + range - 1) / range;
    partial = Tensor::empty({used, out}, DType::f32, device);
    const dim3 grid(static_cast<unsigned>(strips), static_cast<unsigned>(used));
    kernel<<<grid, dim3(kLanes, kRows), 0, stream_of(device)>>>(rows, out, range, device_data<T>(args.z),
                                                                device_data<T>(args.dy), device_data<T>(args.dz),
                                                                device_data<float>(partial));
  };
  constexpr int kPack = Pack<DeviceType<T>>::kSize;
  const auto packs = [&](const Tensor& tensor) {
    return !tensor.defined() || is_pack_aligned(device_data<T>(tensor), out);
  };
  visit_activation<DeviceType<T>>(args.activation, [&](auto function) {
    using F = decltype(function);
    if (packs(args.z) && packs(args.dy) && packs(args.dz)) {
      launch(activation_columns<DeviceType<T>, kPack, F>, kPack);
    } else {
      launch(activation_columns<DeviceType<T>, 1, F>, 1);
    }
  });
  check_launch("linear");
  reduce_middle(ReduceMiddle{partial, 1, partial.dim(0), out, 1.0, args.dbias});
}

/// z = sums + bias and y = act(z); a thread per element.
template <class T, class Function>
__global__ void finish_rows(int64_t count, int64_t out, const float* sums, const float* bias, T* z, T* y) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= count) return;
  float value = sums == nullptr ? 0.0F : sums[i];
  if (bias != nullptr) value += bias[i % out];
  if (z != nullptr) z[i] = from_float<T>(value);
  y[i] = from_float<T>(Function::both(value).value);
}

template <class T>
void finish(const LinearForward& args, const Tensor& sums) {
  const int64_t count = args.y.numel();
  const Tensor bias = args.bias.defined() ? args.bias.to(DType::f32) : Tensor();
  visit_activation<DeviceType<T>>(args.activation, [&](auto function) {
    finish_rows<DeviceType<T>, decltype(function)><<<blocks_for(count, 256), 256, 0, stream_of(args.y.device())>>>(
        count, args.y.dim(1), device_data<float>(sums), device_data<float>(bias), device_data<T>(args.z),
        device_data<T>(args.y));
  });
  check_launch("linear");
}

}  // namespace

void linear_by_gemm(const LinearForward& args) {
  const Device& device = args.x.device();
  // cuBLASLt kernels for odd widths round the product before they add the bias. That may change the result's sign, so
  // compute in f32 and add the bias afterwards.
  const bool wide = args.bias.defined() && args.y.dtype() != DType::f32 && args.y.dim(1) % 8 != 0;
  const bool fused = args.activation == Activation::gelu_tanh && args.y.dtype() != DType::f32 && !wide;
  const bool separate_activation = args.activation != Activation::none && !fused;
  const auto finish_from = [&](const Tensor& sums) {
    visit_floating("linear", args.y.dtype(), [&](auto tag) { finish<typename decltype(tag)::type>(args, sums); });
  };
  if (args.x.dim(1) == 0) return finish_from(Tensor());
  const Tensor target = wide                                      ? Tensor::empty(args.y.shape(), DType::f32, device)
                        : separate_activation && args.z.defined() ? args.z
                                                                  : args.y;
  const Tensor weight = args.weight.to(args.x.dtype());
  const Tensor bias = args.bias.defined() && !wide ? args.bias.to(args.y.dtype()) : Tensor();
  Product p;
  p.m = args.x.dim(0);
  p.n = args.y.dim(1);
  p.k = args.x.dim(1);
  p.type = args.x.dtype();
  set_a(p, operand(args.x), false);
  set_b(p, operand(weight), true);
  p.c_type = target.dtype();
  p.c = target.raw();
  p.ldc = p.n;
  p.bias = bias.defined() ? bias.raw() : nullptr;
  p.gelu_tanh = fused;
  p.pre_activation = fused && args.z.defined() ? args.z.raw() : nullptr;
  product(device, p);
  if (wide) return finish_from(target);
  if (separate_activation) activation_forward(target, args.activation, args.y);
}

void linear_activation_backward(const LinearActivationBackward& args) {
  if (args.dy.dim(1) == 0) return;
  if (args.dy.dim(0) == 0) {
    if (args.dbias.defined()) Tensor(args.dbias).fill_(0.0);
    return;
  }
  if (!args.dbias.defined()) return activation_backward(args.z, args.dy, args.activation, args.dz);
  if (args.activation == Activation::none) {
    return reduce_middle(ReduceMiddle{args.dy, 1, args.dy.dim(0), args.dy.dim(1), 1.0, args.dbias});
  }
  visit_floating("linear", args.dy.dtype(),
                 [&](auto tag) { activation_backward_of<typename decltype(tag)::type>(args); });
}

namespace {

/// Computes dx · gelu_tanh'(z). Fused into the GEMM if cuBLASLt has a kernel for it.
void input_gradient(const Device& device, Product p, const LinearBackward& args) {
  if (p.type != DType::f32 && p.n % 8 == 0) {
    p.gelu_tanh_of = args.z.raw();
    if (try_product(device, p)) return;
    p.gelu_tanh_of = nullptr;
  }
  product(device, p);
  activation_backward(args.z, args.dx, Activation::gelu_tanh, args.dx);
}

void make_input_gradient(const LinearBackward& args, const Tensor& dz) {
  const Device& device = args.x.device();
  const Tensor weight = args.weight.to(args.x.dtype());
  Product p;
  p.m = args.x.dim(0);
  p.n = args.x.dim(1);
  p.k = args.weight.dim(0);
  p.type = args.x.dtype();
  set_a(p, operand(dz), false);
  set_b(p, operand(weight), false);
  p.c_type = args.dx.dtype();
  p.c = args.dx.raw();
  p.ldc = p.n;
  args.z.defined() ? input_gradient(device, p, args) : product(device, p);
}

Product weight_product(const LinearBackward& args, const Tensor& dz) {
  Product p;
  p.m = args.weight.dim(0);
  p.n = args.x.dim(1);
  p.k = args.x.dim(0);
  p.type = args.x.dtype();
  set_a(p, operand(dz), true);
  set_b(p, operand(args.x), false);
  p.c_type = args.dweight.dtype();
  p.c = args.dweight.raw();
  p.ldc = p.n;
  p.beta = args.accumulate ? 1.0F : 0.0F;
  return p;
}

}  // namespace

void linear_backward(const LinearBackward& args) {
  const Device& device = args.x.device();
  const bool makes_dx = args.dx.defined() && args.weight.dim(0) > 0;
  const bool makes_dweight = args.dweight.defined() && args.x.dim(0) > 0;
  const Tensor dz = args.dz.to(args.x.dtype());
  if (args.dx.defined() && !makes_dx) Tensor(args.dx).fill_(0.0);
  if (args.dweight.defined() && !makes_dweight && !args.accumulate) Tensor(args.dweight).fill_(0.0);
  if (!makes_dweight) {
    if (makes_dx) make_input_gradient(args, dz);
  } else if (makes_dx) {
    product_overlapped(device, weight_product(args, dz), [&] { make_input_gradient(args, dz); });
  } else {
    product(device, weight_product(args, dz));
  }
}

void batched_product(const BatchedProduct& args) {
  if (args.c.numel() == 0) return;
  if (args.k == 0) {
    if (!args.c_index.is_shared()) Tensor(args.c).fill_(0.0);
    return;
  }
  Product p;
  p.transpose_a = args.transpose_a;
  p.transpose_b = args.transpose_b;
  p.m = args.m;
  p.n = args.n;
  p.k = args.k;
  p.alpha = static_cast<float>(args.alpha);
  p.beta = args.c_index.is_shared() ? 1.0F : 0.0F;
  p.type = args.a.dtype();
  p.c_type = args.c.dtype();
  p.lda = args.transpose_a ? p.m : p.k;
  p.ldb = args.transpose_b ? p.k : p.n;
  p.ldc = p.n;
  const auto at = [](const Tensor& tensor, const BatchIndex& index, int64_t batch, int64_t elements) {
    return static_cast<char*>(tensor.raw()) + index(batch) * elements * static_cast<int64_t>(size_of(tensor.dtype()));
  };
  const bool own = !args.a_index.is_shared() && !args.b_index.is_shared() && !args.c_index.is_shared();
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
