#pragma once

#include <string>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// FLOPs per token, averaged over a sequence of a given length; a multiply-add counts as two. Counts GEMMs, attention
/// and scans. Norms, activations and positions (about a percent) are not counted. For an encoder–decoder: one token of
/// the source and one of the target, of that length each. With retrieval: one token, and its share of the neighbours.
struct Flops {
  double products = 0;  ///< GEMMs: 2 · the active elements of every matrix, including the head
  double mixing = 0;    ///< attention scores and weighted values, or the state space scan
  double forward() const { return products + mixing; }
  double training() const { return 3 * forward(); }  ///< backward costs twice the forward pass
};
Flops flops_per_token(const ArchSpec& spec, int64_t length);
/// FLOPs of a forward pass of an encoder–decoder over a source and a target of these lengths. Each token passes only
/// its own stack; keys and values of cross-attention are computed from the source.
double source_and_target_flops(const ArchSpec& spec, int64_t source_length, int64_t length);

/// Keys visible to a query, averaged over the positions of a sequence of this length; an upper bound for the sparse
/// patterns with global or random parts.
double average_keys(const Pattern& pattern, int64_t length, bool causal = true);

/// The cache of one block of the file during generation.
struct CacheRow {
  std::string where;  ///< layers[0].pattern[1]
  std::string kind;   ///< "multi-head", "grouped-query 4:1", "multi-query", "latent", "state"; with its pattern
  int64_t layers = 0;
  double per_token = 0;   ///< elements per token and layer, until the window is full
  double max_tokens = 0;  ///< tokens after which the cache stops growing; 0: never
  double constant = 0;    ///< elements independent of the length
  /// Elements in all layers of the row for one sequence of this length.
  double at(int64_t length) const;
};
/// Empty for a model that is not causal, which keeps nothing. Keys and values of cross-attention have rows of their
/// own; their tokens are those of the source.
std::vector<CacheRow> cache_rows(const ArchSpec& spec);

/// Memory for training, in bytes.
struct TrainingMemory {
  double weights = 0;
  double gradients = 0;    ///< of a whole pass
  double optimizer = 0;    ///< optimizer state and averaged weights
  double activations = 0;  ///< peak of everything else, including memory cached between uses
  double saving = 0;       ///< copy of weights and state from which a checkpoint is written while training goes on
  double total() const { return weights + gradients + optimizer + activations + saving; }
};

}  // namespace lamina::arch
