// Launches the kernels of weight_slabs.cuh and chooses the slab size.
#include "lamina/ops/linear/fused/weight_slabs_cuda.h"

#include "lamina/ops/linear/fused/few_rows_cuda.h"
#include "lamina/ops/linear/fused/weight_slabs.cuh"
#include "lamina/tensor/cuda/tensor_map.h"

namespace lamina::ops::cuda {
namespace {

using namespace weight_slabs;  // NOLINT: kernel helpers

constexpr int64_t kMostRows = 48;

struct Operands {
  const Tensor& x;
  const Tensor& weight;
  const Tensor& bias;
  const Tensor& y;
};

bool is_supported(const Operands& in, int64_t most_rows) {
  const auto is_aligned = [](const Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.raw()) % 16 == 0; };
  const bool types = in.x.dtype() == in.weight.dtype() && (in.x.dtype() == DType::bf16 || in.x.dtype() == DType::f16);
  const bool has_bias_type = !in.bias.defined() || in.bias.dtype() == DType::f32 || in.bias.dtype() == in.x.dtype();
  const int64_t width = in.x.dim(1);
  const int64_t stride = in.weight.strides()[0];
  constexpr int64_t kMost = int64_t{1} << 26;  // indices then fit 32 bits
  return types && has_bias_type && in.x.dim(0) <= most_rows && width > 0 && width % 8 == 0 && width <= kMost &&
         in.weight.dim(0) <= kMost && in.weight.strides()[1] == 1 && stride >= width && stride % 8 == 0 &&
         is_aligned(in.x) && is_aligned(in.weight) && is_aligned(in.y) && has_dependent_launch(in.x.device());
}

/// Launches the kernel for these sizes; p already has the activation or gate. Returns false if the driver rejects the
/// tensor maps.
template <class T, int kTiles, int kTokenTiles, int kParts>
bool launch(const Operands& in, Product p) {
  using S = Sizes<kTiles, kTokenTiles, kParts>;
  const Device& device = in.x.device();
  const int64_t width = in.x.dim(1);
  constexpr bool kBrain = std::is_same_v<T, __nv_bfloat16>;
  const TmaTensor16<2> x{in.x.raw(), {width, in.x.dim(0)}, {kStep, S::kTokens}, kBrain};
  const TmaTensor16<2> weight{
      in.weight.raw(), {width, in.weight.dim(0)}, {kStep, S::kOutputs}, kBrain, {1, in.weight.strides()[0]}};
  if (!encode_tensor_map(p.x, x) || !encode_tensor_map(p.weight, weight)) return false;
  p.bias = in.bias.defined() ? in.bias.raw() : nullptr;
  p.is_bias_f32 = in.bias.defined() && in.bias.dtype() == DType::f32;
  p.y = in.y.raw();
  p.rows = static_cast<int>(in.x.dim(0));
  p.out = static_cast<int>(in.y.dim(1));
  p.steps = static_cast<int>((width + kStep - 1) / kStep);
  p.second = p.out;
  p.share = (p.steps + kWarps - 1) / kWarps;
  p.stages = std::min(S::kStages, p.share);
  const auto kernel = weight_slabs_kernel<T, kTiles, kTokenTiles, kParts>;
  const int shared = S::shared(p.stages);
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::shared(S::kStages)),
              "linear");
  launch_dependent(kernel, dim3(static_cast<unsigned>((p.out + S::kOutputs - 1) / S::kOutputs)), dim3(kThreads),
                   static_cast<size_t>(shared), device, p);
  check_launch("linear");
  return true;
}

/// True if slabs of `rows` outputs give at most one block per SM.
bool is_one_wave(int64_t outputs, int64_t rows, const Device& device) { return outputs <= rows * sm_count(device); }
bool is_one_wave(const Tensor& weight, int64_t rows) { return is_one_wave(weight.dim(0), rows, weight.device()); }

template <class T, int kTiles>
bool launch_tokens(const Operands& in, const Product& p) {
  const int64_t rows = in.x.dim(0);
  if (rows <= 8) return launch<T, kTiles, 1, 1>(in, p);
  return rows <= 16 ? launch<T, kTiles, 2, 1>(in, p) : launch<T, kTiles, 4, 1>(in, p);
}

template <class T>
bool launch_linear(const Operands& in, const Product& p) {
  if (in.x.dim(0) > 32) return launch<T, 1, 6, 1>(in, p);
  return is_one_wave(in.weight, 16) ? launch_tokens<T, 1>(in, p) : launch_tokens<T, 2>(in, p);
}

/// Slabs of 32 or 48 gates and as many ups. With one wave of blocks, every SM has room for a block of the next kernel.
template <class T>
bool launch_gated(const Operands& in, const Product& p) {
  return is_one_wave(in.y.dim(1), 32, in.x.device()) ? launch<T, 4, 1, 2>(in, p) : launch<T, 6, 1, 2>(in, p);
}

Product product_of(const GateOptions& options) {
  return {.x = {},
          .weight = {},
          .bias = nullptr,
          .is_bias_f32 = false,
          .y = nullptr,
          .z = nullptr,
          .rows = 0,
          .out = 0,
          .steps = 0,
          .second = 0,
          .share = 0,
          .stages = 0,
          .settled = false,
          .activation = Activation::none,
          .gate = Gate::liglu,
          .unit = GateUnit(options)};
}

}  // namespace

bool linear_weight_slabs(const LinearForward& args) {
  const Operands in{args.x, args.weight, args.bias, args.y};
  if (!is_supported(in, kMostRows)) return false;
  Product p = product_of({});
  p.z = args.z.defined() ? args.z.raw() : nullptr;
  p.activation = args.activation;
  p.settled = args.settled;
  return args.x.dtype() == DType::bf16 ? launch_linear<__nv_bfloat16>(in, p) : launch_linear<__half>(in, p);
}

bool gated_linear_weight_slabs(const GatedLinearForward& args) {
  const Operands in{args.x, args.weight, args.bias, args.y};
  if (!is_supported(in, kFewRows) || args.options.interleaved) return false;
  Product p = product_of(args.options);
  p.gate = args.gate;
  p.settled = args.settled;
  return args.x.dtype() == DType::bf16 ? launch_gated<__nv_bfloat16>(in, p) : launch_gated<__half>(in, p);
}

namespace {

bool prefers_linear(const Tensor& weight, int64_t rows) {
  constexpr int64_t kLarge = int64_t{3} << 20;  // elements; for smaller weights launch latency dominates
  constexpr int64_t kManyOutputs = 12288;       // enough waves that the last, partly filled one matters little
  if (rows < 2 || weight.numel() < kLarge || weight.dim(1) < 1024) return false;
  if (rows > 32) return is_one_wave(weight, 16);
  return is_one_wave(weight, 32) || (rows <= kFewRows && weight.dim(0) >= kManyOutputs);
}

bool prefers_gated(const Tensor& weight, int64_t rows) {
  constexpr int64_t kLarge = int64_t{16} << 20;  // elements; few_rows is as fast below kLarge and from kHuge on
  constexpr int64_t kHuge = int64_t{32} << 20;
  return rows >= 2 && weight.numel() >= kLarge && weight.numel() < kHuge;
}

}  // namespace

bool prefers_weight_slabs(const LinearForward& args) { return prefers_linear(args.weight, args.x.dim(0)); }

bool prefers_weight_slabs(const GatedLinearForward& args) { return prefers_gated(args.weight, args.x.dim(0)); }

}  // namespace lamina::ops::cuda
