#include "lamina/ops/attention/paged/paged_step_kernel.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/attention/attention_checks.h"
#include "lamina/ops/attention/attention_sublayer_step_kernel.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/linear/linear_kernel.h"
#include "lamina/ops/linear/norm_linear_kernel.h"

namespace lamina::ops {
namespace {

constexpr const char* kPagedStepOp = "paged_attention_step";
constexpr const char* kPagedSublayerOp = "paged_attention_sublayer_step";

/// The rotation with rotary_dim resolved (not 0); empty if there are no tables.
StepRotation checked_rotation(const StepRotation& given, const Tensor& qkv) {
  if (!given.cos.defined() && !given.sin.defined()) return {};
  StepRotation rotation = given;
  rotation.rotary_dim = checked_rotary_dim(kPagedStepOp, given.cos, given.sin, given.rotary_dim, qkv.dim(2));
  LAMINA_CHECK(rotation.positions.defined(), kPagedStepOp,
               ": rotation.positions is undefined; give the position of each row's token, i64 [rows]");
  check_dtype(kPagedStepOp, "rotation.positions", rotation.positions, DType::i64);
  check_shape(kPagedStepOp, "rotation.positions", rotation.positions, {qkv.dim(0)});
  check_same_device(kPagedStepOp, {qkv, rotation.cos, rotation.sin, rotation.positions});
  return rotation;
}

void check_step(const Tensor& qkv, const PagedCache& cache, const PagedRows& rows) {
  check_floating(kPagedStepOp, "qkv", qkv);
  LAMINA_CHECK(qkv.rank() == 3, kPagedStepOp, ": qkv is ", qkv.shape(), "; expected [rows, n_heads + 2 n_kv_heads, d]");
  check_paged(kPagedStepOp, cache, rows, qkv.dim(0));
  LAMINA_CHECK(qkv.dim(0) == rows.rows(), kPagedStepOp, ": qkv has ", qkv.dim(0), " tokens of ", rows.rows(),
               " rows; expected one token per row");
  LAMINA_CHECK(cache.v.defined() && cache.v.shape() == cache.k.shape(), kPagedStepOp, ": cache.v is ",
               cache.v.defined() ? str(cache.v.shape()) : "undefined", "; expected the shape of cache.k, ",
               cache.k.shape());
  const int64_t n_kv_heads = cache.k.dim(1);
  const int64_t n_heads = qkv.dim(1) - 2 * n_kv_heads;
  LAMINA_CHECK(n_kv_heads > 0 ? n_heads >= 0 && n_heads % n_kv_heads == 0 : n_heads == 0, kPagedStepOp, ": qkv has ",
               qkv.dim(1), " heads in all, the cache has ", n_kv_heads,
               "; expected n_heads + 2 n_kv_heads, n_heads a multiple of n_kv_heads");
  check_shape(kPagedStepOp, "cache.k", cache.k, {cache.k.dim(0), n_kv_heads, cache.page_size(), qkv.dim(2)});
  for (size_t row = 0; row < rows.host_starts.size(); ++row) {
    LAMINA_CHECK(rows.host_starts[row] == static_cast<int32_t>(row), kPagedStepOp, ": rows.starts[", row, "] is ",
                 rows.host_starts[row], "; expected one token per row: 0, 1, 2, ...");
  }
  check_same_device(kPagedStepOp, {qkv, cache.k});
  LAMINA_CHECK(!is_tracked({qkv}), kPagedStepOp,
               ": has no gradient; use rotary() and attention(), or disable recording with NoGrad");
}

Tensor composed(const Tensor& qkv, const PagedStep& step, const AttentionOptions& options,
                const AttentionExtras& extras) {
  const PagedCache& cache = step.decode.cache;
  const StepRotation& rotation = step.rotation;
  const int64_t n_kv_heads = cache.k.dim(1);
  const int64_t n_heads = qkv.dim(1) - 2 * n_kv_heads;
  Tensor rotated = qkv.slice(1, 0, n_heads + n_kv_heads);
  if (rotation.cos.defined()) {
    rotated = rotary(rotated.reshape({qkv.dim(0), 1, n_heads + n_kv_heads, qkv.dim(2)}), rotation.cos, rotation.sin,
                     {.pairing = rotation.pairing,
                      .rotary_dim = rotation.rotary_dim,
                      .positions = rotation.positions.reshape({qkv.dim(0), 1})})
                  .reshape(rotated.shape());
  }
  const Tensor k = rotated.slice(1, n_heads, n_kv_heads);
  const Tensor v = qkv.slice(1, n_heads + n_kv_heads, n_kv_heads);
  paged_store(cache, step.decode.rows, k, v);
  return paged_attention(rotated.slice(1, 0, n_heads), k, v, cache, step.decode.rows, qkv.dim(2), options, extras);
}

Tensor run_step(const Tensor& qkv, const PagedCache& cache, const PagedRows& rows, const StepRotation& rotation,
                const AttentionOptions& options, const AttentionExtras& extras, bool settled) {
  check_step(qkv, cache, rows);
  const int64_t n_kv_heads = cache.k.dim(1);
  const int64_t n_heads = qkv.dim(1) - 2 * n_kv_heads;
  check_same_device(kPagedStepOp, {qkv, extras.alibi_slopes, extras.t5_bias, extras.sinks});
  check_cached_attention(kPagedStepOp, options, extras,
                         {rows.rows(), 0, rows.capacity(cache.page_size()), n_heads, n_kv_heads,
                          n_kv_heads == 0 ? 0 : n_heads / n_kv_heads, qkv.dim(2), qkv.dim(2)});
  PagedStep step;
  step.settled = settled;
  step.rotation = checked_rotation(rotation, qkv);
  step.decode.cache = cache;
  step.decode.rows = rows;
  const Tensor dense = qkv.detach().contiguous();
  if (qkv.device().kind() != DeviceKind::cuda || qkv.numel() == 0 || n_heads == 0) {
    return composed(dense, step, options, extras);
  }
  step.decode.q = dense.slice(1, 0, n_heads);
  step.decode.options = resolved(options, qkv.dim(2));
  step.decode.extras = prepared(extras, qkv.dtype());
  step.decode.y = Tensor::empty(step.decode.q.shape(), qkv.dtype(), qkv.device());
  if (rotation.cos.defined()) {
    step.rotation.cos = as_accumulation(rotation.cos, qkv.dtype());
    step.rotation.sin = as_accumulation(rotation.sin, qkv.dtype());
    step.rotation.positions = rotation.positions.contiguous();
  }
  bool done = false;
  LAMINA_LAUNCH_CUDA(paged_attention_step, step, done);
  if (!done) return composed(dense, step, options, extras);
  for (const Tensor& written : {cache.k, cache.v, cache.scales.k, cache.scales.v}) {
    if (written.defined()) written.mark_written(kPagedStepOp);
  }
  double keys = 0;
  for (const int32_t length : rows.host_lengths) keys += length;
  if (rows.host_lengths.empty()) keys = static_cast<double>(rows.rows() * rows.capacity(cache.page_size()));
  const auto key = static_cast<double>(2 * n_kv_heads * qkv.dim(2)) * static_cast<double>(size_of(cache.k.dtype()));
  qkv.device().add_work({whole(4 * keys * static_cast<double>(n_heads * qkv.dim(2))), whole(keys * key)});
  return step.decode.y;
}

}  // namespace

Tensor paged_attention_step(const Tensor& qkv, const PagedCache& cache, const PagedRows& rows,
                            const StepRotation& rotation, const AttentionOptions& options,
                            const AttentionExtras& extras) {
  return run_step(qkv, cache, rows, rotation, options, extras, false);
}

SublayerOutput paged_attention_sublayer_step(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                                             const AttentionProjections& weights, const PagedCache& cache,
                                             const PagedRows& rows, const StepRotation& rotation,
                                             const AttentionOptions& options, const AttentionExtras& extras) {
  LAMINA_CHECK(x.defined() && x.rank() == 3 && x.dim(1) == 1, kPagedSublayerOp, ": x is ",
               x.defined() ? str(x.shape()) : "undefined", "; expected one token per row: [rows, 1, width]");
  LAMINA_CHECK(cache.k.defined() && cache.k.rank() == 4, kPagedSublayerOp, ": cache.k is ",
               cache.k.defined() ? str(cache.k.shape()) : "undefined", "; expected [pages, n_kv_heads, page_size, d]");
  check_row_norm(kPagedSublayerOp, x, residual, norm);
  check_projection(kPagedSublayerOp, x, weights.qkv, weights.qkv_bias);
  const int64_t d = cache.k.dim(3);
  LAMINA_CHECK(d > 0 && weights.qkv.dim(0) % d == 0, kPagedSublayerOp, ": weights.qkv is ", weights.qkv.shape(),
               ", the cache has heads of ", d, "; expected the rows of n_heads + 2 n_kv_heads such heads");
  const int64_t kv_rows = 2 * cache.k.dim(1) * d;  // rows of keys and values in the QKV projection
  LAMINA_CHECK(weights.qkv.dim(0) >= kv_rows, kPagedSublayerOp, ": weights.qkv is ", weights.qkv.shape(),
               ", the cache has ", cache.k.dim(1), " heads of ", d,
               "; expected the rows of n_heads + 2 n_kv_heads heads");
  check_output_projection(kPagedSublayerOp, weights.out, {x.dim(2), weights.qkv.dim(0) - kv_rows});
  if (weights.out_bias.defined()) check_shape(kPagedSublayerOp, "weights.out_bias", weights.out_bias, {x.dim(2)});
  check_same_device(kPagedSublayerOp,
                    {x, weights.qkv.data(), weights.out.data(), cache.k, cache.v, rows.tables, rotation.cos});
  const bool one = x.dim(0) == 1 && rows.rows() == 1 && rotation.positions.defined() == rotation.cos.defined();
  if (one) check_paged(kPagedSublayerOp, cache, rows, 1);
  const FusedSublayer fused = try_fused_sublayer(x, residual, norm, weights,
                                                 {.k_cache = cache.k,
                                                  .v_cache = cache.v,
                                                  .tables = rows.tables,
                                                  .lengths = rows.lengths,
                                                  .rotation = rotation,
                                                  .scale = resolved(options, d).scale},
                                                 one && only_scales(options, extras) && cache.v.defined());
  if (fused.output.parts.defined()) return fused.output;
  const Tensor& projected = fused.projected;
  const Tensor y =
      run_step(projected.reshape({x.dim(0), projected.dim(2) / d, d}), cache, rows, rotation, options, extras, true);
  LinearWeight out = weights.out;
  out.settled = true;
  return single_part(fused.h, project(y.reshape({x.dim(0), 1, y.dim(1) * d}), out, weights.out_bias));
}

}  // namespace lamina::ops
