// Loads the cuDNN functions of cudnn_functions.h at run time.
#include <optional>

#include "lamina/base/error.h"
#include "lamina/ops/attention/cuda/cudnn/cudnn_functions.h"

namespace lamina::ops::cuda {

CudnnFunctions::CudnnFunctions(const SharedLibrary& library) {
#define LAMINA_LOAD(name) name = library.function<decltype(name)>("cudnn" #name);
  LAMINA_CUDNN_FUNCTIONS(LAMINA_LOAD)
#undef LAMINA_LOAD
}

const CudnnFunctions* find_cudnn() {
  static const std::optional<CudnnFunctions> functions = []() -> std::optional<CudnnFunctions> {
    const std::string name = str("libcudnn.so.", CUDNN_MAJOR);
    const SharedLibrary library("cuDNN", {name, "/usr/local/cuda/lib64/" + name});
    if (!library.is_loaded()) return std::nullopt;
    return CudnnFunctions(library);
  }();
  return functions ? &*functions : nullptr;
}

const CudnnFunctions& cudnn() {
  const CudnnFunctions* functions = find_cudnn();
  LAMINA_CHECK(functions != nullptr, "cuDNN is not installed; install version ", CUDNN_MAJOR);
  return *functions;
}

}  // namespace lamina::ops::cuda
