#pragma once

#include <cudnn.h>

#include "lamina/base/shared_library.h"

namespace lamina::ops::cuda {

/// The cuDNN functions that attention calls, loaded at run time.
struct CudnnFunctions {
  explicit CudnnFunctions(const SharedLibrary& library);

// clang-format off: one function per line
#define LAMINA_CUDNN_FUNCTIONS(F) \
  F(Create)                       \
  F(Destroy)                      \
  F(SetStream)                    \
  F(GetErrorString)               \
  F(BackendCreateDescriptor)      \
  F(BackendDestroyDescriptor)     \
  F(BackendExecute)               \
  F(BackendFinalize)              \
  F(BackendGetAttribute)          \
  F(BackendSetAttribute)
// clang-format on
#define LAMINA_DECLARE(name) decltype(&::cudnn##name) name;
  LAMINA_CUDNN_FUNCTIONS(LAMINA_DECLARE)
#undef LAMINA_DECLARE
};

/// The functions, loaded by the first call. Null if the library is missing; attention then uses our own kernels.
const CudnnFunctions* find_cudnn();
/// The functions; throws an Error if the library is missing.
const CudnnFunctions& cudnn();

}  // namespace lamina::ops::cuda
