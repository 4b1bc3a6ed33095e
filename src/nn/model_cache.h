#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "lamina/nn/layer.h"
#include "lamina/nn/layer_cache.h"

namespace lamina::nn {

/// Parses the dtype argument of Model::make_cache: "f32", "f64", "bf16", "f16", or "q8" for u8.
DType cache_dtype_named(std::string_view name);

/// State of a model during generation: the number of tokens in each row, and every layer's cache.
class ModelCache {
 public:
  /// With `keeps_ids`, the token ids are stored, too, for models that may have to recompute the cache (see
  /// Model::cached_logits).
  ModelCache(std::vector<std::unique_ptr<LayerCache>> layers, int64_t batch, int64_t capacity, DType dtype,
             bool keeps_ids);

  int64_t batch() const { return static_cast<int64_t>(rows_.size()); }  ///< number of rows
  int64_t capacity() const { return capacity_; }                        ///< maximum number of tokens in a row
  std::vector<int64_t> lengths() const;                                 ///< number of tokens in each row
  /// Number of source tokens in each row. Empty before Model::read_source.
  std::vector<int64_t> source_lengths() const;
  /// Bytes allocated by the caches of all layers.
  int64_t bytes() const;

  /// Empties a row; its source stays.
  void reset(int64_t row);
  /// Drops a row's tokens from position `length` on. Throws an Error if a layer keeps a recurrent state, which cannot
  /// be rewound (see can_truncate), or if a sliding window has already dropped tokens that would be needed.
  void truncate(int64_t row, int64_t length);
  bool can_truncate() const;  ///< whether no layer keeps a recurrent state, or neighbours of a chunk
  /// Gathers rows: row i becomes a copy of the old row sources[i].
  void reorder(std::span<const int64_t> sources);
  /// A view of rows [begin, begin + count), for example to fill one row while the others wait.
  ModelCache rows(int64_t begin, int64_t count) const;

 private:
  friend class Model;
  struct Row {
    int64_t length = 0;
    /// Sequence length for which the RoPE frequencies of the cached keys were computed. Larger than `length` after a
    /// truncation.
    int64_t made_at = 0;
    std::vector<int64_t> ids;
    int64_t source_length = 0;
  };
  ModelCache() = default;
  Row& row(const char* what, int64_t index) const;
  friend class LayerStack;
  /// Caches of one layer; null where the layer has none.
  LayerCaches layer(size_t index) const {
    return {layers_.at(index).get(), sources_.empty() ? nullptr : sources_.at(index).get()};
  }
  /// Records that `ids` were appended to the row.
  void append(int64_t row, std::span<const int64_t> ids);

  std::vector<std::unique_ptr<LayerCache>> layers_;
  /// Cross-attention caches per layer: keys and values of the source (empty before Model::read_source) or, in a model
  /// with retrieval, of the neighbours. Null for layers without cross-attention.
  std::vector<std::unique_ptr<LayerCache>> sources_;
  std::vector<std::shared_ptr<Row>> rows_;  ///< shared with views
  int64_t capacity_ = 0;
  DType dtype_ = DType::f32;
  bool keeps_ids_ = false;
};

}  // namespace lamina::nn
