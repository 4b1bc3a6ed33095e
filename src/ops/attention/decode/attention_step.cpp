#include "lamina/ops/attention/attention_step_kernel.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/attention/attention_checks.h"
#include "lamina/ops/attention/cache_store_kernel.h"
#include "lamina/ops/elementwise/increment.h"
#include "lamina/ops/kernel_dispatch.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

constexpr const char* kStepOp = "attention_step";

/// The rotation with rotary_dim resolved (not 0); empty if there are no tables.
StepRotation checked_rotation(const StepRotation& given, const Tensor& qkv) {
  if (!given.cos.defined() && !given.sin.defined()) return {};
  StepRotation rotation = given;
  rotation.rotary_dim = checked_rotary_dim(kStepOp, given.cos, given.sin, given.rotary_dim, qkv.dim(3));
  if (rotation.positions.defined()) {
    check_dtype(kStepOp, "positions", rotation.positions, DType::i64);
    check_shape(kStepOp, "positions", rotation.positions, {qkv.dim(0)});
  }
  return rotation;
}

AttentionSizes checked_sizes(const Tensor& qkv, const Tensor& k, const Tensor& v, const Tensor& places,
                             const CacheScales& scales) {
  check_floating(kStepOp, "qkv", qkv);
  LAMINA_CHECK(qkv.rank() == 4 && qkv.dim(1) == 1, kStepOp, ": qkv is ", qkv.shape(),
               "; expected one token a row: [batch, 1, n_heads + 2 n_kv_heads, d]");
  LAMINA_CHECK(k.defined() && k.rank() == 4, kStepOp, ": k_cache is ", k.defined() ? str(k.shape()) : "undefined",
               "; expected [batch, n_kv_heads, capacity, d]");
  const int64_t n_kv_heads = k.dim(1);
  const int64_t n_heads = qkv.dim(2) - 2 * n_kv_heads;
  LAMINA_CHECK(n_kv_heads > 0 ? n_heads >= 0 && n_heads % n_kv_heads == 0 : n_heads == 0, kStepOp, ": qkv has ",
               qkv.dim(2), " heads in all, the caches have ", n_kv_heads,
               "; expected n_heads + 2 n_kv_heads, n_heads a multiple of n_kv_heads");
  check_shape(kStepOp, "k_cache", k, {qkv.dim(0), n_kv_heads, k.dim(2), qkv.dim(3)});
  check_dtype(kStepOp, "v_cache", v, k.dtype());
  check_shape(kStepOp, "v_cache", v, k.shape());
  check_cache_scales(kStepOp, "k_cache", k, scales.k);
  check_cache_scales(kStepOp, "v_cache", v, scales.v);
  LAMINA_CHECK(places.defined(), kStepOp, ": places is undefined; give [batch] of i64");
  check_dtype(kStepOp, "places", places, DType::i64);
  check_shape(kStepOp, "places", places, {qkv.dim(0)});
  LAMINA_CHECK(!is_tracked({qkv, k, v}), kStepOp,
               ": has no gradient; use rotary() and attention(), or disable recording with NoGrad");
  return {qkv.dim(0), 1,         k.dim(2), n_heads, n_kv_heads, n_kv_heads == 0 ? 0 : n_heads / n_kv_heads,
          qkv.dim(3), qkv.dim(3)};
}

bool on_whole_pack(const Tensor& tensor) {
  constexpr uintptr_t kPackBytes = 16;
  return reinterpret_cast<uintptr_t>(tensor.raw()) % kPackBytes == 0;
}

/// True if the CUDA kernel can do the step in one launch.
bool one_launch(const AttentionStep& step, const CacheScales& scales) {
  constexpr int64_t kColumns = 8;
  constexpr int64_t kWidest = 256;
  const AttentionDecode& decode = step.decode;
  if (decode.q.device().kind() != DeviceKind::cuda || decode.y.numel() == 0) return false;
  const int64_t d = decode.q.dim(3);
  if (d % kColumns != 0 || d > kWidest || !decode.k_cache.is_contiguous() || !decode.v_cache.is_contiguous()) {
    return false;
  }
  if (scales.k.defined() && !(scales.k.is_contiguous() && scales.v.is_contiguous())) return false;
  if (!on_whole_pack(decode.q) || !on_whole_pack(decode.k_cache) || !on_whole_pack(decode.v_cache)) return false;
  const StepRotation& rotation = step.rotation;
  if (!rotation.cos.defined()) return true;
  const bool split = rotation.pairing == RotaryPairing::half_split;
  return rotation.rotary_dim % (split ? 2 * kColumns : kColumns) == 0 && rotation.cos.dim(0) > 0 &&
         on_whole_pack(rotation.cos) && on_whole_pack(rotation.sin);
}

Tensor composed(const Tensor& qkv, const AttentionStep& step, const AttentionOptions& options,
                const AttentionExtras& extras, const CacheScales& scales) {
  const AttentionDecode& decode = step.decode;
  const StepRotation& rotation = step.rotation;
  const int64_t n_heads = decode.q.dim(2);
  const int64_t n_kv_heads = decode.k_cache.dim(1);
  Tensor rotated = qkv.slice(2, 0, n_heads + n_kv_heads);
  if (rotation.cos.defined()) {
    rotated = rotary(rotated, rotation.cos, rotation.sin,
                     {.pairing = rotation.pairing,
                      .rotary_dim = rotation.rotary_dim,
                      .positions = rotation.positions.reshape({qkv.dim(0), 1})});
  }
  cache_store(decode.k_cache, decode.v_cache, rotated.slice(2, n_heads, n_kv_heads),
              qkv.slice(2, n_heads + n_kv_heads, n_kv_heads), decode.lengths, scales);
  Tensor lengths = decode.lengths.clone();
  increment_(lengths);
  return attention_decode(rotated.slice(2, 0, n_heads), decode.k_cache, decode.v_cache, lengths, options, extras,
                          scales);
}

}  // namespace

Tensor attention_step(const Tensor& qkv, const Tensor& k_cache, const Tensor& v_cache, const Tensor& places,
                      const StepRotation& rotation, const AttentionOptions& options, const AttentionExtras& extras,
                      const CacheScales& scales) {
  const AttentionSizes sizes = checked_sizes(qkv, k_cache, v_cache, places, scales);
  AttentionStep step;
  step.rotation = checked_rotation(rotation, qkv);
  check_same_device(kStepOp, {qkv, k_cache, v_cache, places, rotation.cos, rotation.sin, rotation.positions,
                              extras.alibi_slopes, extras.t5_bias, extras.sinks, scales.k, scales.v});
  check_cached_attention(kStepOp, options, extras, sizes);

  const Tensor dense = qkv.detach().contiguous();
  step.decode.q = dense.slice(2, 0, sizes.n_heads);
  step.decode.k_cache = k_cache;
  step.decode.v_cache = v_cache;
  step.decode.lengths = places.contiguous();
  step.decode.y = Tensor::empty(step.decode.q.shape(), qkv.dtype(), qkv.device());
  if (step.rotation.cos.defined()) {
    step.rotation.cos = as_accumulation(rotation.cos, qkv.dtype());
    step.rotation.sin = as_accumulation(rotation.sin, qkv.dtype());
    step.rotation.positions = rotation.positions.defined() ? rotation.positions.contiguous() : step.decode.lengths;
  }
  if (!allows_kernel(qkv.device(), kStepOp, "one_launch") || !one_launch(step, scales)) {
    require_kernel(qkv.device(), kStepOp, "composed");
    return composed(dense, step, options, extras, scales);
  }

  step.decode.options = resolved(options, sizes.d_qk);
  step.decode.extras = prepared(extras, qkv.dtype());
  step.decode.scales = scales;
  for (const Tensor& written : {k_cache, v_cache, scales.k, scales.v}) {
    if (written.defined()) written.mark_written(kStepOp);
  }
  const double pairs = static_cast<double>(sizes.batch) * static_cast<double>(sizes.seq_k);  // assumes a full cache
  qkv.device().add_work({whole(4 * pairs * static_cast<double>(sizes.n_heads * sizes.d_qk)),
                         dense.nbytes() + step.decode.y.nbytes() + k_cache.nbytes() + v_cache.nbytes()});
  LAMINA_LAUNCH_CUDA(attention_step, step);
  return step.decode.y;
}

}  // namespace lamina::ops
