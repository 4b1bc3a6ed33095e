#pragma once

#include <cuda_runtime_api.h>

#include "lamina/base/dtype.h"
#include "lamina/base/shared_library.h"

namespace lamina::comm {

/// The part of NCCL's C interface that is used here, loaded at run time. Types and constants are those of NCCL 2.
struct Nccl {
  using Comm = void*;
  struct UniqueId {
    char bytes[128];
  };
  static constexpr int kSum = 0;         ///< ncclSum
  static constexpr int kSuccess = 0;     ///< ncclSuccess
  static constexpr int kInProgress = 7;  ///< ncclInProgress

  explicit Nccl(const SharedLibrary& library);
  /// The loaded library. Throws an Error with the reason if there is none.
  static const Nccl& get();
  /// ncclDataType_t of a dtype; that of bytes if NCCL does not know the dtype.
  static int data_type(DType dtype);

  const char* (*error_text)(int result) = nullptr;
  int (*get_unique_id)(UniqueId* id) = nullptr;
  int (*init_rank)(Comm* comm, int size, UniqueId id, int rank) = nullptr;
  int (*async_error)(Comm comm, int* result) = nullptr;
  int (*destroy)(Comm comm) = nullptr;
  int (*abort)(Comm comm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*all_reduce)(const void* from, void* to, size_t count, int type, int op, Comm, cudaStream_t) = nullptr;
  int (*reduce)(const void* from, void* to, size_t count, int type, int op, int root, Comm, cudaStream_t) = nullptr;
  int (*broadcast)(const void* from, void* to, size_t count, int type, int root, Comm, cudaStream_t) = nullptr;
  int (*send)(const void* from, size_t count, int type, int peer, Comm, cudaStream_t) = nullptr;
  int (*receive)(void* to, size_t count, int type, int peer, Comm, cudaStream_t) = nullptr;
};

}  // namespace lamina::comm
