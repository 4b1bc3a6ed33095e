#pragma once

#include <optional>
#include <vector>

#include "lamina/ops/attention/paged/paged_cache.h"

namespace lamina::nn {

/// Sizes and types of a SequenceCache.
struct SequenceCacheOptions {
  /// Number of pages in each group. A single number holds for all groups.
  std::vector<int64_t> pages;
  int64_t state_slots = 0;  ///< number of sequences and snapshots whose recurrent states are in memory at once
  int64_t page_size = 32;   ///< tokens per page: a power of two >= 16
  /// Data type of keys and values: floating point (f64 only with f64 weights), or u8 for 8 bits with a scale per token
  /// and head. Empty: the type of the embedding table. Recurrent states are never quantized.
  std::optional<DType> dtype;
};

/// The data that one layer caches per sequence: pages of keys and values (or latents), or a recurrent state of constant
/// size.
struct CacheLayout {
  int64_t n_kv_heads = 0;  ///< 0: no pages
  int64_t d_qk = 0;
  int64_t d_v = 0;            ///< 0: the values are the first elements of the keys (latents)
  int64_t window = 0;         ///< number of tokens that a query can see, including itself; 0: all
  bool allows_8_bits = true;  ///< false if keys contain biases, which 8 bits cannot represent
  /// Shapes of one sequence's convolution inputs and recurrent state. Empty: the layer has none.
  std::optional<Shape> conv;
  std::optional<Shape> scan;
};

/// Cache memory of one layer.
struct LayerMemory {
  int64_t group = -1;     ///< page group; -1: no pages
  ops::PagedCache pages;  ///< defined if group >= 0
  Tensor conv;            ///< [slots, ...], or undefined
  Tensor scan;            ///< [slots, ...] in f32 or f64, or undefined
};

/// Cache memory of all sequences of an inference engine. Layers that see the same range (all tokens, or a window of
/// some size) form a group with its own page tables, so that pages outside a window can be freed early. The caller
/// decides which page belongs to which sequence (RowBatch). The initial state of a slot is zeros.
class SequenceCache {
 public:
  /// `weights` is the data type of the model's embedding table.
  SequenceCache(const std::vector<CacheLayout>& layers, const SequenceCacheOptions& options, DType weights,
                const Device& device);

  int64_t groups() const { return static_cast<int64_t>(windows_.size()); }  ///< 0 for a pure state-space model
  int64_t window(int64_t group) const { return windows_.at(static_cast<size_t>(group)); }  ///< 0: all tokens
  int64_t pages(int64_t group) const { return pages_.at(static_cast<size_t>(group)); }
  int64_t page_size() const { return page_size_; }
  bool has_states() const { return has_states_; }
  int64_t state_slots() const { return state_slots_; }
  /// A slot that no sequence uses, for the padding rows of a CUDA graph's batch.
  int64_t unused_slot() const { return state_slots_; }

  int64_t bytes_per_page(int64_t group) const;
  int64_t bytes_per_state() const;
  int64_t bytes() const;

  /// Copies or clears the recurrent states of a slot in all layers.
  void copy_state(int64_t from_slot, int64_t to_slot);
  void clear_state(int64_t slot);
  /// Copies a page of a group in all layers, for copy-on-write of a partly filled page.
  void copy_page(int64_t group, int64_t from, int64_t to);

  LayerMemory& layer(size_t index) { return layers_.at(index); }

 private:
  int64_t group_of(int64_t window);
  void check_slot(const char* what, int64_t slot) const;

  std::vector<LayerMemory> layers_;
  std::vector<int64_t> windows_;
  std::vector<int64_t> pages_;
  int64_t page_size_;
  int64_t state_slots_;
  bool has_states_ = false;
};

/// The windows of the page groups that a cache for these layers would have, in order. Allocates nothing.
std::vector<int64_t> cache_windows(const std::vector<CacheLayout>& layers);

}  // namespace lamina::nn
