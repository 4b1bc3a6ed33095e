#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "lamina/tensor/tensor.h"

namespace lamina::nn {

/// What one mixer keeps between calls while generating: keys and values, a latent, or a state. How many tokens each
/// row holds is known to the model's cache and comes with the Pass; a layer's cache is memory only. Its tensors begin
/// with the batch dimension and are written in place, so that views of rows stay views.
class LayerCache {
 public:
  LayerCache() = default;
  virtual ~LayerCache() = default;
  LayerCache(const LayerCache&) = delete;
  LayerCache& operator=(const LayerCache&) = delete;

  /// Bytes held, whatever part of them is in use.
  virtual int64_t bytes() const = 0;
  /// Row `row` starts anew. Keys and values need nothing, because lengths say what counts; states become zero.
  virtual void reset(int64_t row) = 0;
  /// Whether tokens at the end can be taken back by a smaller length alone: keys and values yes, states no.
  virtual bool can_truncate() const = 0;
  /// The fewest tokens that a row can be cut back to, but for none at all: more than 0 where early ones were dropped.
  virtual int64_t shortest(int64_t /*row*/) const { return 0; }
  /// Before a step on the device's clock (Pass::clock): row b holds lengths[b] tokens and gets one more.
  virtual void prepare_step(std::span<const int64_t> /*lengths*/) {}
  /// Row i becomes what row sources[i] was (beams; copies of a prompt).
  virtual void reorder(std::span<const int64_t> sources) = 0;
  /// The rows [begin, begin + count) as a cache of their own that shares this one's memory.
  virtual std::unique_ptr<LayerCache> rows(int64_t begin, int64_t count) const = 0;
};

/// Gathers rows of a cache tensor in place: t[i] ← t[sources[i]].
void reorder_rows(Tensor& tensor, std::span<const int64_t> sources);

}  // namespace lamina::nn
