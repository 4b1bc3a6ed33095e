#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "lamina/tensor/tensor.h"

namespace lamina::nn {

/// Cache of one mixer during generation: keys and values, a latent, or a recurrent state. It is memory only: the
/// ModelCache tracks the number of tokens per row and the ForwardContext carries it. Its tensors have a leading batch
/// dimension and are written in place, so that views of rows stay valid.
class LayerCache {
 public:
  LayerCache() = default;
  virtual ~LayerCache() = default;
  LayerCache(const LayerCache&) = delete;
  LayerCache& operator=(const LayerCache&) = delete;

  /// Bytes allocated, used or not.
  virtual int64_t bytes() const = 0;
  /// Empties a row: sets states to zero. Keys and values stay, because the row's length says which are valid.
  virtual void reset(int64_t row) = 0;
  /// Whether the last tokens can be dropped by lowering the length: true for keys and values, false for states.
  virtual bool can_truncate() const = 0;
  /// The smallest nonzero length a row can be truncated to; above 0 if a sliding window has dropped early tokens.
  virtual int64_t shortest(int64_t /*row*/) const { return 0; }
  /// Gathers rows: row i becomes a copy of the old row sources[i] (beam search, copies of a prompt).
  virtual void reorder(std::span<const int64_t> sources) = 0;
  /// A view of the rows [begin, begin + count) that shares this cache's memory.
  virtual std::unique_ptr<LayerCache> rows(int64_t begin, int64_t count) const = 0;
};

/// Gathers rows of a cache tensor in place: t[i] ← t[sources[i]].
void reorder_rows(Tensor& tensor, std::span<const int64_t> sources);

}  // namespace lamina::nn
