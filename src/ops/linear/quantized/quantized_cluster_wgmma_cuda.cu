// Launches the kernels of quantized_tiles.cuh and chooses the tiles.
#include "lamina/ops/linear/quantized/quantized_tiles.cuh"

namespace lamina::ops::cuda {
namespace cluster_tiles {

/// Bytes of shared memory per block: two, three or four blocks share an SM. Many small blocks balance the SMs best, but
/// large tiles and blocks that split the columns need more stages.
constexpr int kMostShared = 110 << 10;
template <int kGroups, int kBlocks>
int shared_budget(int splits) {
  if (kGroups > 1) return kMostShared;
  return (kBlocks <= 8 && splits == 1 ? 54 : 74) << 10;
}

/// The grid without the blocks that split the columns.
template <int kGroups, int kBlocks, int kParts>
dim3 tiles_of(const Product& p) {
  using P = Plan<kGroups, kBlocks, kParts>;
  return {static_cast<unsigned>((p.out + P::kOutputs - 1) / P::kOutputs),
          static_cast<unsigned>((p.rows + P::kTokens - 1) / P::kTokens)};
}

template <QuantizedFormat kFormat, class T, int kGroups, int kBlocks, int kParts>
bool launch_quantized(const QuantizedLinear& args, QuantizedProduct p) {
  using P = QuantizedPlan<kFormat, kGroups, kBlocks, kParts>;
  constexpr const char* kOp = "quantized_linear";
  const Device& device = args.x.device();
  constexpr bool kBrain = std::is_same_v<T, __nv_bfloat16>;
  if (!encode_tensor_map<2>(p.product.x,
                            {args.x.raw(), {args.weight.in, args.x.dim(0)}, {kStep, P::kTokens}, kBrain})) {
    return false;
  }
  dim3 grid = tiles_of<kGroups, kBlocks, kParts>(p.product);
  p.product.splits = splits_of(static_cast<int>(grid.x * grid.y), p.product.steps, device);
  grid.x *= static_cast<unsigned>(p.product.splits);
  const int steps = (p.product.steps + p.product.splits - 1) / p.product.splits;
  const int budget = shared_budget<kGroups, kBlocks>(p.product.splits);
  p.stages = std::min({kMostStages, (budget - kBarriers) / P::kStageBytes, steps});
  static_assert(P::kSums + kBarriers <= kMostShared);
  const auto kernel = quantized_cluster_kernel<kFormat, T, kGroups, kBlocks, kParts>;
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared), kOp);
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100), kOp);
  launch_dependent_clusters(kernel, p.product.splits, grid, dim3(P::kThreads), static_cast<size_t>(P::shared(p.stages)),
                            device, p);
  check_launch(kOp);
  return true;
}

/// Whether tiles of 128 tokens would leave half of the GPU's places free.
template <int kParts>
bool prefers_64_tokens(const Product& p, const Device& device) {
  if (p.rows <= 64) return true;
  const dim3 tiles = tiles_of<1, 16, kParts>(p);
  const int blocks = static_cast<int>(tiles.x * tiles.y);
  return blocks * splits_of(blocks, p.steps, device) <= sm_count(device);
}

template <QuantizedFormat kFormat, class T>
bool launch_quantized_sizes(const QuantizedLinear& args, const QuantizedProduct& p, bool gated) {
  const Device& device = args.x.device();
  if (!gated) {
    if (p.product.rows <= 32) return launch_quantized<kFormat, T, 1, 4, 1>(args, p);
    return prefers_64_tokens<1>(p.product, device) ? launch_quantized<kFormat, T, 1, 8, 1>(args, p)
                                                   : launch_quantized<kFormat, T, 1, 16, 1>(args, p);
  }
  if (!prefers_64_tokens<2>(p.product, device)) return launch_quantized<kFormat, T, 1, 16, 2>(args, p);
  // Two warpgroups share x. With more blocks than places, small blocks fill the places better.
  const dim3 tiles = tiles_of<1, 8, 2>(p.product);
  return static_cast<int>(tiles.x * tiles.y) <= 2 * sm_count(device) ? launch_quantized<kFormat, T, 2, 8, 2>(args, p)
                                                                     : launch_quantized<kFormat, T, 1, 8, 2>(args, p);
}

inline bool run_quantized(const QuantizedLinear& args, bool gated, Gate gate, const GateOptions& options) {
  const Device& device = args.x.device();
  const DType type = args.x.dtype();
  const QuantizedWeight& weight = args.weight;
  const auto is_aligned = [](const Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.raw()) % 16 == 0; };
  constexpr int64_t kMost = 1 << 20;  // columns and groups; then indices fit 32 bits
  const bool fits = (type == DType::bf16 || type == DType::f16) && has_dependent_launch(device) &&
                    has_wgmma(device, "quantized_linear") && args.x.dim(0) <= kMostRows && weight.in > 0 &&
                    weight.in % 8 == 0 && weight.in <= kMost && weight.groups() <= kMost && args.y.dim(1) % 4 == 0 &&
                    is_aligned(args.x) && is_aligned(weight.data) && is_aligned(args.y) &&
                    (!gated || (!options.interleaved && weight.out % (2 * QuantizedWeight::kRows) == 0));
  if (!fits) return false;
  const QuantizedProduct p{.product = {.x = {},
                                       .bias = device_data<float>(args.bias),
                                       .y = args.y.raw(),
                                       .rows = static_cast<int>(args.x.dim(0)),
                                       .out = static_cast<int>(args.y.dim(1)),
                                       .steps = static_cast<int>((weight.in + kStep - 1) / kStep),
                                       .splits = 1,
                                       .activation = args.activation,
                                       .gate = gate,
                                       .unit = GateUnit(options)},
                           .weights = QuantizedGroups(weight),
                           .blocks = static_cast<int>(weight.blocks()),
                           .second = gated ? static_cast<int>(weight.groups() / 2) : 0,
                           .stages = 0};
  const bool bytes = weight.format == QuantizedFormat::q8;
  if (type == DType::bf16) {
    return bytes ? launch_quantized_sizes<QuantizedFormat::q8, __nv_bfloat16>(args, p, gated)
                 : launch_quantized_sizes<QuantizedFormat::q4, __nv_bfloat16>(args, p, gated);
  }
  return bytes ? launch_quantized_sizes<QuantizedFormat::q8, __half>(args, p, gated)
               : launch_quantized_sizes<QuantizedFormat::q4, __half>(args, p, gated);
}

}  // namespace cluster_tiles

bool quantized_cluster(const QuantizedLinear& args) {
  return cluster_tiles::run_quantized(args, false, Gate::swiglu, {});
}
bool quantized_gated_cluster(const QuantizedGatedLinear& args) {
  return cluster_tiles::run_quantized(args.product, true, args.gate, args.options);
}

}  // namespace lamina::ops::cuda
