#include "lamina/ops/attention/attention.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/attention/attention_checks.h"
#include "lamina/ops/attention/attention_kernel.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

constexpr const char* kOp = "attention";

void check_tensors(const char* op, const Tensor& q, const Tensor& k, const Tensor& v, const AttentionExtras& extras) {
  check_floating(op, "q", q);
  check_dtype(op, "k", k, q.dtype());
  check_dtype(op, "v", v, q.dtype());
  LAMINA_CHECK(q.rank() == 4, op, ": q is ", q.shape(), "; expected [batch, seq_q, n_heads, d_qk]");
  LAMINA_CHECK(k.rank() == 4, op, ": k is ", k.shape(), "; expected [batch, seq_k, n_kv_heads, d_qk]");
  LAMINA_CHECK(v.rank() == 4, op, ": v is ", v.shape(), "; expected [batch, seq_k, n_kv_heads, d_v]");
  check_shape(op, "k", k, {q.dim(0), k.dim(1), k.dim(2), q.dim(3)});
  check_shape(op, "v", v, {q.dim(0), k.dim(1), k.dim(2), v.dim(3)});
  LAMINA_CHECK(k.dim(2) > 0 ? q.dim(2) % k.dim(2) == 0 : q.dim(2) == 0, op, ": q has ", q.dim(2), " heads, k has ",
               k.dim(2), "; expected n_heads to be a multiple of n_kv_heads");
  check_same_device(op, {q, k, v, extras.alibi_slopes, extras.t5_bias, extras.sinks, extras.document_starts});
}

/// Makes the last dimension contiguous. Kernels accept any strides of the other dimensions, so slices of a packed QKV
/// projection need no copy.
Tensor with_contiguous_last_dim(const Tensor& x) { return x.strides()[3] == 1 ? x.detach() : x.detach().contiguous(); }

/// Allocates dq, dk and dv. If q, k, v are slices of one packed tensor, the GPU writes dq, dk, dv into one packed
/// buffer: the gradient of the QKV projection, without a copy.
void make_gradients(AttentionBackward& args) {
  const AttentionForward& in = args.forward;
  const AttentionSizes sizes = attention_sizes(in);
  const auto like = [](const Tensor& t) { return Tensor::empty(t.shape(), t.dtype(), t.device()); };
  if (in.q.device().like() != DeviceKind::cuda || sizes.d_qk != sizes.d_v || sizes.seq_q != sizes.seq_k ||
      !in.q.shares_memory_with(in.k)) {
    args.dq = like(in.q);
    args.dk = like(in.k);
    args.dv = like(in.v);
    return;
  }
  const Tensor all = Tensor::empty({sizes.batch, sizes.seq_q, sizes.n_heads + 2 * sizes.n_kv_heads, sizes.d_qk},
                                   in.q.dtype(), in.q.device());
  args.dq = all.slice(2, 0, sizes.n_heads);
  args.dk = all.slice(2, sizes.n_heads, sizes.n_kv_heads);
  args.dv = all.slice(2, sizes.n_heads + sizes.n_kv_heads, sizes.n_kv_heads);
}

void run_backward(Backward& b, AttentionForward forward) {
  enum { kQ, kK, kV, kT5, kSinks };
  forward.q = b.saved(0);
  forward.k = b.saved(1);
  forward.v = b.saved(2);
  forward.y = b.saved(3);
  const auto like = [](const Tensor& t) { return Tensor::empty(t.shape(), t.dtype(), t.device()); };
  AttentionBackward args;
  args.forward = forward;
  args.dy = b.grad(0);
  make_gradients(args);
  if (b.needs(kT5)) args.dt5_bias = like(forward.extras.t5_bias);
  if (b.needs(kSinks)) args.dsinks = like(forward.extras.sinks);
  LAMINA_LAUNCH(forward.q.device(), attention_work(forward, true), attention_backward, args);
  if (b.needs(kQ)) b.add(kQ, std::move(args.dq));
  if (b.needs(kK)) b.add(kK, std::move(args.dk));
  if (b.needs(kV)) b.add(kV, std::move(args.dv));
  if (b.needs(kT5)) b.add(kT5, std::move(args.dt5_bias));
  if (b.needs(kSinks)) b.add(kSinks, std::move(args.dsinks));
}

}  // namespace

AttentionForward checked_attention(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                                   const AttentionOptions& options, const AttentionExtras& extras) {
  check_tensors(op, q, k, v, extras);
  AttentionForward args;
  args.q = with_contiguous_last_dim(q);
  args.k = with_contiguous_last_dim(k);
  args.v = with_contiguous_last_dim(v);
  const AttentionSizes sizes = attention_sizes(args);
  check_attention_options(op, options, sizes);
  check_attention_extras(op, options, extras, sizes);
  args.options = resolved(options, sizes.d_qk);
  args.extras = prepared(extras, q.dtype());
  args.y = Tensor::empty({sizes.batch, sizes.seq_q, sizes.n_heads, sizes.d_v}, q.dtype(), q.device());
  const Shape per_query{sizes.batch, sizes.n_heads, sizes.seq_q};
  args.row_max = Tensor::empty(per_query, accumulation_type(q.dtype()), q.device());
  args.row_inv_sum = Tensor::empty(per_query, accumulation_type(q.dtype()), q.device());
  return args;
}

Work attention_work(const AttentionForward& args, bool backward) {
  if (args.y.numel() == 0) return {};
  const AttentionSizes sizes = attention_sizes(args);
  const double pairs = static_cast<double>(sizes.batch * sizes.n_heads) *
                       AttentionMask::pairs(args.options, args.q.dim(1), args.k.dim(1), document_starts(args));
  const int64_t bytes = args.q.nbytes() + args.k.nbytes() + args.v.nbytes() + args.y.nbytes();
  const int64_t products = backward ? 3 * sizes.d_qk + 2 * sizes.d_v : sizes.d_qk + sizes.d_v;
  return {whole(2 * pairs * static_cast<double>(products)), backward ? 2 * bytes : bytes};
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                 const AttentionExtras& extras) {
  AttentionForward args = checked_attention(kOp, q, k, v, options, extras);
  LAMINA_LAUNCH(q.device(), attention_work(args, false), attention_forward, args);

  AttentionForward kept = args;  // the tape saves q, k, v and y; run_backward() restores them
  kept.q = kept.k = kept.v = kept.y = Tensor();
  record(kOp, {q, k, v, extras.t5_bias, extras.sinks}, {args.y}, {args.q, args.k, args.v, args.y},
         [kept](Backward& b) { run_backward(b, kept); });
  return args.y;
}

}  // namespace lamina::ops
