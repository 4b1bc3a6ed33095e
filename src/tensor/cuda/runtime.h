#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <typeindex>

#include "lamina/tensor/tensor.h"

/// Throws an Error if a CUDA call fails. `what` names the operator or the step of the runtime.
#define LAMINA_CUDA(call, what) ::lamina::cuda::check((call), #call, what)

namespace lamina::cuda {

void check(cudaError_t status, const char* call, const char* what);

/// The CUDA stream of a device. All its kernels run there in order. Freed memory is reused in stream order, so reuse
/// needs no synchronization.
cudaStream_t stream_of(const Device& device);

/// Number of streaming multiprocessors.
int sm_count(const Device& device);

/// Whether programmatic dependent launch is supported (kernel.cuh, launch_dependent).
bool has_dependent_launch(const Device& device);

/// Call this right after a kernel launch. Throws, with the operator's name, if the launch failed or an earlier kernel's
/// error has surfaced. With CUDA_LAUNCH_BLOCKING=1 kernels are synchronous, so the name is certainly right.
void check_launch(const char* op);

/// Invalid input that a kernel found. The kernel continues with a harmless value (for example zeros), and the next
/// synchronization throws. This validates values without reading them back to the host.
enum class Fault : int {
  none,
  token_id,        ///< embedding: an id outside the table
  target,          ///< cross entropy: a target that is neither a class nor ignore_index
  expert,          ///< moe: an expert index out of range
  cache_length,    ///< attention_decode: a length beyond the cache, or below the number of queries
  cache_place,     ///< cache_store: tokens that do not fit into the cache
  document_start,  ///< packed documents: starts that do not ascend from 0 to the sequence length
  position,        ///< rotary: a position outside the tables
  not_finite,      ///< muon: a gradient or momentum that is not finite
  logit            ///< sampling: a NaN logit
};
/// A record in pinned host memory, which kernels can write.
struct FaultSlot {
  int fault = 0;  ///< Fault, the first one reported
  long long value = 0;
};
FaultSlot* fault_slot(const Device& device);
/// Throws if a finished kernel reported a fault.
void check_faults(const Device& device);

/// Device counter that is added to the stream number of a random key. It is 0 except in CUDA graph replays, where it
/// makes each replay draw new numbers.
const unsigned long long* random_offset(const Device& device);
void set_random_offset(const Device& device, uint64_t offset);

/// Whether libraries may choose kernels by timing them. True in the last warm-up run before CUDA graph capture, unless
/// the device is deterministic.
bool autotunes(const Device& device);
void set_autotune(const Device& device, bool on);

/// Returns `bytes` itself or, during graph capture, a copy that lives as long as the graph.
const void* captured_copy(const Device& device, const void* bytes, size_t count);

/// Grid size: enough blocks of `threads` threads for `count` items, limited to the maximum of a grid's x dimension.
int blocks_for(int64_t count, int threads);

/// A T that the device owns, created from the device's index on first use. For library handles and plan caches.
template <class T>
T& attached(const Device& device) {
  return *static_cast<T*>(attached_object(device, typeid(T), [](int index) { return std::make_shared<T>(index); }));
}
void* attached_object(const Device& device, std::type_index type,
                      const std::function<std::shared_ptr<void>(int index)>& make);

}  // namespace lamina::cuda
