#include "lamina/nn/mixers/attention_weights.h"

#include <algorithm>

#include "lamina/nn/forward_observer.h"

namespace lamina::nn {
namespace {

/// Number of keys whose weights one attention call returns: the head width of its values.
constexpr int64_t kKeysAtOnce = 64;

/// Values [batch, keys, kv_heads, count] that select keys: column i is 1 at key first + i and 0 elsewhere.
Tensor identity_columns(const Tensor& k, int64_t first, int64_t count) {
  const int64_t heads = k.dim(2);
  std::vector<float> values(static_cast<size_t>(k.dim(0) * k.dim(1) * heads * count), 0.0F);
  for (int64_t row = 0; row < k.dim(0); ++row) {
    for (int64_t i = 0; i < count * heads; ++i) {
      const int64_t key = row * k.dim(1) + first + i / heads;
      values[static_cast<size_t>((key * heads + i % heads) * count + i / heads)] = 1.0F;
    }
  }
  return Tensor::from(values, {k.dim(0), k.dim(1), heads, count}, k.device()).to(k.dtype());
}

}  // namespace

bool observes_attention(const ForwardContext& pass) {
  return pass.observer != nullptr && pass.observer->wants_attention(pass.layer);
}

void offer_attention(const Tensor& q, const Tensor& k, const ops::AttentionOptions& options,
                     const ops::AttentionExtras& extras, const ForwardContext& pass) {
  if (!observes_attention(pass)) return;
  for (int64_t first = 0; first < k.dim(1); first += kKeysAtOnce) {
    const Tensor v = identity_columns(k, first, std::min(kKeysAtOnce, k.dim(1) - first));
    pass.observer->attention(pass.layer, first, ops::attention(q, k, v, options, extras));
  }
}

}  // namespace lamina::nn
