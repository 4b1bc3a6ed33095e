#pragma once

#include "lamina/nn/layer_cache.h"
#include "lamina/nn/pass.h"

namespace lamina::nn {

/// Keys and values of one layer, the tokens of a head one behind the other as attention_decode reads them.
///   k [batch, n_kv_heads, capacity, d_qk], v [batch, n_kv_heads, capacity, d_v]
class KeyValueCache final : public LayerCache {
 public:
  KeyValueCache(Tensor k, Tensor v) : k_(std::move(k)), v_(std::move(v)) {}

  int64_t bytes() const override { return k_.nbytes() + v_.nbytes(); }
  void reset(int64_t /*row*/) override {}
  bool can_truncate() const override { return true; }
  void reorder(std::span<const int64_t> sources) override;
  std::unique_ptr<LayerCache> rows(int64_t begin, int64_t count) const override;

  /// k, v [batch, seq, n_kv_heads, d] of the tokens of `pass`, put behind those already there.
  void write(const Tensor& k, const Tensor& v, const Pass& pass);
  const Tensor& k() const { return k_; }
  const Tensor& v() const { return v_; }
  /// fresh [batch, seq, heads, d] of the tokens of `pass` behind those of cache [batch, heads, capacity, d].
  static void put(const Tensor& cache, const Tensor& fresh, const Pass& pass);
  /// The first `length` keys or values of rows [row, row + count), as attention() takes them:
  /// [count, length, n_kv_heads, d].
  static Tensor read(const Tensor& cache, int64_t row, int64_t count, int64_t length, DType dtype);

 private:
  Tensor k_;
  Tensor v_;
};

}  // namespace lamina::nn
