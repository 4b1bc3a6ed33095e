#include "lamina/ops/attention/cache_store_kernel.h"

#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

constexpr const char* kStoreOp = "cache_store";

bool has_dense_rows(const Tensor& tensor) { return tensor.dim(-1) <= 1 || tensor.strides()[tensor.rank() - 1] == 1; }

Tensor with_dense_rows(const Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  return has_dense_rows(tensor) ? tensor.detach() : tensor.detach().contiguous();
}

/// Checks that `fresh`, the new keys or values, fits `cache`. The names are for error messages.
void check_pair(const char* cache_name, const Tensor& cache, const char* name, const Tensor& fresh,
                const Tensor& scales) {
  check_floating(kStoreOp, name, fresh);
  LAMINA_CHECK(fresh.rank() == 4, kStoreOp, ": ", name, " is ", fresh.shape(),
               "; expected [batch, seq, n_kv_heads, width]");
  LAMINA_CHECK(cache.rank() == 4, kStoreOp, ": ", cache_name, " is ", cache.shape(),
               "; expected [batch, n_kv_heads, capacity, width]");
  check_shape(kStoreOp, cache_name, cache, {fresh.dim(0), fresh.dim(2), cache.dim(2), fresh.dim(3)});
  LAMINA_CHECK(has_dense_rows(cache), kStoreOp, ": the last dimension of ", cache_name, " has stride ",
               cache.strides()[3],
               "; expected 1, since the cache is written in place; pass the cache or a slice of its rows, not a "
               "transposed view");
  check_cache_scales(kStoreOp, cache_name, cache, scales);
}

void check_places(const Tensor& places, int64_t seq, int64_t capacity) {
  if (places.device().kind() != DeviceKind::cpu) return;  // the CUDA kernel checks the values
  for (int64_t b = 0; b < places.numel(); ++b) {
    const int64_t place = places.data<int64_t>()[b];
    LAMINA_CHECK(place >= 0 && seq <= capacity && place <= capacity - seq, kStoreOp, ": places[", b, "] is ", place,
                 "; expected 0 up to ", capacity - seq, ", so that ", seq, " tokens fit the capacity ", capacity,
                 "; make a larger cache");
  }
}

}  // namespace

void check_cache_scales(const char* op, const char* name, const Tensor& cache, const Tensor& scales) {
  LAMINA_CHECK(cache.dtype() == DType::u8 || is_floating(cache.dtype()), op, ": ", name, " is ", cache.dtype(),
               "; expected a floating type, or u8 with scales");
  if (cache.dtype() != DType::u8) {
    LAMINA_CHECK(!scales.defined(), op, ": ", name, " is ", cache.dtype(),
                 " and has scales; only u8 caches take scales");
    return;
  }
  LAMINA_CHECK(scales.defined(), op, ": ", name, " is u8 without scales; give f32 [batch, n_kv_heads, capacity]");
  check_dtype(op, "the scales of a cache", scales, DType::f32);
  check_shape(op, "the scales of a cache", scales, {cache.dim(0), cache.dim(1), cache.dim(2)});
}

Tensor dequantize(const Tensor& cache, const Tensor& scales, DType dtype) {
  Shape each = scales.shape();
  each.push_back(1);
  const Tensor middle = Tensor::full({1}, 128.0, DType::f32, cache.device());
  return mul(sub(cache.to(DType::f32), middle), scales.reshape(each)).to(dtype);
}

void cache_store(const Tensor& k_cache, const Tensor& v_cache, const Tensor& k, const Tensor& v, const Tensor& places,
                 const CacheScales& scales) {
  check_pair("k_cache", k_cache, "k", k, scales.k);
  LAMINA_CHECK(v_cache.defined() == v.defined(), kStoreOp, ": ", v.defined() ? "v" : "v_cache", " is given without ",
               v.defined() ? "v_cache" : "v", "; give both, or neither for a cache with one tensor per token");
  if (v.defined()) {
    check_pair("v_cache", v_cache, "v", v, scales.v);
    check_dtype(kStoreOp, "v_cache", v_cache, k_cache.dtype());
    check_dtype(kStoreOp, "v", v, k.dtype());
    check_shape(kStoreOp, "v", v, {k.dim(0), k.dim(1), k.dim(2), v.dim(3)});
    check_shape(kStoreOp, "v_cache", v_cache, {k.dim(0), k.dim(2), k_cache.dim(2), v.dim(3)});
  }
  LAMINA_CHECK(places.defined(), kStoreOp, ": places is undefined; give [batch] of i64");
  check_dtype(kStoreOp, "places", places, DType::i64);
  check_shape(kStoreOp, "places", places, {k.dim(0)});
  check_same_device(kStoreOp, {k_cache, v_cache, k, v, places, scales.k, scales.v});
  CacheStore args{k_cache, v_cache, with_dense_rows(k), with_dense_rows(v), places.contiguous(), scales};
  check_places(args.places, k.dim(1), k_cache.dim(2));
  for (const Tensor& written : {k_cache, v_cache, scales.k, scales.v}) {
    if (written.defined()) written.mark_written(kStoreOp);
  }
  const int64_t count = k.numel() + (v.defined() ? v.numel() : 0);
  const auto moved = static_cast<int64_t>(size_of(k.dtype()) + size_of(k_cache.dtype()));
  LAMINA_LAUNCH(k.device(), (Work{0, count * moved}), cache_store, args);
}

}  // namespace lamina::ops
