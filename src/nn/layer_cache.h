#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "lamina/tensor/tensor.h"

namespace lamina::nn {

/// Cache of one mixer during generation: keys and values, a latent, or a recurrent state. It only holds memory:
/// ModelCache tracks the number of tokens per row, and ForwardContext passes it on. Its tensors have a leading batch
/// dimension and are written in place, so views of rows stay valid.
class LayerCache {
 public:
  LayerCache() = default;
  virtual ~LayerCache() = default;
  LayerCache(const LayerCache&) = delete;
  LayerCache& operator=(const LayerCache&) = delete;

  /// Allocated bytes, whether used or not.
  virtual int64_t bytes() const = 0;
  /// Empties a row: sets states to zero. Keys and values stay in memory; the row's length says which are valid.
  virtual void reset(int64_t row) = 0;
  /// Whether lowering the length drops the last tokens: true for keys and values, false for recurrent states.
  virtual bool can_truncate() const = 0;
  /// The smallest nonzero length that a row can be truncated to. Above 0 if a sliding window has dropped early tokens.
  virtual int64_t shortest(int64_t /*row*/) const { return 0; }
  /// Gathers rows: row i becomes a copy of the old row sources[i] (beam search, copies of a prompt).
  virtual void reorder(std::span<const int64_t> sources) = 0;
  /// A view of rows [begin, begin + count) in the same memory.
  virtual std::unique_ptr<LayerCache> rows(int64_t begin, int64_t count) const = 0;
};

/// Gathers rows of a cache tensor in place: t[i] ← t[sources[i]].
void reorder_rows(Tensor& tensor, std::span<const int64_t> sources);

}  // namespace lamina::nn
