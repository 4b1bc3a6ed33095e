#pragma once

#include <algorithm>
#include <vector>

#include "lamina/nn/forward_context.h"
#include "lamina/nn/layer_cache.h"
#include "lamina/nn/mixers/cached_tokens.h"
#include "lamina/ops/attention/cache_scales.h"

namespace lamina::nn {

/// Cache index of each row's first new token: [batch] i64.
Tensor places_of(const ForwardContext& pass, const Device& device);

/// KV cache of one layer.
///   k [batch, n_kv_heads, room, d_qk], v [batch, n_kv_heads, room, d_v]
/// With sliding-window attention the cache holds only the window plus some slack. Each row holds its latest tokens in
/// order; first(row) is the position of the first one. When a row is full, its last window is moved to the front.
/// Unlike a ring buffer, this needs no support in the attention kernels, and one move serves many tokens.
class KeyValueCache final : public LayerCache {
 public:
  /// Allocates room for `capacity` tokens or, if that is less, for a sliding window. `window` 0: no window.
  static std::unique_ptr<KeyValueCache> make(const Shape& k, const Shape& v, int64_t window, DType dtype,
                                             const Device& device);

  int64_t bytes() const override { return k_.bytes() + v_.bytes(); }
  void reset(int64_t row) override;
  bool can_truncate() const override { return true; }
  int64_t shortest(int64_t row) const override;
  void reorder(std::span<const int64_t> sources) override;
  std::unique_ptr<LayerCache> rows(int64_t begin, int64_t count) const override;

  /// Appends k, v [batch, seq, n_kv_heads, d] for the tokens of `pass`. The cache then holds all of them and the window
  /// before the first. After more than kDecodeQueries tokens, a sliding cache holds only the last window.
  void write(const Tensor& k, const Tensor& v, const ForwardContext& pass);
  const CachedTokens& k() const { return k_; }
  const CachedTokens& v() const { return v_; }
  /// Scales of an 8-bit cache, for attention_decode.
  ops::CacheScales scales() const { return {k_.scales, v_.scales}; }
  /// Position of the first token held; 0 without a sliding window.
  int64_t first(int64_t row) const { return window_ > 0 ? (*firsts_)[static_cast<size_t>(row0_ + row)] : 0; }
  bool slides() const { return window_ > 0; }
  /// Number of tokens before position `offset` that a token there attends to.
  int64_t seen_before(int64_t offset) const { return window_ > 0 ? std::min(offset, window_ - 1) : offset; }

  /// The cached part of `tokens` (k() or v()) in rows [row, row + count) that a new token at position `offset` attends
  /// to: [count, tokens, n_kv_heads, d].
  Tensor read_before(const CachedTokens& tokens, int64_t row, int64_t count, int64_t offset, DType dtype) const;

 private:
  KeyValueCache(CachedTokens k, CachedTokens v) : k_(std::move(k)), v_(std::move(v)) {}
  /// Moves the row's tokens of positions [first, end) to the front.
  void slide(int64_t row, int64_t first, int64_t end);
  void write_row(const Tensor& k, const Tensor& v, int64_t row, int64_t offset, int64_t seq, int64_t count);

  CachedTokens k_;
  CachedTokens v_;
  int64_t window_ = 0;                            ///< 0: all tokens are kept
  std::shared_ptr<std::vector<int64_t>> firsts_;  ///< first(row) of all rows, shared with views
  int64_t row0_ = 0;                              ///< this view's first row in firsts_
};

}  // namespace lamina::nn
