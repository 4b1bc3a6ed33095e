#pragma once

#include <string>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// Operations of one token, averaged over a sequence of a given length. A multiplication with an addition counts as
/// two. Products, scores and scans are counted; norms, activations and positions, a percent or so, are not.
struct Flops {
  double products = 0;  ///< 2 · the active numbers of every matrix, the head included
  double mixing = 0;    ///< scores and weighted values over the keys seen, or the scan over states
  double forward() const { return products + mixing; }
  double training() const { return 3 * forward(); }  ///< backward costs two forwards
};
Flops flops_per_token(const ArchSpec& spec, int64_t length);

/// Keys a query sees, averaged over the positions of a causal sequence of this length.
double average_keys(const Pattern& pattern, int64_t length);

/// What one written block keeps between tokens while generating.
struct CacheRow {
  std::string where;  ///< layers[0].pattern[1]
  std::string kind;   ///< "multi-head", "grouped-query 4:1", "multi-query", "latent", "state"; with its window
  int64_t layers = 0;
  double per_token = 0;      ///< numbers a new token adds in one layer, until the window is full
  double largest_count = 0;  ///< tokens after which nothing is added; 0: never
  double constant = 0;       ///< numbers kept whatever the length
  /// Numbers all layers of the row hold for one sequence of this length.
  double at(int64_t length) const;
};
std::vector<CacheRow> cache_rows(const ArchSpec& spec);

/// Bytes that training takes.
struct TrainingMemory {
  double weights = 0;
  double gradients = 0;    ///< of a whole pass
  double optimizer = 0;    ///< its state, and averages of the weights
  double activations = 0;  ///< what comes on top at most, also what is free in between
  double total() const { return weights + gradients + optimizer + activations; }
};

}  // namespace lamina::arch
