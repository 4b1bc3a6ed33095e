#include "lamina/ops/attention/attention_sublayer_step_kernel.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/attention/attention_checks.h"
#include "lamina/ops/kernel_dispatch.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

constexpr const char* kSublayerOp = "attention_sublayer_step";

void check_projections(const Tensor& x, const AttentionProjections& weights, const Tensor& k_cache) {
  LAMINA_CHECK(x.defined() && x.rank() == 3 && x.dim(1) == 1, kSublayerOp, ": x is ",
               x.defined() ? str(x.shape()) : "undefined", "; expected one token per row: [batch, 1, width]");
  LAMINA_CHECK(k_cache.defined() && k_cache.rank() == 4, kSublayerOp, ": k_cache is ",
               k_cache.defined() ? str(k_cache.shape()) : "undefined", "; expected [batch, n_kv_heads, capacity, d]");
  check_projection(kSublayerOp, x, weights.qkv, weights.qkv_bias);
  const int64_t d = k_cache.dim(3);
  const int64_t kv_rows = 2 * k_cache.dim(1) * d;  // rows of keys and values in the QKV projection
  LAMINA_CHECK(weights.qkv.dim(0) >= kv_rows && (d == 0 || weights.qkv.dim(0) % d == 0), kSublayerOp,
               ": weights.qkv is ", weights.qkv.shape(), ", the caches have ", k_cache.dim(1), " heads of ", d,
               "; expected the rows of n_heads + 2 n_kv_heads such heads");
  check_output_projection(kSublayerOp, weights.out, {x.dim(2), weights.qkv.dim(0) - kv_rows});
  if (!weights.out_bias.defined()) return;
  check_floating(kSublayerOp, "weights.out_bias", weights.out_bias);
  check_shape(kSublayerOp, "weights.out_bias", weights.out_bias, {x.dim(2)});
}

/// True if there is one token, in layouts that the kernel can read 16 bytes at a time. If not, attention_step() checks
/// the shapes.
bool fits_step(const AttentionSublayerStep& args, const LinearWeight& qkv, int64_t out_columns) {
  constexpr int64_t kColumns = 8;
  constexpr int64_t kWidest = 256;
  const Tensor& k = args.k_cache;
  const int64_t d = k.dim(3);
  const bool caches = is_floating(k.dtype()) && k.dtype() != DType::f64 && k.is_contiguous() &&
                      args.v_cache.is_contiguous() && k.dtype() == args.v_cache.dtype() &&
                      k.shape() == args.v_cache.shape() && (args.tables.defined() || k.dim(0) == 1) && k.numel() > 0;
  if (!caches || d % kColumns != 0 || d > kWidest || out_columns <= 0) return false;
  const int64_t heads = qkv.dim(0) / d - 2 * k.dim(1);
  const bool places =
      args.tables.defined() || (args.places.defined() && args.places.dtype() == DType::i64 && args.places.numel() == 1);
  return places && heads % k.dim(1) == 0;
}

LinearWeight contiguous(const LinearWeight& weight) {
  return weight.is_quantized() ? weight : LinearWeight(weight.plain.contiguous());
}

/// The kernel arguments. Their stream.x is undefined if the kernels do not support the case.
AttentionSublayerStep step_arguments(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                                     const AttentionProjections& weights, AttentionSublayerStep args) {
  const bool quantized = weights.qkv.is_quantized() && weights.out.is_quantized();
  const auto taken = [&](const LinearWeight& weight) {
    return weight.data().numel() > 0 && (quantized || weight.data().dtype() == DType::bf16);
  };
  if (!taken(weights.qkv) || !taken(weights.out) || !fits_step(args, weights.qkv, weights.out.dim(1))) return {};
  if (is_tracked(
          {weights.qkv.plain, weights.qkv_bias, weights.out.plain, weights.out_bias, args.k_cache, args.v_cache})) {
    return {};
  }
  args.stream = step_stream(x, residual, norm);
  if (!args.stream.x.defined()) return {};
  const auto vector = [&](const Tensor& tensor) {
    return tensor.defined() ? as_accumulation(tensor, x.dtype()) : Tensor();
  };
  if (args.rotation.cos.defined()) {
    const int64_t d = args.k_cache.dim(3);
    StepRotation& rotation = args.rotation;
    rotation.rotary_dim = checked_rotary_dim(kSublayerOp, rotation.cos, rotation.sin, rotation.rotary_dim, d);
    if (rotation.cos.dim(0) == 0) return {};
    rotation.cos = vector(rotation.cos);
    rotation.sin = vector(rotation.sin);
    if (!rotation.positions.defined()) rotation.positions = args.places.contiguous();
    check_dtype(kSublayerOp, "positions", rotation.positions, DType::i64);
    check_shape(kSublayerOp, "positions", rotation.positions, {1});
  }
  args.weights = {contiguous(weights.qkv), vector(weights.qkv_bias), contiguous(weights.out), vector(weights.out_bias)};
  args.stream.weights_just_written = !weights.qkv.data().is_contiguous() || !weights.out.data().is_contiguous();
  return args;
}

/// Counts the work of a kernel that multiplied with `weights` weights, stored in `bytes` bytes, and wrote the KV
/// caches. Marks the caches as written.
void count_step(const AttentionSublayerStep& args, int64_t weights, int64_t bytes, const Tensor& parts) {
  args.k_cache.mark_written(kSublayerOp);
  args.v_cache.mark_written(kSublayerOp);
  const int64_t keys = args.capacity();
  const int64_t key = args.k_cache.dim(1) * args.k_cache.dim(3) * static_cast<int64_t>(size_of(args.k_cache.dtype()));
  parts.device().add_work({2 * weights + 4 * keys * args.weights.out.dim(1), bytes + parts.nbytes() + 2 * keys * key});
}

}  // namespace

void check_output_projection(const char* op, const LinearWeight& weight, const Shape& expected) {
  if (!weight.is_quantized()) check_floating(op, "weights.out", weight.plain);
  LAMINA_CHECK(weight.data().defined() && weight.shape() == expected, op, ": weights.out is ",
               weight.data().defined() ? str(weight.shape()) : "undefined", "; expected ", expected);
}

bool only_scales(const AttentionOptions& options, const AttentionExtras& extras) {
  return options.pattern.kind == AttentionPattern::Kind::full && options.soft_cap == 0.0 && options.dropout == 0.0 &&
         !extras.alibi_slopes.defined() && !extras.t5_bias.defined() && !extras.sinks.defined() &&
         !extras.document_starts.defined();
}

FusedSublayer try_fused_sublayer(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                                 const AttentionProjections& weights, const AttentionSublayerStep& caches,
                                 bool may_fuse) {
  AttentionSublayerStep args;
  if (may_fuse) args = step_arguments(x, residual, norm, weights, caches);
  const auto tries = [&](const char* kernel) {
    return args.stream.x.defined() && allows_kernel(x.device(), kSublayerOp, kernel);
  };
  Tensor parts;
  const int64_t out_numel = weights.out.dim(0) * weights.out.dim(1);
  if (!weights.qkv.is_quantized() && tries("one_launch")) LAMINA_LAUNCH_CUDA(attention_sublayer_step, args, parts);
  if (parts.defined()) {
    count_step(args, weights.qkv.plain.numel() + out_numel, weights.qkv.plain.nbytes() + weights.out.plain.nbytes(),
               parts);
    return {args.stream.finished(x, parts), {}, {}};
  }
  LinearWeight qkv = contiguous(weights.qkv);
  qkv.settled = weights.qkv.data().is_contiguous();
  const auto [h, projected] = norm_linear(x, residual, norm, qkv, weights.qkv_bias);
  if (tries("two_launches")) LAMINA_LAUNCH_CUDA(attention_output_step, args, projected, parts);
  if (!parts.defined()) {
    require_kernel(x.device(), kSublayerOp, "composed");
    return {{}, h, projected};
  }
  count_step(args, out_numel, weights.out.data().nbytes(), parts);
  return {{h, args.stream.finished(x, parts).parts}, h, projected};
}

SublayerOutput attention_sublayer_step(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                                       const AttentionProjections& weights, const Tensor& k_cache,
                                       const Tensor& v_cache, const Tensor& places, const StepRotation& rotation,
                                       const AttentionOptions& options, const AttentionExtras& extras,
                                       const CacheScales& scales) {
  check_projections(x, weights, k_cache);
  check_row_norm(kSublayerOp, x, residual, norm);
  const int64_t d = k_cache.dim(3);
  check_same_device(kSublayerOp, {x, weights.qkv.data(), weights.out.data(), k_cache, v_cache, places, rotation.cos});
  const FusedSublayer fused = try_fused_sublayer(x, residual, norm, weights,
                                                 {.k_cache = k_cache,
                                                  .v_cache = v_cache,
                                                  .places = places,
                                                  .rotation = rotation,
                                                  .scale = resolved(options, d).scale},
                                                 only_scales(options, extras) && v_cache.defined());
  if (fused.output.parts.defined()) return fused.output;
  const Tensor& projected = fused.projected;
  const Tensor heads = projected.reshape({x.dim(0), 1, d == 0 ? 2 * k_cache.dim(1) : projected.dim(2) / d, d});
  const Tensor y = attention_step(heads, k_cache, v_cache, places, rotation, options, extras, scales);
  return single_part(fused.h, project(y.reshape({x.dim(0), 1, weights.out.dim(1)}), weights.out, weights.out_bias));
}

}  // namespace lamina::ops
