#include "lamina/ops/attention/attention_decode_kernel.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/attention/attention_checks.h"
#include "lamina/ops/attention/attention_mask.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

constexpr const char* kOp = "attention_decode";

void check_tensors(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& lengths,
                   const CacheScales& scales) {
  check_floating(kOp, "q", q);
  LAMINA_CHECK(k.defined(), kOp, ": k_cache is undefined");
  check_dtype(kOp, "v_cache", v, k.dtype());
  LAMINA_CHECK((q.dtype() == DType::f64) == (k.dtype() == DType::f64), kOp, ": q is ", q.dtype(), ", the caches are ",
               k.dtype(), "; expected both f64 or neither; convert with to(dtype)");
  LAMINA_CHECK(q.rank() == 4, kOp, ": q is ", q.shape(), "; expected [batch, seq_q, n_heads, d_qk]");
  LAMINA_CHECK(k.rank() == 4, kOp, ": k_cache is ", k.shape(), "; expected [batch, n_kv_heads, capacity, d_qk]");
  LAMINA_CHECK(v.rank() == 4, kOp, ": v_cache is ", v.shape(), "; expected [batch, n_kv_heads, capacity, d_v]");
  check_shape(kOp, "k_cache", k, {q.dim(0), k.dim(1), k.dim(2), q.dim(3)});
  check_shape(kOp, "v_cache", v, {q.dim(0), k.dim(1), k.dim(2), v.dim(3)});
  check_cache_scales(kOp, "k_cache", k, scales.k);
  check_cache_scales(kOp, "v_cache", v, scales.v);
  LAMINA_CHECK(k.dim(1) > 0 ? q.dim(2) % k.dim(1) == 0 : q.dim(2) == 0, kOp, ": q has ", q.dim(2),
               " heads, the caches have ", k.dim(1), "; expected n_heads to be a multiple of n_kv_heads");
  LAMINA_CHECK(lengths.defined() && (lengths.dtype() == DType::i32 || lengths.dtype() == DType::i64), kOp,
               ": lengths must be a tensor of i32 or i64");
  check_shape(kOp, "lengths", lengths, {q.dim(0)});
  LAMINA_CHECK(!is_tracked({q, k, v}), kOp, ": has no gradient; use attention(), or disable recording with NoGrad");
}

void check_lengths(const Tensor& lengths, int64_t seq_q, int64_t capacity) {
  if (lengths.device().kind() != DeviceKind::cpu) return;  // the CUDA kernel checks the values
  const std::vector<int64_t> values = lengths.to_vector<int64_t>();
  for (size_t b = 0; b < values.size(); ++b) {
    LAMINA_CHECK(values[b] == 0 || (values[b] >= seq_q && values[b] <= capacity), kOp, ": lengths[", b, "] is ",
                 values[b], "; expected 0, or from seq_q ", seq_q, " up to the capacity ", capacity,
                 "; write the new keys first and count them");
  }
}

/// FLOPs and bytes of a call. Only the CPU can read the lengths here; on other devices the KV caches count as full.
Work work_of(const AttentionDecode& args, const AttentionSizes& sizes) {
  const auto element = static_cast<int64_t>(size_of(args.k_cache.dtype()));
  Work work{0, args.q.nbytes() + args.y.nbytes()};
  if (args.y.numel() == 0) return work;
  const bool readable = args.lengths.device().kind() == DeviceKind::cpu;
  for (int64_t b = 0; b < sizes.batch; ++b) {
    const int64_t length = readable ? args.lengths.data<int64_t>()[b] : sizes.seq_k;
    const double pairs = AttentionMask::pairs(args.options, sizes.seq_q, length);
    const double keys = std::min(static_cast<double>(length), pairs);
    const auto width = static_cast<double>(sizes.d_qk + sizes.d_v);
    work.flops += whole(2 * pairs * static_cast<double>(sizes.n_heads) * width);
    const double key = width * static_cast<double>(element) + (args.scales.k.defined() ? 2.0 * sizeof(float) : 0.0);
    work.bytes += whole(keys * static_cast<double>(sizes.n_kv_heads) * key);
  }
  return work;
}

}  // namespace

Tensor attention_decode(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache, const Tensor& lengths,
                        const AttentionOptions& options, const AttentionExtras& extras, const CacheScales& scales) {
  check_tensors(q, k_cache, v_cache, lengths, scales);
  check_same_device(
      kOp, {q, k_cache, v_cache, lengths, extras.alibi_slopes, extras.t5_bias, extras.sinks, scales.k, scales.v});
  const AttentionSizes sizes{q.dim(0), q.dim(1),       k_cache.dim(2),
                             q.dim(2), k_cache.dim(1), k_cache.dim(1) == 0 ? 0 : q.dim(2) / k_cache.dim(1),
                             q.dim(3), v_cache.dim(3)};
  check_cached_attention(kOp, options, extras, sizes);
  check_lengths(lengths, sizes.seq_q, sizes.seq_k);
  AttentionDecode args;
  const bool converted = q.device().kind() != DeviceKind::cuda;
  args.q = converted ? as_accumulation(q, q.dtype()) : q.detach().contiguous();
  args.k_cache = k_cache.contiguous();
  args.v_cache = v_cache.contiguous();
  args.lengths = (converted ? lengths.to(DType::i64) : lengths).contiguous();
  args.options = resolved(options, sizes.d_qk);
  args.extras = prepared(extras, q.dtype());
  if (scales.k.defined()) args.scales = {scales.k.contiguous(), scales.v.contiguous()};
  args.y = Tensor::empty({sizes.batch, sizes.seq_q, sizes.n_heads, sizes.d_v}, args.q.dtype(), q.device());
  LAMINA_LAUNCH(q.device(), work_of(args, sizes), attention_decode, args);
  return q.dtype() == args.y.dtype() ? args.y : args.y.to(q.dtype());
}

}  // namespace lamina::ops
