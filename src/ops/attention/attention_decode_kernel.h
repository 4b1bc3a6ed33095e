#pragma once

#include "lamina/ops/attention/attention_decode.h"

namespace lamina::ops {

/// Kernel arguments, all contiguous. On the CPU q and y are in the accumulation type and lengths in i64; on CUDA they
/// keep the caller's dtypes. With `tables` (CPU only, i32 [batch, any]) the caches are pages [pages, n_kv_heads,
/// page_size, width] and `v_cache` may be `k_cache`: the values are then the first columns of the keys.
struct AttentionDecode {
  Tensor q;
  Tensor k_cache;
  Tensor v_cache;
  Tensor lengths;
  AttentionOptions options;
  AttentionExtras extras;
  CacheScales scales;
  Tensor y;
  Tensor tables;  ///< page tables, or undefined
};

namespace cpu {
void attention_decode(const AttentionDecode& args);
}  // namespace cpu
namespace cuda {
void attention_decode(const AttentionDecode& args);
}  // namespace cuda

}  // namespace lamina::ops
