// The dispatch tables of matrix products on CUDA. The first row that supports a call and is preferred for it runs; the
// comment on a row says what it is for. ForcedKernel (ops/kernel_dispatch.h) forces a row. Sublayer steps
// (attention_sublayer_step, feed_forward_step) have no table here: they first try a single launch, which avoids further
// launches and the round trip of activations through memory.
#include "lamina/ops/activation/gated_activation_kernel.h"
#include "lamina/ops/kernel_dispatch.h"
#include "lamina/ops/linear/fused/few_rows_cuda.h"
#include "lamina/ops/linear/fused/row_stream_cuda.h"
#include "lamina/ops/linear/fused/weight_slabs_cuda.h"
#include "lamina/ops/linear/quantized_linear_kernel.h"

namespace lamina::ops::cuda {
namespace {

template <class Call>
bool always(Call& /*call*/) {
  return true;
}

/// The arguments of a product without a norm, for linear_row_stream.
template <class Forward>
NormLinearForward without_norm(const Forward& args) {
  NormLinearForward product;
  product.x = args.x;
  product.weight = args.weight;
  product.bias = args.bias;
  product.y = args.y;
  return product;
}

const KernelRow<const LinearForward> kLinearTable[] = {
    // Up to eight f32 rows: reads the weight at memory bandwidth and overlaps with the previous kernel.
    {"row_stream", always, always,
     [](const LinearForward& args) {
       NormLinearForward product = without_norm(args);
       product.activation = args.activation;
       return linear_row_stream({product, args.z, false});
     }},
    // 2 to 48 16-bit rows: streams the weight by TMA. Preferred for large weights if the slabs form one wave of blocks,
    // or if there are many waves and at most eight rows. docs/explanation/gpu-kernels.md has the measurements.
    {"weight_slabs", always, [](const LinearForward& args) { return prefers_weight_slabs(args); }, linear_weight_slabs},
    // Up to eight rows of every type, also on GPUs without programmatic dependent launch.
    {"few_rows", always, always, linear_few_rows},
    // Supports every call.
    {"cublaslt", always, always,
     [](const LinearForward& args) {
       linear_by_gemm(args);
       return true;
     }},
};

const KernelRow<const GatedLinearForward> kGatedTable[] = {
    {"row_stream", always, always,
     [](const GatedLinearForward& args) {
       NormLinearForward product = without_norm(args);
       product.gated = true;
       product.gate = args.gate;
       product.options = args.options;
       return linear_row_stream({product, {}, false});
     }},
    // 2 to 8 16-bit rows: streams large weights by TMA.
    {"weight_slabs", always, [](const GatedLinearForward& args) { return prefers_weight_slabs(args); },
     gated_linear_weight_slabs},
    {"few_rows", always, always, gated_linear_few_rows},
    {"composed", always, always,
     [](const GatedLinearForward& args) {
       const Tensor joined = Tensor::empty({args.x.dim(0), args.weight.dim(0)}, args.x.dtype(), args.x.device());
       linear_forward({args.x, args.weight, args.bias, Activation::none, joined, Tensor()});
       gated_activation_forward(joined, args.gate, args.options, args.y);
       return true;
     }},
};

struct NormCall {
  const NormLinearForward& args;
  bool& done;
};
const KernelRow<NormCall> kNormTable[] = {
    {"row_stream", always, always,
     [](NormCall& call) {
       return call.done = linear_row_stream({call.args, {}, true});
     }},
    {"few_rows", always, always, [](NormCall& call) { return call.done = norm_linear_few_rows(call.args); }},
    // Long rows: if every block normalized them, that would cost too much. The caller runs norm and product separately.
    {"composed", always, always, [](NormCall& /*call*/) { return true; }},
};

bool streams(const QuantizedLinear& args) { return quantized_weight_stream({.product = args}); }

/// With more than 24 rows and a large weight, the time of "slabs" grows with the rows, that of wgmma hardly.
bool prefers_cluster_tiles(const QuantizedLinear& args) {
  return args.x.dim(0) > 24 && args.weight.in * args.weight.out >= int64_t{1} << 23;
}

const KernelRow<const QuantizedLinear> kQuantizedTable[] = {
    // Up to eight rows on compute capability 9.0: copies weights to shared memory before the previous kernel ends.
    {"weight_stream", always, always, streams},
    // Up to eight rows of any width: limited by reading the weight; quantizes x in the same launch.
    {"few_rows", [](const QuantizedLinear& args) { return args.x.dim(0) <= kFewRows; }, always,
     [](const QuantizedLinear& args) {
       quantized_few_rows(args);
       return true;
     }},
    // More than 24 16-bit rows by wgmma, if the weight is large.
    {"cluster_tiles", always, prefers_cluster_tiles, quantized_cluster},
    // Up to 48 16-bit rows on compute capability 9.0: streams the weight and x through shared memory.
    {"slabs", always, [](const QuantizedLinear& args) { return args.x.dim(0) > kFewRows; }, quantized_slabs},
    // Up to 256 16-bit rows by wgmma.
    {"cluster_tiles", always, [](const QuantizedLinear& args) { return args.x.dim(0) > kFewRows; }, quantized_cluster},
    // Up to 64 16-bit rows on other GPUs: the warps of a block split the columns, so that small weights still occupy
    // all SMs. The kernels from "slabs" to "dequantized" use x as it is, without a launch that quantizes it.
    {"column_split", always, [](const QuantizedLinear& args) { return args.x.dim(0) > kFewRows; },
     quantized_column_split},
    // More 16-bit rows: unpacks the weight once and calls cuBLASLt.
    {"dequantized", always, [](const QuantizedLinear& args) { return args.x.dim(0) > kFewRows; },
     quantized_dequantized},
    // Supports every call: quantizes x first, then multiplies 8-bit integers on tensor cores.
    {"mma", always, always,
     [](const QuantizedLinear& args) {
       quantized_linear_by_mma(args);
       return true;
     }},
};

const KernelRow<const QuantizedGatedLinear> kQuantizedGatedTable[] = {
    // As in kQuantizedTable.
    {"weight_stream", always, always,
     [](const QuantizedGatedLinear& args) {
       return quantized_weight_stream(
           {.product = args.product, .gated = true, .gate = args.gate, .options = args.options});
     }},
    {"few_rows", always, always,
     [](const QuantizedGatedLinear& args) {
       quantized_gated_few_rows(args);
       return true;
     }},
};

struct QuantizedNormCall {
  const QuantizedStream& args;
  bool& done;
};
const KernelRow<QuantizedNormCall> kQuantizedNormTable[] = {
    // One launch for residual, norm and product.
    {"weight_stream", always, always,
     [](QuantizedNormCall& call) { return call.done = quantized_weight_stream(call.args); }},
    // A layer norm, or many rows: the caller runs norm and product separately.
    {"composed", always, always, [](QuantizedNormCall& /*call*/) { return true; }},
};

}  // namespace

void linear_forward(const LinearForward& args) {
  if (args.y.numel() > 0) dispatch("linear", kLinearTable, args.x.device(), args);
}

void gated_linear_forward(const GatedLinearForward& args) {
  if (args.y.numel() > 0) dispatch("gated_linear", kGatedTable, args.x.device(), args);
}

void norm_linear_forward(const NormLinearForward& args, bool& done) {
  done = false;
  NormCall call{args, done};
  dispatch("norm_linear", kNormTable, args.x.device(), call);
}

void quantized_linear(const QuantizedLinear& args) {
  if (args.y.numel() > 0) dispatch("quantized_linear", kQuantizedTable, args.x.device(), args);
}

void quantized_gated_linear(const QuantizedGatedLinear& args) {
  if (args.product.y.numel() > 0) dispatch("quantized_linear", kQuantizedGatedTable, args.product.x.device(), args);
}

void quantized_gated_rows(const QuantizedGatedLinear& args, bool& done) {
  const Device& device = args.product.x.device();
  done = allows_kernel(device, "quantized_linear", "slabs") && quantized_gated_slabs(args);
  done = done || (allows_kernel(device, "quantized_linear", "cluster_tiles") && quantized_gated_cluster(args));
}

void quantized_norm_linear(const QuantizedStream& args, bool& done) {
  done = false;
  QuantizedNormCall call{args, done};
  dispatch("norm_linear", kQuantizedNormTable, args.product.x.device(), call);
}

}  // namespace lamina::ops::cuda
