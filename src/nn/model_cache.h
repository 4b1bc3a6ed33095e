#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "lamina/nn/layer_cache.h"

namespace lamina::nn {

/// "f32", "f64", "bf16", "f16", or "q8" for u8: the type of Model::make_cache as people write it.
DType cache_dtype_named(std::string_view name);

/// What a model keeps between calls while generating: how many tokens each row holds, and every layer's memory.
class ModelCache {
 public:
  /// With `keeps_ids` the tokens themselves are kept too, for models that must compute them anew (see
  /// Model::cached_logits).
  ModelCache(std::vector<std::unique_ptr<LayerCache>> layers, int64_t batch, int64_t capacity, bool keeps_ids);

  int64_t batch() const { return static_cast<int64_t>(rows_.size()); }
  int64_t capacity() const { return capacity_; }
  std::vector<int64_t> lengths() const;
  /// Of all layers together.
  int64_t bytes() const;

  /// The row is empty again.
  void reset(int64_t row);
  /// The row forgets the tokens from `length` on. An error where a layer keeps a state, which cannot go back; use
  /// can_truncate to know. Layers with a window go back as far as what they still hold allows.
  void truncate(int64_t row, int64_t length);
  bool can_truncate() const;
  /// Row i becomes what row sources[i] was.
  void reorder(std::span<const int64_t> sources);
  /// Every row is about to get one more token by Model::step_logits: makes room, and counts it.
  void prepare_step();
  /// A view of the rows [begin, begin + count): how one row is filled while the others wait.
  ModelCache rows(int64_t begin, int64_t count) const;

 private:
  friend class Model;
  struct Row {
    int64_t length = 0;
    /// Length of the sequence when its tokens were last computed; larger than `length` after a truncation.
    int64_t made_at = 0;
    std::vector<int64_t> ids;
  };
  ModelCache() = default;
  Row& row(const char* what, int64_t index) const;
  /// Null for a layer that keeps nothing.
  LayerCache* layer(size_t index) const { return layers_.at(index).get(); }
  /// `ids` came behind the row's tokens.
  void append(int64_t row, std::span<const int64_t> ids);

  std::vector<std::unique_ptr<LayerCache>> layers_;
  std::vector<std::shared_ptr<Row>> rows_;  ///< shared with views
  int64_t capacity_ = 0;
  bool keeps_ids_ = false;
};

}  // namespace lamina::nn
