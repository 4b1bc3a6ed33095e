#pragma once

#include <cublasLt.h>

#include "lamina/base/shared_library.h"

namespace lamina::ops::cuda {

/// The cuBLASLt functions that products call, loaded at run time. Throws an Error if the library is missing.
struct CublasLt {
  explicit CublasLt(const SharedLibrary& library);

// clang-format off: one function per line
#define LAMINA_CUBLASLT_FUNCTIONS(F) \
  F(Create)                          \
  F(Destroy)                         \
  F(GetStatusString)                 \
  F(Matmul)                          \
  F(MatmulAlgoGetHeuristic)          \
  F(MatmulDescCreate)                \
  F(MatmulDescDestroy)               \
  F(MatmulDescSetAttribute)          \
  F(MatmulPreferenceCreate)          \
  F(MatmulPreferenceDestroy)         \
  F(MatmulPreferenceSetAttribute)    \
  F(MatrixLayoutCreate)              \
  F(MatrixLayoutDestroy)             \
  F(MatrixLayoutSetAttribute)
// clang-format on
#define LAMINA_DECLARE(name) decltype(&::cublasLt##name) name;
  LAMINA_CUBLASLT_FUNCTIONS(LAMINA_DECLARE)
#undef LAMINA_DECLARE
};

/// The functions; the first call loads them.
const CublasLt& cublaslt();

}  // namespace lamina::ops::cuda
