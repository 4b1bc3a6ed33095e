// Copies, conversions, in-place sums and fills for any strides. Dimensions that are contiguous in both tensors are
// merged first. Contiguous copies of one type use cudaMemcpyAsync and contiguous conversions use 16-byte packs. All
// others use one thread per element, which finds its offsets by division (32-bit if the count allows).

#include "lamina/tensor/cuda/copy.h"

#include <algorithm>

#include "lamina/tensor/cuda/kernel.cuh"
#include "lamina/tensor/merged_dims.h"

namespace lamina::cuda {
namespace {

constexpr int kThreads = 256;

/// The dimensions of two tensors after merging, as a kernel argument.
struct Plan {
  int rank = 0;
  int64_t count = 0;
  int64_t extents[Shape::kMaxRank] = {};
  int64_t source[Shape::kMaxRank] = {};
  int64_t target[Shape::kMaxRank] = {};
};

__global__ void write_numbers(const int64_t* source, int64_t* targets, int64_t count, int64_t* turn) {
  grid_dependency_wait();
  int64_t* target = targets + *turn % 2 * count;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) target[i] = source[i];
  __syncthreads();
  if (threadIdx.x == 0) ++*turn;
}

Plan plan_of(const Tensor& source, const Tensor& target) {
  const cpu::MergedDims dims = cpu::merge_dimensions(source, target);
  Plan plan;
  plan.rank = dims.shape.rank();
  plan.count = target.numel();
  for (int axis = 0; axis < plan.rank; ++axis) {
    plan.extents[axis] = dims.shape[axis];
    plan.source[axis] = dims.source_strides[axis];
    plan.target[axis] = dims.target_strides[axis];
  }
  return plan;
}

bool dense(const Plan& plan) {
  return plan.rank == 0 || (plan.rank == 1 && (plan.extents[0] == 1 || (plan.source[0] == 1 && plan.target[0] == 1)));
}

struct Places {
  int64_t source;
  int64_t target;
};

template <class Index>
__device__ Places places(const Plan& plan, Index index) {
  Places result{0, 0};
  for (int axis = plan.rank - 1; axis > 0; --axis) {
    const Index extent = static_cast<Index>(plan.extents[axis]);
    const Index rest = index / extent;
    const Index at = index - rest * extent;
    result.source += at * plan.source[axis];
    result.target += at * plan.target[axis];
    index = rest;
  }
  if (plan.rank > 0) {
    result.source += index * plan.source[0];
    result.target += index * plan.target[0];
  }
  return result;
}

/// Same dtype: moves elements as units of 1, 2, 4, 8 or 16 bytes.
template <class Unit, class Index>
__global__ void move_units(Plan plan, const Unit* source, Unit* target) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < plan.count; i += int64_t{gridDim.x} * kThreads) {
    const Places at = places<Index>(plan, static_cast<Index>(i));
    target[at.target] = source[at.source];
  }
}

template <class Unit>
void move(const Device& device, const Plan& plan, const void* source, void* target) {
  const int blocks = blocks_for(plan.count, kThreads);
  if (plan.count < (int64_t{1} << 31)) {
    move_units<Unit, uint32_t><<<blocks, kThreads, 0, stream_of(device)>>>(plan, static_cast<const Unit*>(source),
                                                                           static_cast<Unit*>(target));
  } else {
    move_units<Unit, int64_t><<<blocks, kThreads, 0, stream_of(device)>>>(plan, static_cast<const Unit*>(source),
                                                                          static_cast<Unit*>(target));
  }
  check_launch("copy");
}

/// The plan in units of 16 bytes. count is 0 unless rows are contiguous in both tensors and everything is 16-byte
/// aligned.
Plan in_packs(Plan plan, const void* source, const void* target, int64_t per_pack) {
  const int last = plan.rank - 1;
  const auto whole = [&](int64_t value) { return value % per_pack == 0; };
  bool fits = plan.rank > 0 && plan.source[last] == 1 && plan.target[last] == 1 && whole(plan.extents[last]) &&
              reinterpret_cast<uintptr_t>(source) % 16 == 0 && reinterpret_cast<uintptr_t>(target) % 16 == 0;
  for (int axis = 0; axis < last; ++axis) fits = fits && whole(plan.source[axis]) && whole(plan.target[axis]);
  if (!fits) {
    plan.count = 0;
    return plan;
  }
  plan.extents[last] /= per_pack;
  for (int axis = 0; axis < last; ++axis) {
    plan.source[axis] /= per_pack;
    plan.target[axis] /= per_pack;
  }
  plan.count /= per_pack;
  return plan;
}

void copy_same_type(const Tensor& source, Tensor& target, const Plan& plan) {
  const Device& device = target.device();
  if (dense(plan)) {
    LAMINA_CUDA(cudaMemcpyAsync(target.raw(), source.raw(), static_cast<size_t>(target.nbytes()),
                                cudaMemcpyDeviceToDevice, stream_of(device)),
                "copy");
    return;
  }
  const size_t size = size_of(target.dtype());
  const Plan packs = in_packs(plan, source.raw(), target.raw(), static_cast<int64_t>(16 / size));
  if (packs.count > 0) return move<uint4>(device, packs, source.raw(), target.raw());
  switch (size) {
    case 1: return move<uint8_t>(device, plan, source.raw(), target.raw());
    case 2: return move<uint16_t>(device, plan, source.raw(), target.raw());
    case 4: return move<uint32_t>(device, plan, source.raw(), target.raw());
    default: return move<uint64_t>(device, plan, source.raw(), target.raw());
  }
}

template <class From, class To>
__global__ void convert_dense(int64_t packs, const From* source, To* target) {
  constexpr int kSize = 8;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < packs; i += int64_t{gridDim.x} * kThreads) {
    struct alignas(sizeof(From) * kSize > 16 ? 16 : sizeof(From) * kSize) In {
      From values[kSize];
    };
    struct alignas(sizeof(To) * kSize > 16 ? 16 : sizeof(To) * kSize) Out {
      To values[kSize];
    };
    const In in = reinterpret_cast<const In*>(source)[i];
    Out out;
#pragma unroll
    for (int j = 0; j < kSize; ++j) out.values[j] = from_float<To>(to_float(in.values[j]));
    reinterpret_cast<Out*>(target)[i] = out;
  }
}

/// A value of any dtype: an integer as int64, a floating-point value as double.
struct Number {
  int64_t whole;
  double real;
  bool is_whole;
};

__device__ Number read(const void* data, DType dtype, int64_t at) {
  switch (dtype) {
    case DType::f32: return {0, static_cast<const float*>(data)[at], false};
    case DType::f64: return {0, static_cast<const double*>(data)[at], false};
    case DType::bf16: return {0, to_float(static_cast<const __nv_bfloat16*>(data)[at]), false};
    case DType::f16: return {0, to_float(static_cast<const __half*>(data)[at]), false};
    case DType::i64: return {static_cast<const int64_t*>(data)[at], 0, true};
    case DType::i32: return {static_cast<const int32_t*>(data)[at], 0, true};
    default: return {static_cast<const uint8_t*>(data)[at], 0, true};
  }
}

/// Same rules as convert() in base/dtype.h: truncates fractions, clamps to the range, maps NaN to 0.
template <class To>
__device__ To whole_of(const Number& number) {
  if (number.is_whole) return static_cast<To>(number.whole);
  constexpr To kLow = std::numeric_limits<To>::min();
  constexpr To kHigh = std::numeric_limits<To>::max();
  const double above = 2.0 * static_cast<double>(kHigh / 2 + 1);
  if (!(number.real > static_cast<double>(kLow))) return number.real == number.real ? kLow : To{0};
  return number.real < above ? static_cast<To>(number.real) : kHigh;
}

__device__ void write(void* data, DType dtype, int64_t at, const Number& number) {
  const double real = number.is_whole ? static_cast<double>(number.whole) : number.real;
  const float single = number.is_whole ? static_cast<float>(number.whole) : static_cast<float>(number.real);
  switch (dtype) {
    case DType::f32: static_cast<float*>(data)[at] = single; break;
    case DType::f64: static_cast<double*>(data)[at] = real; break;
    case DType::bf16: static_cast<__nv_bfloat16*>(data)[at] = from_float<__nv_bfloat16>(single); break;
    case DType::f16: static_cast<__half*>(data)[at] = from_float<__half>(single); break;
    case DType::i64: static_cast<int64_t*>(data)[at] = whole_of<int64_t>(number); break;
    case DType::i32: static_cast<int32_t*>(data)[at] = whole_of<int32_t>(number); break;
    default: static_cast<uint8_t*>(data)[at] = whole_of<uint8_t>(number); break;
  }
}

__global__ void convert_any(Plan plan, const void* source, DType from, void* target, DType to) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < plan.count; i += int64_t{gridDim.x} * kThreads) {
    const Places at = places<int64_t>(plan, i);
    write(target, to, at.target, read(source, from, at.source));
  }
}

bool converts_in_packs(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

/// Whether both tensors are contiguous, 16-byte aligned, and of dtypes that the kernels convert eight at a time.
bool converts_in_packs_of_8(const Plan& plan, const Tensor& source, const Tensor& target) {
  const auto fits = [](const Tensor& tensor) {
    return converts_in_packs(tensor.dtype()) && reinterpret_cast<uintptr_t>(tensor.raw()) % 16 == 0;
  };
  return dense(plan) && plan.count % 8 == 0 && fits(source) && fits(target);
}

void convert(const Tensor& source, Tensor& target, const Plan& plan) {
  const Device& device = target.device();
  if (converts_in_packs_of_8(plan, source, target)) {
    visit_floating("copy", source.dtype(), [&](auto from) {
      visit_floating("copy", target.dtype(), [&](auto to) {
        using From = typename decltype(from)::type;
        using To = typename decltype(to)::type;
        if constexpr (!std::is_same_v<From, To>) {
          convert_dense<<<blocks_for(plan.count / 8, kThreads), kThreads, 0, stream_of(device)>>>(
              plan.count / 8, device_data<From>(source), device_data<To>(target));
        }
      });
    });
  } else {
    convert_any<<<blocks_for(plan.count, kThreads), kThreads, 0, stream_of(device)>>>(
        plan, source.raw(), source.dtype(), target.raw(), target.dtype());
  }
  check_launch("copy");
}

template <class From, class To>
__global__ void accumulate_dense(int64_t packs, const From* source, To* target) {
  constexpr int kSize = 8;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < packs; i += int64_t{gridDim.x} * kThreads) {
    struct alignas(16) In {
      From values[kSize];
    };
    struct alignas(16) Out {
      To values[kSize];
    };
    const In in = reinterpret_cast<const In*>(source)[i];
    Out out = reinterpret_cast<const Out*>(target)[i];
#pragma unroll
    for (int j = 0; j < kSize; ++j) out.values[j] = from_float<To>(to_float(out.values[j]) + to_float(in.values[j]));
    reinterpret_cast<Out*>(target)[i] = out;
  }
}

__global__ void accumulate_any(Plan plan, const void* source, DType from, void* target, DType to) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < plan.count; i += int64_t{gridDim.x} * kThreads) {
    const Places at = places<int64_t>(plan, i);
    const double term = read(source, from, at.source).real;
    const double sum = read(target, to, at.target).real;
    // Round once, in the type of the arithmetic, like the CPU.
    const double added =
        to == DType::f64 ? sum + term : static_cast<double>(static_cast<float>(sum) + static_cast<float>(term));
    write(target, to, at.target, {0, added, false});
  }
}

__global__ void fill_any(Plan plan, void* target, DType to, double value) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < plan.count; i += int64_t{gridDim.x} * kThreads) {
    write(target, to, places<int64_t>(plan, i).target, {0, value, false});
  }
}

}  // namespace

void copy(const Tensor& source, Tensor& target) {
  if (target.numel() == 0) return;
  const Plan plan = plan_of(source, target);
  if (source.dtype() == target.dtype()) {
    copy_same_type(source, target, plan);
  } else {
    convert(source, target, plan);
  }
}

void accumulate(const Tensor& source, Tensor& target) {
  if (target.numel() == 0) return;
  const Plan plan = plan_of(source, target);
  const Device& device = target.device();
  if (converts_in_packs_of_8(plan, source, target)) {
    visit_floating("add_", source.dtype(), [&](auto from) {
      visit_floating("add_", target.dtype(), [&](auto to) {
        accumulate_dense<<<blocks_for(plan.count / 8, kThreads), kThreads, 0, stream_of(device)>>>(
            plan.count / 8, device_data<typename decltype(from)::type>(source),
            device_data<typename decltype(to)::type>(target));
      });
    });
  } else {
    accumulate_any<<<blocks_for(plan.count, kThreads), kThreads, 0, stream_of(device)>>>(
        plan, source.raw(), source.dtype(), target.raw(), target.dtype());
  }
  check_launch("add_");
}

void fill(Tensor& target, double value) {
  if (target.numel() == 0) return;
  const Device& device = target.device();
  if (value == 0.0 && !std::signbit(value) && target.is_contiguous()) {
    LAMINA_CUDA(cudaMemsetAsync(target.raw(), 0, static_cast<size_t>(target.nbytes()), stream_of(device)), "fill_");
    return;
  }
  const Plan plan = plan_of(target, target);
  fill_any<<<blocks_for(plan.count, kThreads), kThreads, 0, stream_of(device)>>>(plan, target.raw(), target.dtype(),
                                                                                 value);
  check_launch("fill_");
}

void copy_from_host(const void* source, const Tensor& target) {
  if (target.numel() == 0) return;
  // cudaMemcpyAsync from pageable memory returns when the bytes are staged, so the caller may reuse the memory. A
  // captured graph would read the host memory at every replay, so it gets a copy of its own.
  const auto bytes = static_cast<size_t>(target.nbytes());
  source = captured_copy(target.device(), source, bytes);
  // Up to 64 KiB are staged at once. A larger copy waits for all earlier work of the CUDA stream, so the inputs of a
  // step are copied in pieces.
  constexpr size_t kStaged = size_t{64} << 10;
  constexpr size_t kMostInPieces = 16 * kStaged;
  const size_t piece = bytes <= kMostInPieces ? kStaged : bytes;
  for (size_t at = 0; at < bytes; at += piece) {
    LAMINA_CUDA(cudaMemcpyAsync(static_cast<char*>(target.raw()) + at, static_cast<const char*>(source) + at,
                                std::min(piece, bytes - at), cudaMemcpyHostToDevice, stream_of(target.device())),
                "copy to the GPU");
  }
}

void write_to_host(const Tensor& source, int64_t* targets, const Tensor& turn) {
  launch_dependent(write_numbers, dim3(1), dim3(kThreads), 0, source.device(),
                   static_cast<const int64_t*>(source.data<int64_t>()), targets, source.numel(), turn.data<int64_t>());
  check_launch("readback");
}

void copy_to_host(const Tensor& source, void* target) {
  if (source.numel() > 0) {
    LAMINA_CUDA(cudaMemcpyAsync(target, source.raw(), static_cast<size_t>(source.nbytes()), cudaMemcpyDeviceToHost,
                                stream_of(source.device())),
                "copy from the GPU");
  }
  source.device().synchronize();
}

}  // namespace lamina::cuda
