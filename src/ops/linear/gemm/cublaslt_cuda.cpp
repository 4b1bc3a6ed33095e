// Loads the cuBLASLt functions of cublaslt.h at run time.
#include "lamina/ops/linear/gemm/cublaslt.h"

#include "lamina/base/error.h"

namespace lamina::ops::cuda {

CublasLt::CublasLt(const SharedLibrary& library) {
#define LAMINA_LOAD(name) name = library.function<decltype(name)>("cublasLt" #name);
  LAMINA_CUBLASLT_FUNCTIONS(LAMINA_LOAD)
#undef LAMINA_LOAD
}

const CublasLt& cublaslt() {
  static const std::string name = str("libcublasLt.so.", CUBLAS_VER_MAJOR);
  static const CublasLt functions(SharedLibrary("cuBLASLt", {name, "/usr/local/cuda/lib64/" + name}));
  return functions;
}

}  // namespace lamina::ops::cuda
