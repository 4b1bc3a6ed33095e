#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <typeindex>

#include "lamina/tensor/tensor.h"

/// Throws Error naming `what` (an operator or a step of the runtime) when a CUDA call fails.
#define LAMINA_CUDA(call, what) ::lamina::cuda::check((call), #call, what)

namespace lamina::cuda {

void check(cudaError_t status, const char* call, const char* what);

/// The queue a device's kernels go to, in order. Memory that was freed is handed out again in that order, so kernels
/// on it need no waiting.
cudaStream_t stream_of(const Device& device);

/// Multiprocessors of the device.
int processors(const Device& device);

/// Whether a kernel's blocks may be placed before the kernel ahead of it has ended (kernel.cuh, launch_dependent).
bool launches_early(const Device& device);

/// Right after a kernel's launch: an error of the launch itself, or of an earlier kernel that has come to light, with
/// the operator's name. With CUDA_LAUNCH_BLOCKING=1 each kernel is waited for, so that the name is the culprit's.
void check_launch(const char* op);

/// What a kernel found wrong with values it was given; it goes on with something harmless (a row of zeros, say), and
/// the next wait for the device throws. Values in device memory are never read back only to be checked.
enum class Fault : int {
  none,
  token_id,        ///< embedding: an id outside the table
  target,          ///< cross entropy: a target that is no class and not the ignored one
  expert,          ///< an expert's index outside their number
  cache_length,    ///< attention over a cache: more keys than it holds, or fewer than queries
  cache_place,     ///< storing into a cache: tokens that would lie outside it
  document_start,  ///< packed documents that do not ascend from 0 to the length
  position,        ///< rotary: a position outside the tables
  not_finite,      ///< muon: a gradient or momentum that is not finite
  logit            ///< sampling: a logit that is not a number
};
/// Lies in host memory that kernels can write.
struct FaultSlot {
  int fault = 0;  ///< Fault, the first one reported
  long long value = 0;
};
FaultSlot* fault_slot(const Device& device);
/// Throws where a kernel that is known to have ended has reported something.
void check_faults(const Device& device);

/// What kernels that draw random numbers add to the number of their key's stream: 0, but for a replay, which draws anew
/// each time.
const unsigned long long* random_offset(const Device& device);
void set_random_offset(const Device& device, uint64_t offset);

/// Whether libraries should choose their kernels by measuring: while the device tries out work that it is going to
/// record and repeat, unless it was asked for the same bits every time.
bool chooses_by_measuring(const Device& device);
void set_choosing_by_measuring(const Device& device, bool on);

/// `bytes` itself, or while the device records a copy of the bytes that lives as long as the recording.
const void* kept_by_recording(const Device& device, const void* bytes, size_t count);

/// Work of one launch: enough blocks of `threads` for `count` items, within what a grid may have along x.
int blocks_for(int64_t count, int threads);

/// An object of the device's own, made on first use and living as long as the device: handles of libraries, caches of
/// plans. T is made from the device's index.
template <class T>
T& attached(const Device& device) {
  return *static_cast<T*>(attached_object(device, typeid(T), [](int index) { return std::make_shared<T>(index); }));
}
void* attached_object(const Device& device, std::type_index type,
                      const std::function<std::shared_ptr<void>(int index)>& make);

}  // namespace lamina::cuda
