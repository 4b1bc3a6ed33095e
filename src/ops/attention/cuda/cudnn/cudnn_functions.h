#pragma once

#include <cudnn.h>

#include "lamina/base/shared_library.h"

namespace lamina::ops::cuda {

/// The functions of cuDNN that attention calls, loaded at run time.
struct CudnnFunctions {
  explicit CudnnFunctions(const SharedLibrary& library);

#define LAMINA_CUDNN_FUNCTIONS(F)                                                                                    \
  F(Create)                                                                                                          \
  F(Destroy)                                                                                                         \
  F(SetStream)                                                                                                       \
  F(GetErrorString)                                                                                                  \
  F(BackendCreateDescriptor) F(BackendDestroyDescriptor) F(BackendExecute) F(BackendFinalize) F(BackendGetAttribute) \
      F(BackendSetAttribute)
#define LAMINA_DECLARE(name) decltype(&::cudnn##name) name;
  LAMINA_CUDNN_FUNCTIONS(LAMINA_DECLARE)
#undef LAMINA_DECLARE
};

/// Loaded by the first call; null if the library is missing, then attention uses our own kernels.
const CudnnFunctions* find_cudnn();
/// Throws Error if the library is missing.
const CudnnFunctions& cudnn();

}  // namespace lamina::ops::cuda
