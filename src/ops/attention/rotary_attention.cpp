#include "lamina/ops/attention/rotary_attention_kernel.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/attention/attention_kernel.h"
#include "lamina/ops/elementwise/split.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

constexpr const char* kRotaryOp = "rotary_attention";

/// Queries, keys and values of a packed projection, as views.
struct PackedHeads {
  Tensor q, k, v;
  PackedHeads(const Tensor& all, int64_t n_heads, int64_t n_kv_heads)
      : q(all.slice(2, 0, n_heads)),
        k(all.slice(2, n_heads, n_kv_heads)),
        v(all.slice(2, n_heads + n_kv_heads, n_kv_heads)) {}
};

/// True if kernels can read the table: f32, one angle per pair, 16-byte aligned.
bool is_plain_table(const Tensor& table, int64_t rows, int64_t pairs) {
  return table.dtype() == DType::f32 && table.is_contiguous() && table.shape() == Shape{rows, pairs} &&
         reinterpret_cast<uintptr_t>(table.raw()) % 16 == 0;
}

/// Rotary tables for kernels that apply the inverse rotation to gradients; undefined if these kernels cannot read them.
struct PlainAngles {
  Tensor cos;
  Tensor sin;
  PlainAngles(const Tensor& qkv, const HeadRotation& rotation) {
    const int64_t seq = qkv.dim(1);
    const int64_t head_dim = qkv.dim(3);
    const RotaryOptions& o = rotation.options;
    const bool whole_heads = o.rotary_dim == 0 || o.rotary_dim == head_dim;
    if (qkv.device().kind() != DeviceKind::cuda || !whole_heads || o.pairing != RotaryPairing::half_split ||
        o.positions.defined() || o.offset < 0 || o.offset + seq > rotation.cos.dim(0)) {
      return;
    }
    const Tensor some_cos = rotation.cos.detach().slice(0, o.offset, seq);
    const Tensor some_sin = rotation.sin.detach().slice(0, o.offset, seq);
    if (!is_plain_table(some_cos, seq, head_dim / 2) || !is_plain_table(some_sin, seq, head_dim / 2)) return;
    cos = some_cos;
    sin = some_sin;
  }
};

void run_rotary_attention_backward(Backward& b, AttentionForward in, const PlainAngles& angles, int64_t n_heads,
                                   int64_t n_kv_heads) {
  const Tensor& rotated = b.saved(0);
  const PackedHeads heads(rotated, n_heads, n_kv_heads);
  in.q = heads.q;
  in.k = heads.k;
  in.v = heads.v;
  in.y = b.saved(1);
  Tensor dqkv = Tensor::empty(rotated.shape(), rotated.dtype(), rotated.device());
  const PackedHeads gradients(dqkv, n_heads, n_kv_heads);
  RotaryAttentionBackward args;
  args.attention.forward = in;
  args.attention.dy = b.grad(0);
  args.attention.dq = gradients.q;
  args.attention.dk = gradients.k;
  args.attention.dv = gradients.v;
  args.cos = angles.cos;
  args.sin = angles.sin;
  rotated.device().add_work(attention_work(in, true));
  LAMINA_LAUNCH_CUDA(rotary_attention_backward, args);
  b.add(0, std::move(dqkv));
}

/// Attention whose backward is one fused kernel for whole heads, which also undoes the rotation. If there is no such
/// kernel, does nothing and returns an undefined tensor.
Tensor attend_with_fused_backward(const Tensor& qkv, int64_t n_heads, int64_t n_kv_heads, const HeadRotation& rotation,
                                  const AttentionOptions& options, const AttentionExtras& extras) {
  const PlainAngles angles(qkv, rotation);
  if (!angles.cos.defined() || !is_tracked({qkv})) return {};
  const Tensor all = qkv.detach();
  const PackedHeads heads(all, n_heads, n_kv_heads);
  [[maybe_unused]] AttentionForward args = checked_attention(kRotaryOp, heads.q, heads.k, heads.v, options, extras);
  bool known = false;
  LAMINA_LAUNCH_CUDA(has_rotary_backward, args, known);
  if (!known) return {};
  rotary_in_place(all, n_heads + n_kv_heads, rotation.cos, rotation.sin, rotation.options);
  all.device().add_work(attention_work(args, false));
  LAMINA_LAUNCH_CUDA(attention_forward, args);
  Tensor y = args.y;
  args.q = args.k = args.v = args.y = Tensor();  // the tape saves them
  record(kRotaryOp, {qkv}, {y}, {all, y}, [args, angles, n_heads, n_kv_heads](Backward& b) {
    run_rotary_attention_backward(b, args, angles, n_heads, n_kv_heads);
  });
  return y;
}

}  // namespace

Tensor rotary_attention(const Tensor& qkv, int64_t n_heads, int64_t n_kv_heads, const HeadRotation& rotation,
                        const AttentionOptions& options, const AttentionExtras& extras) {
  check_floating(kRotaryOp, "qkv", qkv);
  LAMINA_CHECK(n_heads >= 0 && n_kv_heads >= 0 && qkv.rank() == 4 && qkv.dim(2) == n_heads + 2 * n_kv_heads, kRotaryOp,
               ": qkv is ", qkv.shape(), "; expected [batch, seq, ", n_heads, " + 2 · ", n_kv_heads, ", head_dim]");
  checked_rotary_dim(kRotaryOp, rotation.cos, rotation.sin, rotation.options.rotary_dim, qkv.dim(3));
  check_same_device(kRotaryOp, {qkv, rotation.cos, rotation.sin, rotation.options.positions});
  LAMINA_CHECK(qkv.is_contiguous(), kRotaryOp,
               ": qkv must be contiguous; pass the projection itself, not a slice of a larger tensor");
  Tensor y = attend_with_fused_backward(qkv, n_heads, n_kv_heads, rotation, options, extras);
  if (y.defined()) return y;
  const Tensor rotated = rotary_in_place(qkv, n_heads + n_kv_heads, rotation.cos, rotation.sin, rotation.options);
  const std::vector<Tensor> parts = split(rotated, {n_heads, n_kv_heads, n_kv_heads}, 2);
  return attention(parts[0], parts[1], parts[2], options, extras);
}

}  // namespace lamina::ops
