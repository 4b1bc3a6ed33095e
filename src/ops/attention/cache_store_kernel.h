#pragma once

#include "lamina/ops/attention/cache_store.h"

namespace lamina::ops {

/// Kernel arguments as in cache_store(). k and v have a contiguous last dimension; places are contiguous.
struct CacheStore {
  Tensor k_cache;
  Tensor v_cache;
  Tensor k;
  Tensor v;
  Tensor places;
  CacheScales scales;
};

namespace cpu {
void cache_store(const CacheStore& args);
}  // namespace cpu
namespace cuda {
void cache_store(const CacheStore& args);
}  // namespace cuda

}  // namespace lamina::ops
