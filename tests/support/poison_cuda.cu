// One thread block per SM occupies all shared memory and, with kHeld registers per thread, all registers.
#include <vector>

#include "lamina/tensor/cuda/kernel.cuh"
#include "lamina/tensor/tensor.h"
#include "support/poison.h"

namespace lamina::testing {
namespace {

constexpr int kThreads = 256;
constexpr int kHeld = 240;   // registers per thread; the limit is 255
constexpr int kBits = 0xff;  // fill byte: gives NaN in all floating-point types

/// `from` holds kHeld words of NaN. `never` is zero; the compiler cannot know that, so it keeps `held` in registers.
__global__ void __launch_bounds__(kThreads, 1)
    poison_kernel(const volatile uint32_t* from, const int* never, int shared_words, volatile uint32_t* to) {
  extern __shared__ uint32_t memory[];
  for (int i = static_cast<int>(threadIdx.x); i < shared_words; i += kThreads) memory[i] = 0xffffffffU;
  uint32_t held[kHeld];
#pragma unroll
  for (int n = 0; n < kHeld; ++n) held[n] = from[n];
  __syncthreads();
  if (*never == 0) return;
#pragma unroll
  for (int n = 0; n < kHeld; ++n) to[n] = held[n] ^ memory[n];
}

/// Fills free memory blocks of every size that the cases' tensors use.
void poison_free_memory(const Device& device) {
  constexpr int kOfEach = 4;
  std::vector<Tensor> taken;
  for (int64_t bytes = 512; bytes <= int64_t{4} << 20; bytes *= 2) {
    for (int n = 0; n < kOfEach; ++n) {
      taken.push_back(Tensor::empty({bytes / 4}, DType::i32, device));
      LAMINA_CUDA(
          cudaMemsetAsync(taken.back().raw(), kBits, static_cast<size_t>(bytes), lamina::cuda::stream_of(device)),
          "poison");
    }
  }
}

}  // namespace

void poison(const Device& device) {
  if (device.kind() != DeviceKind::cuda) return;
  poison_free_memory(device);
  cudaStream_t stream = lamina::cuda::stream_of(device);
  const Tensor words = Tensor::empty({kHeld}, DType::i32, device);
  const Tensor never = Tensor::zeros({1}, DType::i32, device);
  LAMINA_CUDA(cudaMemsetAsync(words.raw(), kBits, static_cast<size_t>(words.nbytes()), stream), "poison");
  int shared = 0;
  LAMINA_CUDA(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index()), "poison");
  LAMINA_CUDA(cudaFuncSetAttribute(poison_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), "poison");
  auto* held = static_cast<uint32_t*>(words.raw());
  poison_kernel<<<static_cast<unsigned>(lamina::cuda::sm_count(device)), kThreads, static_cast<size_t>(shared),
                  stream>>>(held, static_cast<const int*>(never.raw()), shared / 4, held);
  lamina::cuda::check_launch("poison");
}

}  // namespace lamina::testing
