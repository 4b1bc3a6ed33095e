#pragma once

#include "lamina/ops/attention/attention_decode.h"

namespace lamina::ops {

/// Kernel arguments, shaped as in attention_decode(), all contiguous. On a CPU q and y are in the accumulation type and
/// lengths in i64; on CUDA they keep the caller's dtypes. If `tables` is defined (CPU only, i32 [batch, any]), the
/// caches are pages [pages, n_kv_heads, page_size, width]. v_cache may then be k_cache: the values are the first
/// columns of the keys.
struct AttentionDecode {
  Tensor q;
  Tensor k_cache;
  Tensor v_cache;
  Tensor lengths;
  AttentionOptions options;
  AttentionExtras extras;
  CacheScales scales;
  Tensor y;
  Tensor tables;  ///< page tables of a paged cache, or undefined
};

namespace cpu {
void attention_decode(const AttentionDecode& args);
}  // namespace cpu
namespace cuda {
void attention_decode(const AttentionDecode& args);
}  // namespace cuda

}  // namespace lamina::ops
