#pragma once

#include <memory>
#include <vector>

#include "lamina/nn/layer_cache.h"

namespace lamina::nn {

/// What a model keeps between calls while generating: how many tokens each row holds, and every layer's memory.
class ModelCache {
 public:
  ModelCache(std::vector<std::unique_ptr<LayerCache>> layers, int64_t batch, int64_t capacity);

  int64_t batch() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t capacity() const { return capacity_; }
  const std::vector<int64_t>& lengths() const { return lengths_; }
  int64_t bytes() const;

  /// The row is empty again.
  void reset(int64_t row);
  /// The row forgets the tokens from `length` on. An error where a layer keeps a state, which cannot go back; use
  /// can_truncate to know.
  void truncate(int64_t row, int64_t length);
  bool can_truncate() const;
  /// Row i becomes what row sources[i] was.
  void reorder(std::span<const int64_t> sources);
  /// A cache of the rows [begin, begin + count) that shares this one's memory: how one row is filled while the others
  /// wait. Its lengths are its own: afterwards give them back with set_length.
  ModelCache rows(int64_t begin, int64_t count) const;
  void set_length(int64_t row, int64_t length);

  /// Null for a layer that keeps nothing.
  LayerCache* layer(size_t index) const { return layers_.at(index).get(); }

 private:
  void check_row(const char* what, int64_t row) const;

  std::vector<std::unique_ptr<LayerCache>> layers_;
  std::vector<int64_t> lengths_;
  int64_t capacity_;
};

}  // namespace lamina::nn
