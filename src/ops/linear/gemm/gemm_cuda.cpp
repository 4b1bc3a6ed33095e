// Products by cuBLASLt. cuBLASLt is column-major, so it computes Cᵀ = op(B)ᵀ · op(A)ᵀ, where our rows are its columns.
// The first algorithm that its heuristics return for a shape is cached, so a repeated call costs a lookup. Before CUDA
// graph capture, the first few candidates are timed and the fastest is kept.

#include "lamina/ops/linear/gemm/gemm_cuda.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "lamina/ops/linear/gemm/cublaslt.h"
#include "lamina/tensor/cuda/runtime.h"
#include "lamina/tensor/cuda/stream_timer.h"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::stream_of;

constexpr size_t kWorkspace = size_t{32} << 20;

void check(cublasStatus_t status, const char* call) {
  LAMINA_CHECK(status == CUBLAS_STATUS_SUCCESS, "product: ", call, " failed: ", cublaslt().GetStatusString(status));
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    case DType::f32: return CUDA_R_32F;
    default: break;
  }
  throw Error(str("product: ", dtype, " on a CUDA device; expected f32, bf16 or f16; use the CPU for f64"));
}

/// Everything that the choice of an algorithm depends on.
using Key = std::array<int64_t, 20>;

/// Largest power of two up to 256 that divides the address. cuBLASLt takes it as an alignment hint.
int64_t alignment(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer) | 256;
  return static_cast<int64_t>(address & (~address + 1));
}

Key key_of(const Product& p) {
  return {p.transpose_a,
          p.transpose_b,
          p.m,
          p.n,
          p.k,
          p.batch,
          p.lda,
          p.ldb,
          p.ldc,
          p.stride_a,
          p.stride_b,
          p.stride_c,
          static_cast<int64_t>(p.type),
          static_cast<int64_t>(p.c_type),
          p.beta != 0,
          p.bias != nullptr,
          p.gelu_tanh + 2 * (p.pre_activation != nullptr) + 4 * (p.gelu_tanh_of != nullptr),
          alignment(p.a),
          alignment(p.b),
          alignment(p.c)};
}

class Plan {
 public:
  Plan(cublasLtHandle_t handle, const Product& p) {
    check(cublaslt().MatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a description");
    const cublasOperation_t first = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(CUBLASLT_MATMUL_DESC_TRANSA, first);
    set(CUBLASLT_MATMUL_DESC_TRANSB, second);
    set_epilogue(p);
    layout(first_matrix, p.type, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.ldb, p.batch, p.stride_b);
    layout(second_matrix, p.type, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.lda, p.batch, p.stride_a);
    layout(result, p.c_type, p.n, p.m, p.ldc, p.batch, p.stride_c);
    const auto found = proposals(handle, p, 1);
    available = !found.empty();
    if (available) algorithm = found[0].algo;
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    for (cublasLtMatrixLayout_t matrix : {first_matrix, second_matrix, result}) {
      if (matrix != nullptr) cublaslt().MatrixLayoutDestroy(matrix);
    }
    if (operation != nullptr) cublaslt().MatmulDescDestroy(operation);
  }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(cublaslt().MatmulDescSetAttribute(operation, attribute, &value, sizeof(value)), "an attribute");
  }

  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first_matrix = nullptr;
  cublasLtMatrixLayout_t second_matrix = nullptr;
  cublasLtMatrixLayout_t result = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool available = false;
  bool autotuned = false;

  /// Times the first few candidate algorithms on the product's own operands and keeps the fastest. Results go to a
  /// temporary buffer; if that cannot be allocated, the current choice is kept.
  void autotune(cublasLtHandle_t handle, const Product& p, void* workspace, cudaStream_t stream) {
    autotuned = true;
    const int64_t elements = (p.batch - 1) * p.stride_c + p.m * p.ldc;
    void* memory = nullptr;
    if (cudaMalloc(&memory, static_cast<size_t>(elements) * size_of(p.c_type)) != cudaSuccess) {
      cudaGetLastError();
      return;
    }
    const std::shared_ptr<void> buffer(memory, [](void* block) { cudaFree(block); });
    const lamina::cuda::StreamTimer timer(stream);
    double best = 0;
    for (const cublasLtMatmulHeuristicResult_t& proposal : proposals(handle, p, kProposals)) {
      const auto run = [&] {
        return cublaslt().Matmul(handle, operation, &p.alpha, p.b, first_matrix, p.a, second_matrix, &p.beta,
                                 buffer.get(), result, buffer.get(), result, &proposal.algo, workspace, kWorkspace,
                                 stream);
      };
      if (run() != CUBLAS_STATUS_SUCCESS) continue;
      double seconds = timer.min_seconds(kTrials, run);
      if (seconds < kShort) seconds = timer.min_graph_seconds(kTrials, kRecordedCalls, run);
      if (best != 0 && seconds > kWorth * best) continue;
      best = seconds;
      algorithm = proposal.algo;
    }
  }

 private:
  static constexpr int kProposals = 8;
  static constexpr int kTrials = 4;
  static constexpr int kRecordedCalls = 8;
  static constexpr double kShort = 2e-4;  ///< seconds; for shorter kernels launch overhead matters
  static constexpr double kWorth = 0.98;  ///< factor on the time: another candidate must be at least 2 % faster

  void set_epilogue(const Product& p) {
    if (p.gelu_tanh_of != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DGELU);
      return set_second_matrix(p, p.gelu_tanh_of);
    }
    if (p.bias == nullptr && !p.gelu_tanh) return;
    const cublasLtEpilogue_t epilogue = !p.gelu_tanh ? CUBLASLT_EPILOGUE_BIAS
                                        : p.pre_activation == nullptr
                                            ? (p.bias == nullptr ? CUBLASLT_EPILOGUE_GELU : CUBLASLT_EPILOGUE_GELU_BIAS)
                                        : p.bias == nullptr ? CUBLASLT_EPILOGUE_GELU_AUX
                                                            : CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (p.bias != nullptr) {
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.c_type));
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    }
    if (p.pre_activation != nullptr) set_second_matrix(p, p.pre_activation);
  }
  /// Sets an auxiliary matrix that the epilogue reads or writes.
  void set_second_matrix(const Product& p, const void* matrix) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, type_of(p.c_type));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.ldc);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, matrix);
  }

  static void layout(cublasLtMatrixLayout_t& matrix, DType type, int64_t rows, int64_t columns, int64_t ld,
                     int64_t batch, int64_t stride) {
    check(cublaslt().MatrixLayoutCreate(&matrix, type_of(type), static_cast<uint64_t>(rows),
                                        static_cast<uint64_t>(columns), ld),
          "a layout");
    if (batch == 1) return;
    const auto count = static_cast<int32_t>(batch);
    check(cublaslt().MatrixLayoutSetAttribute(matrix, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
          "a batch");
    check(cublaslt().MatrixLayoutSetAttribute(matrix, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                              sizeof(stride)),
          "a batch");
  }

  /// Candidate algorithms from the library's heuristics, best first. Empty if the library has no kernel.
  std::vector<cublasLtMatmulHeuristicResult_t> proposals(cublasLtHandle_t handle, const Product& p, int most) const {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublaslt().MatmulPreferenceCreate(&preference), "a preference");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check(cublaslt().MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)), "a preference");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspace});
    // Partial sums of split-k are reduced in f32, never in the result's type.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(alignment(p.b)));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(alignment(p.a)));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(alignment(p.c)));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(alignment(p.c)));
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(most));
    int count = 0;
    const cublasStatus_t status = cublaslt().MatmulAlgoGetHeuristic(
        handle, operation, first_matrix, second_matrix, result, result, preference, most, found.data(), &count);
    cublaslt().MatmulPreferenceDestroy(preference);
    found.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(count) : 0);
    return found;
  }
};

/// A second CUDA stream for parallel branches of a graph capture, with a workspace for its products.
class CaptureBranch {
 public:
  explicit CaptureBranch(int /*index*/) {
    LAMINA_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "product");
    LAMINA_CUDA(cudaEventCreateWithFlags(&begin_, cudaEventDisableTiming), "product");
    LAMINA_CUDA(cudaEventCreateWithFlags(&end_, cudaEventDisableTiming), "product");
    LAMINA_CUDA(cudaMalloc(&workspace_, kWorkspace), "product");
  }
  CaptureBranch(const CaptureBranch&) = delete;
  CaptureBranch& operator=(const CaptureBranch&) = delete;
  ~CaptureBranch() {
    cudaFree(workspace_);
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }
  cudaStream_t stream() const { return stream_; }
  void* workspace() const { return workspace_; }

  /// Forks this stream from `trunk` at its current point.
  void leave(cudaStream_t trunk) const {
    LAMINA_CUDA(cudaEventRecord(begin_, trunk), "product");
    LAMINA_CUDA(cudaStreamWaitEvent(stream_, begin_, 0), "product");
  }
  /// Makes `trunk` wait for this stream.
  void join(cudaStream_t trunk) const {
    LAMINA_CUDA(cudaEventRecord(end_, stream_), "product");
    LAMINA_CUDA(cudaStreamWaitEvent(trunk, end_, 0), "product");
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  void* workspace_ = nullptr;
};

/// True while the process is exiting. A device in a static variable may be destroyed after cublasLt has freed its own
/// tables; its handle is then left to the OS. The atexit handler is registered after the first handle was created, so
/// it runs before that.
std::atomic<bool>& is_ending() {
  static std::atomic<bool> ending{false};
  return ending;
}

/// The handle, the workspace and the plans of a device.
class Products {
 public:
  explicit Products(int /*index*/) {
    check(cublaslt().Create(&handle_), "cublasLtCreate");
    [[maybe_unused]] static const int noted = std::atexit([] { is_ending() = true; });
    LAMINA_CUDA(cudaMalloc(&workspace_, kWorkspace), "product");
  }
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;
  ~Products() {
    plans_.clear();
    cudaFree(workspace_);
    if (!is_ending()) cublaslt().Destroy(handle_);
  }

  bool run(const Device& device, const Product& p) { return run(device, p, stream_of(device), workspace_); }
  /// Runs a product; returns false if the library has no kernel for it.
  bool run(const Device& device, const Product& p, cudaStream_t stream, void* workspace) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Plan>& plan = plans_[key_of(p)];
    if (!plan) plan = std::make_unique<Plan>(handle_, p);
    if (!plan->available) return false;
    if (p.bias != nullptr) plan->set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    if (p.pre_activation != nullptr) plan->set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.pre_activation);
    if (p.gelu_tanh_of != nullptr) plan->set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.gelu_tanh_of);
    if (!plan->autotuned && lamina::cuda::autotunes(device)) plan->autotune(handle_, p, workspace, stream);
    check(cublaslt().Matmul(handle_, plan->operation, &p.alpha, p.b, plan->first_matrix, p.a, plan->second_matrix,
                            &p.beta, p.c, plan->result, p.c, plan->result, &plan->algorithm, workspace, kWorkspace,
                            stream),
          "cublasLtMatmul");
    return true;
  }

 private:
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::mutex mutex_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

bool is_empty(const Product& args) {
  if (args.m == 0 || args.n == 0 || args.batch == 0) return true;
  LAMINA_CHECK(args.k > 0, "product: k is 0; the caller must fill C (internal error, please report it)");
  return false;
}

void require_kernel(bool done, const Product& args) {
  LAMINA_CHECK(done, "product [", args.m, ", ", args.k, "] · [", args.k, ", ", args.n, "] of ", args.type,
               ": cuBLASLt has no kernel for it; use another type, or sizes that are multiples of 8");
}

}  // namespace

void product(const Device& device, const Product& args) {
  if (is_empty(args)) return;
  require_kernel(lamina::cuda::attached<Products>(device).run(device, args), args);
}

void product_overlapped(const Device& device, const Product& args, const std::function<void()>& work) {
  cudaStream_t trunk = stream_of(device);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  LAMINA_CUDA(cudaStreamIsCapturing(trunk, &status), "product");
  if (status == cudaStreamCaptureStatusNone || is_empty(args)) {
    work();
    return product(device, args);
  }
  const auto& branch = lamina::cuda::attached<CaptureBranch>(device);
  branch.leave(trunk);
  work();
  auto& products = lamina::cuda::attached<Products>(device);
  require_kernel(products.run(device, args, branch.stream(), branch.workspace()), args);
  branch.join(trunk);
}

bool try_product(const Device& device, const Product& args) {
  if (args.m == 0 || args.n == 0 || args.k == 0) return false;
  return lamina::cuda::attached<Products>(device).run(device, args);
}

}  // namespace lamina::ops::cuda
