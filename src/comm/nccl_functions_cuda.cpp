#include "lamina/comm/nccl_functions.h"

#include "lamina/base/error.h"

namespace lamina::comm {

Nccl::Nccl(const SharedLibrary& library) {
  const auto load = [&]<class F>(F& function, const char* name) { function = library.function<F>(name); };
  load(error_text, "ncclGetErrorString");
  load(get_unique_id, "ncclGetUniqueId");
  load(init_rank, "ncclCommInitRank");
  load(async_error, "ncclCommGetAsyncError");
  load(destroy, "ncclCommDestroy");
  load(abort, "ncclCommAbort");
  load(group_start, "ncclGroupStart");
  load(group_end, "ncclGroupEnd");
  load(all_reduce, "ncclAllReduce");
  load(reduce, "ncclReduce");
  load(broadcast, "ncclBroadcast");
  load(send, "ncclSend");
  load(receive, "ncclRecv");
}

const Nccl& Nccl::get() {
  const auto load = [] {
    const SharedLibrary library("NCCL", {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"});
    if (!library.is_loaded()) {
      throw Error(str("several GPUs need NCCL: ", library.problem(),
                      "; install libnccl2, or set LD_LIBRARY_PATH to the folder of libnccl.so.2"));
    }
    return Nccl(library);
  };
  static const Nccl functions = load();
  return functions;
}

int Nccl::data_type(DType dtype) {
  switch (dtype) {
    case DType::f16: return 6;   // ncclFloat16
    case DType::f32: return 7;   // ncclFloat32
    case DType::f64: return 8;   // ncclFloat64
    case DType::bf16: return 9;  // ncclBfloat16
    case DType::i64: return 4;   // ncclInt64
    default: return 1;           // ncclUint8
  }
}

}  // namespace lamina::comm
