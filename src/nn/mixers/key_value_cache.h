#pragma once

#include <algorithm>
#include <vector>

#include "lamina/nn/device_clock.h"
#include "lamina/nn/layer_cache.h"
#include "lamina/nn/mixers/cached_tokens.h"
#include "lamina/nn/pass.h"
#include "lamina/ops/attention/cache_scales.h"

namespace lamina::nn {

/// [batch] i64: where the first new token of each row goes.
Tensor places_of(const Pass& pass, const Device& device);

/// Keys and values of one layer.
///   k [batch, n_kv_heads, room, d_qk], v [batch, n_kv_heads, room, d_v]
/// Where no token sees further back than a window, the room is that of the window and some more: each row holds its
/// latest tokens, `first(row)` being the position of the first one, and when its room is full the last window moves to
/// the front. (Tokens stay in order, so that attention needs to know nothing of it; one move is shared by many tokens.)
class KeyValueCache final : public LayerCache {
 public:
  /// Room for `capacity` tokens, or for those of a window (0: none) where that is less.
  static std::unique_ptr<KeyValueCache> make(const Shape& k, const Shape& v, int64_t window, DType dtype,
                                             const Device& device);

  int64_t bytes() const override { return k_.bytes() + v_.bytes(); }
  void reset(int64_t row) override;
  bool can_truncate() const override { return true; }
  int64_t shortest(int64_t row) const override;
  void reorder(std::span<const int64_t> sources) override;
  std::unique_ptr<LayerCache> rows(int64_t begin, int64_t count) const override;
  void prepare_step(std::span<const int64_t> lengths) override;

  /// k, v [batch, seq, n_kv_heads, d] of the tokens of `pass`, put behind those already there. All of them are there
  /// afterwards, and a window before the first, unless they are more than kDecodeQueries: then the last window is.
  void write(const Tensor& k, const Tensor& v, const Pass& pass);
  /// The same for one token a row, at the places of the clock. Returns how many tokens each row holds then, [batch].
  Tensor write_step(const Tensor& k, const Tensor& v, const DeviceClock& clock);
  /// Where write_step would put the tokens, for who writes them himself and calls count_step() then.
  Tensor step_places(const DeviceClock& clock) const { return slides() ? clock_->places() : clock.places(); }
  void count_step() {
    if (slides()) clock_->advance();
  }
  const CachedTokens& k() const { return k_; }
  const CachedTokens& v() const { return v_; }
  /// Of caches of 8 bits, for attention_decode.
  ops::CacheScales scales() const { return {k_.scales, v_.scales}; }
  /// The position of the first token held; always 0 without a window.
  int64_t first(int64_t row) const { return window_ > 0 ? (*firsts_)[static_cast<size_t>(row0_ + row)] : 0; }
  bool slides() const { return window_ > 0; }
  /// How many tokens before position `offset` a token may see.
  int64_t seen_before(int64_t offset) const { return window_ > 0 ? std::min(offset, window_ - 1) : offset; }

  /// Those of k() or v() in rows [row, row + count) that a token at position `offset` may see, before it is written:
  /// [count, tokens, n_kv_heads, d].
  Tensor read_before(const CachedTokens& tokens, int64_t row, int64_t count, int64_t offset, DType dtype) const;

 private:
  KeyValueCache(CachedTokens k, CachedTokens v) : k_(std::move(k)), v_(std::move(v)) {}
  /// The row's tokens from position `first` on, up to `end`, become the first ones held.
  void slide(int64_t row, int64_t first, int64_t end);
  void write_row(const Tensor& k, const Tensor& v, int64_t row, int64_t offset, int64_t seq, int64_t count);

  CachedTokens k_;
  CachedTokens v_;
  int64_t window_ = 0;                            ///< 0: every token is held
  std::shared_ptr<std::vector<int64_t>> firsts_;  ///< of all rows, shared with views
  int64_t row0_ = 0;                              ///< this view's first row among them
  std::unique_ptr<DeviceClock> clock_;            ///< of the window's places, where steps are repeated
  std::vector<int64_t> clock_places_;             ///< what it shows
};

}  // namespace lamina::nn
