#pragma once

#include "lamina/ops/attention/attention_decode.h"

namespace lamina::ops {

/// Kernel arguments, all contiguous. On the CPU q and y are in the accumulation type and lengths in i64; on CUDA they
/// keep the caller's dtypes.
struct AttentionDecode {
  Tensor q;
  Tensor k_cache;
  Tensor v_cache;
  Tensor lengths;
  AttentionOptions options;
  AttentionExtras extras;
  CacheScales scales;
  Tensor y;
};

namespace cpu {
void attention_decode(const AttentionDecode& args);
}  // namespace cpu
namespace cuda {
void attention_decode(const AttentionDecode& args);
}  // namespace cuda

}  // namespace lamina::ops
