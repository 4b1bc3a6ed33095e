#pragma once

#include "lamina/ops/attention/attention.h"
#include "lamina/ops/attention/attention_mask.h"

namespace lamina::ops {

/// Kernel arguments, shaped as in attention(). The last dimension of q, k and v is contiguous; all other tensors are
/// fully contiguous. Extras are in the accumulation type, document_starts in i64; unused ones are undefined.
/// `options.scale` is never 0.
struct AttentionForward {
  Tensor q;
  Tensor k;
  Tensor v;
  AttentionOptions options;
  AttentionExtras extras;
  Tensor y;
  /// Softmax statistics, [batch, n_heads, seq_q] each, accumulation type: the row maximum m, and 1 / Σ exp(score − m).
  /// They are stored as two numbers instead of one log-sum-exp, so that backward recomputes exactly the weights of
  /// forward.
  Tensor row_max;
  Tensor row_inv_sum;
  /// Set by the kernel: row_max holds log Σ exp(score) instead, and row_inv_sum was not written (cuDNN).
  bool saved_log_sum_exp = false;
};
struct AttentionBackward {
  AttentionForward forward;
  Tensor dy;
  Tensor dq;
  Tensor dk;
  Tensor dv;
  Tensor dt5_bias;  ///< accumulation type, or undefined
  Tensor dsinks;    ///< accumulation type, or undefined
};

namespace cpu {
void attention_forward(const AttentionForward& args);
void attention_backward(const AttentionBackward& args);
}  // namespace cpu
namespace cuda {
void attention_forward(AttentionForward& args);
void attention_backward(const AttentionBackward& args);
}  // namespace cuda

/// Sizes of one attention call.
struct AttentionSizes {
  int64_t batch;
  int64_t seq_q;
  int64_t seq_k;
  int64_t n_heads;
  int64_t n_kv_heads;
  int64_t group;  ///< query heads per KV head
  int64_t d_qk;
  int64_t d_v;
};

inline AttentionSizes attention_sizes(const AttentionForward& args) {
  AttentionSizes sizes{};
  sizes.batch = args.q.dim(0);
  sizes.seq_q = args.q.dim(1);
  sizes.seq_k = args.k.dim(1);
  sizes.n_heads = args.q.dim(2);
  sizes.n_kv_heads = args.k.dim(2);
  sizes.group = sizes.n_kv_heads == 0 ? 0 : sizes.n_heads / sizes.n_kv_heads;
  sizes.d_qk = args.q.dim(3);
  sizes.d_v = args.v.dim(3);
  return sizes;
}

/// Checks the arguments and returns them in the form that kernels take, with outputs allocated. Errors name `op`.
AttentionForward checked_attention(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                                   const AttentionOptions& options, const AttentionExtras& extras);
/// FLOPs of the products over visible (query, key) pairs, and bytes of each tensor once.
Work attention_work(const AttentionForward& args, bool backward);

/// Address of the first element of head `head` at position `at` of batch row `b`, in a tensor [batch, seq, heads, d].
/// Consecutive positions are strides()[1] apart.
template <class T>
const T* head_rows(const Tensor& tensor, int64_t b, int64_t at, int64_t head) {
  const Shape& strides = tensor.strides();
  return tensor.data<T>() + b * strides[0] + at * strides[1] + head * strides[2];
}

/// The starts of packed documents. Only a CPU can read them here; on other devices the result is empty (one document).
inline std::vector<int64_t> document_starts(const AttentionForward& args) {
  const Tensor& given = args.extras.document_starts;
  if (!given.defined() || given.device().kind() != DeviceKind::cpu) return {};
  return given.to_vector<int64_t>();
}
inline AttentionMask attention_mask(const AttentionForward& args) {
  return {args.options, args.q.dim(1), args.k.dim(1), document_starts(args)};
}

}  // namespace lamina::ops
