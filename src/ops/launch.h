#pragma once

#include "lamina/tensor/tensor.h"

#ifdef LAMINA_HAS_CUDA
#define LAMINA_LAUNCH_CUDA(kernel, ...) cuda::kernel(__VA_ARGS__)
#else
#define LAMINA_LAUNCH_CUDA(kernel, ...) ::lamina::ops::no_cuda(#kernel)
#endif

/// Adds the operator's work (FLOPs and bytes) to the device's counters and runs the kernel: cpu::kernel(args…) or
/// cuda::kernel(args…). On `meta` it only counts the work. If the build lacks the kernel for one of its devices,
/// linking fails.
#define LAMINA_LAUNCH(device, work, kernel, ...)                                       \
  do {                                                                                 \
    const ::lamina::Device& launch_device = (device);                                  \
    launch_device.add_work(work);                                                      \
    switch (launch_device.kind()) {                                                    \
      case ::lamina::DeviceKind::cpu: cpu::kernel(__VA_ARGS__); break;                 \
      case ::lamina::DeviceKind::cuda: LAMINA_LAUNCH_CUDA(kernel, __VA_ARGS__); break; \
      case ::lamina::DeviceKind::meta: break;                                          \
    }                                                                                  \
  } while (false)

namespace lamina::ops {

/// Converts an estimated floating-point count for Work to int64, with saturation.
inline int64_t whole(double count) { return count < 0x1p62 ? static_cast<int64_t>(count) : int64_t{1} << 62; }

/// Throws an Error: this build has no CUDA kernels.
[[noreturn]] void no_cuda(const char* kernel);

// Argument checks shared by operators. Each throws an Error that names the operator and the argument.

void check_floating(const char* op, const char* name, const Tensor& tensor);
void check_dtype(const char* op, const char* name, const Tensor& tensor, DType expected);
void check_shape(const char* op, const char* name, const Tensor& tensor, const Shape& expected);
void check_rank_at_least(const char* op, const char* name, const Tensor& tensor, int rank);
/// All defined tensors are on one device; meta cannot be mixed with others.
void check_same_device(const char* op, std::initializer_list<Tensor> tensors);
void check_finite(const char* op, const char* name, double value);

/// The tensor, contiguous and in the accumulation type of `like` (f32; f64 for f64). Kernels take small parameters such
/// as norm weights in this form.
Tensor as_accumulation(const Tensor& tensor, DType like);

}  // namespace lamina::ops
