#pragma once

#include "lamina/nn/mixers/key_value_cache.h"
#include "lamina/ops/attention/cache_store.h"

namespace lamina::nn {

/// Cache of multi-head latent attention. All heads share a latent and a rotated key part per token.
///   [batch, 1, capacity, kv_lora_rank + qk_rope], the layout of attention_decode for a single KV head
class LatentCache final : public LayerCache {
 public:
  explicit LatentCache(CachedTokens latents) : latents_(std::move(latents)) {}

  int64_t bytes() const override { return latents_.bytes(); }
  void reset(int64_t /*row*/) override {}
  bool can_truncate() const override { return true; }
  void reorder(std::span<const int64_t> sources) override { latents_.reorder(sources); }
  std::unique_ptr<LayerCache> rows(int64_t begin, int64_t count) const override {
    return std::make_unique<LatentCache>(latents_.rows(begin, count));
  }

  /// Appends fresh [batch, seq, 1, width] for the tokens of `pass`.
  void write(const Tensor& fresh, const ForwardContext& pass) { store(fresh, places_of(pass, fresh.device())); }
  const CachedTokens& latents() const { return latents_; }

 private:
  void store(const Tensor& fresh, const Tensor& places) {
    ops::cache_store(latents_.numbers, Tensor(), fresh, Tensor(), places, {latents_.scales, Tensor()});
  }

  CachedTokens latents_;
};

}  // namespace lamina::nn
