#pragma once

#include "lamina/ops/attention/attention.h"
#include "lamina/ops/attention/attention_mask.h"
#include "lamina/ops/attention/cpu/tile_scratch.h"

namespace lamina::ops {

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

/// Checks the arguments and returns them as kernels take them, with outputs allocated; `op` is named in messages.
AttentionForward checked_attention(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                                   const AttentionOptions& options, const AttentionExtras& extras);
/// FLOPs of the products over visible (query, key) pairs; bytes of each tensor once.
Work attention_work(const AttentionForward& args, bool backward);

/// First element of head `head` at position `at` of batch row `b` of a tensor [batch, seq, heads, d]; consecutive
/// positions are strides()[1] apart.
template <class T>
const T* head_rows(const Tensor& tensor, int64_t b, int64_t at, int64_t head) {
  const Shape& strides = tensor.strides();
  return tensor.data<T>() + b * strides[0] + at * strides[1] + head * strides[2];
}

/// Only the CPU can read where documents start; on other devices everything counts as one document.
inline std::vector<int64_t> document_starts(const AttentionForward& args) {
  const Tensor& given = args.extras.document_starts;
  if (!given.defined() || given.device().kind() != DeviceKind::cpu) return {};
  return given.to_vector<int64_t>();
}
inline AttentionMask attention_mask(const AttentionForward& args) {
  return {args.options, args.q.dim(1), args.k.dim(1), document_starts(args)};
}

}  // namespace lamina::ops
