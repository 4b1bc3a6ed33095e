// Launches the kernel of output_step.cuh: attention and output projection of one token.
#include <algorithm>

#include "lamina/ops/attention/decode/output_step.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace output_step;  // NOLINT: kernel helpers

template <class T, int kD, int kStages, OutputWeight kWeight>
__global__ void __launch_bounds__(kStepThreads, 1)
    attention_output_kernel(const __grid_constant__ AttentionOutputParams p) {
  extern __shared__ __align__(128) unsigned char memory[];
  OutputStep<T, kD, kStages, kWeight> step(p, *reinterpret_cast<OutputShared<T, kD, kStages, kWeight>*>(memory));
  if (p.weights_just_written) lamina::cuda::grid_dependency_wait();
  step.read_position_early();
  const bool late = kWeight == OutputWeight::q8 && p.starts_next_late;
  if (!late) lamina::cuda::trigger_dependents();
  step.take_token();
  if (late) lamina::cuda::trigger_dependents();
  step.attend();
  step.multiply_out();
}

AttentionOutputParams params_of(const AttentionSublayerStep& args, const Tensor& projected) {
  AttentionOutputParams p{};
  static_cast<StepHeads&>(p) = step_heads(args);
  p.projected = projected.data<float>();
  p.width = static_cast<int>(args.weights.out.dim(0));
  const QuantizedWeight& quantized = args.weights.out.quantized;
  const bool is_quantized = args.weights.out.is_quantized();
  p.out_each = ceil_div(p.width, std::max(lamina::cuda::sm_count(projected.device()) / p.n_kv_heads, 1));
  p.tiles = ceil_div(p.out_each, kTileRows);
  int steps = p.group * p.d / 16;
  int least = kStepsAtOnce;
  if (is_quantized) {
    p.out_each = p.tiles * kTileRows;
    steps = p.group * p.d / kQuantizedBlock;
    least = 1;
    p.quantized = {quantized.data.data<uint8_t>(), quantized.group_bytes(), static_cast<int>(quantized.scale_bytes()),
                   steps};
    p.starts_next_late = starts_next_late(quantized);
  }
  while (p.tiles << p.split_bits < kStepWarps && steps % (2 * least << p.split_bits) == 0) ++p.split_bits;
  p.steps_each = steps >> p.split_bits;
  p.weights_just_written = args.stream.weights_just_written;
  return p;
}

template <class T, int kD, int kStages, OutputWeight kWeight>
void launch_kernel(const AttentionSublayerStep& args, const Tensor& projected, Tensor& parts) {
  const char* op = "attention_sublayer_step";
  const Device& device = projected.device();
  AttentionOutputParams p = params_of(args, projected);
  const size_t shared = OutputShared<T, kD, kStages, kWeight>::bytes(p);
  int limit = 0;
  LAMINA_CUDA(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index()), op);
  if (shared > static_cast<size_t>(limit) || p.tiles << p.split_bits > kMostTiles) return;
  parts = Tensor::empty({p.n_kv_heads, p.width}, DType::f32, device);
  p.parts = parts.data<float>();
  const auto kernel = attention_output_kernel<T, kD, kStages, kWeight>;
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)), op);
  if constexpr (kWeight != OutputWeight::bf16) {  // with a quantized weight, its neighbours need much shared memory
    LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100), op);
  }
  lamina::cuda::launch_dependent(
      kernel, dim3(static_cast<unsigned>(ceil_div(p.width, p.out_each)), static_cast<unsigned>(p.n_kv_heads)),
      dim3(kStepThreads), shared, device, p);
  lamina::cuda::check_launch(op);
}

template <class T, int kD, int kStages>
void launch(const AttentionSublayerStep& args, const Tensor& projected, Tensor& parts) {
  const LinearWeight& out = args.weights.out;
  if (!out.is_quantized()) return launch_kernel<T, kD, kStages, OutputWeight::bf16>(args, projected, parts);
  out.quantized.format == QuantizedFormat::q8 ? launch_kernel<T, kD, kStages, OutputWeight::q8>(args, projected, parts)
                                              : launch_kernel<T, kD, kStages, OutputWeight::q4>(args, projected, parts);
}

template <class T>
void launch(const AttentionSublayerStep& args, const Tensor& projected, Tensor& parts) {
  constexpr int64_t kMaxOneTileKeys = 2 * kTileKeys;  // with fewer keys, a second tile is not worth its memory
  if (args.k_cache.dim(3) == 128) return launch<T, 128, 1>(args, projected, parts);
  args.capacity() <= kMaxOneTileKeys ? launch<T, 64, 1>(args, projected, parts)
                                     : launch<T, 64, 2>(args, projected, parts);
}

}  // namespace

void attention_output_step(const AttentionSublayerStep& args, const Tensor& projected, Tensor& parts) {
  constexpr int64_t kMostKeys = 1536;  // with more, every block of a KV head would read too much
  const AttentionProjections& weights = args.weights;
  const int64_t d = args.k_cache.dim(3);
  const int64_t group = weights.out.dim(1) / d / args.k_cache.dim(1);
  const StepRotation& rotation = args.rotation;
  const bool turned_in_packs =
      !rotation.cos.defined() || (rotation.rotary_dim % 8 == 0 && rotation.cos.dim(1) % 4 == 0);
  const bool taken = supports_sublayer_step(args.stream, {projected, weights.out.data(), weights.out_bias, args.k_cache,
                                                          args.v_cache, rotation.cos, rotation.sin}) &&
                     group <= kHeads && (group + 2) * d <= 4 * kStepThreads && args.capacity() <= kMostKeys &&
                     turned_in_packs;
  const DType type = args.k_cache.dtype();
  if (!taken || (d != 64 && d != 128)) return;
  if (type == DType::bf16) launch<__nv_bfloat16>(args, projected, parts);
  if (type == DType::f16) launch<__half>(args, projected, parts);
}

}  // namespace lamina::ops::cuda
