#pragma once

#include <string>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// FLOPs per token, averaged over a sequence of a given length. A multiply-add counts as two. Counts GEMMs, attention
/// and scans; norms, activations and positions (about one percent) are not counted. For an encoder–decoder model: one
/// source token plus one target token, with both sequences of that length. With retrieval: one token plus its share of
/// the neighbours.
struct Flops {
  double products = 0;  ///< GEMMs: 2 · the number of active matrix elements, including the head
  double mixing = 0;    ///< attention scores and weighted values, or state space scans
  double forward() const { return products + mixing; }
  double training() const { return 3 * forward(); }  ///< backward costs twice the forward pass
};
Flops flops_per_token(const ArchSpec& spec, int64_t length);
/// Forward FLOPs of an encoder–decoder model for a source and a target of these lengths. Each token passes only its own
/// stack. Keys and values of cross-attention are computed from the source.
double source_and_target_flops(const ArchSpec& spec, int64_t source_length, int64_t length);

/// Number of keys visible to a query, averaged over the positions of a sequence of this length. An upper bound for
/// sparse patterns with global or random parts.
double average_keys(const Pattern& pattern, int64_t length, bool causal = true);

/// The cache that one block of the file needs during generation.
struct CacheRow {
  std::string where;  ///< for example layers[0].pattern[1]
  std::string kind;   ///< for example "grouped-query 4:1", "latent" or "state", with the attention pattern
  int64_t layers = 0;
  double per_token = 0;   ///< elements per token and layer; a window limits the number of tokens
  double max_tokens = 0;  ///< number of tokens at which the cache stops growing; 0: it grows without limit
  double constant = 0;    ///< elements independent of the length
  /// Number of elements for one sequence of this length, in all layers of the row.
  double at(int64_t length) const;
};
/// The caches of all blocks. Empty for a model that is not causal. Keys and values of cross-attention have rows of
/// their own, whose tokens are those of the source.
std::vector<CacheRow> cache_rows(const ArchSpec& spec);

/// Memory for training, in bytes.
struct TrainingMemory {
  double weights = 0;
  double gradients = 0;    ///< gradients of all weights
  double optimizer = 0;    ///< optimizer state and averaged weights
  double activations = 0;  ///< peak of everything else, including memory cached between uses
  /// Copy of weights and optimizer state from which a checkpoint is written while training continues.
  double saving = 0;
  double total() const { return weights + gradients + optimizer + activations + saving; }
};

}  // namespace lamina::arch
