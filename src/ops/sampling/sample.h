#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Options of sample(). Filters are applied in the order of the fields, each to the renormalized result of the previous
/// one.
struct SampleOptions {
  double temperature = 1.0;  ///< divides the logits; 0: greedy (the likeliest token, ties to the lowest id)
  int64_t top_k = 0;         ///< keep the k largest logits, including ties with the k-th; 0: all
  double top_p = 1.0;  ///< drop the least likely tokens up to a total of 1 − p; among ties the highest ids first
  double min_p = 0.0;  ///< keep tokens that are at least min_p times as likely as the likeliest
  uint64_t seed = 0;   ///< seed of the random streams
};

/// Samples one token per row from the probabilities left by the filters.
///   logits   [rows, vocab]  any floating type; a NaN is an error
///   streams  [rows] i64     number of the random stream of each row
///   drawn    [rows] i64     how many random numbers each row has drawn; incremented
///   ids      [rows] i64     output: the sampled tokens
///   clock    any shape, i64 position counters of the decode step, incremented (increment_); optional
/// The sampled token is the first, by id, whose cumulative probability exceeds random number drawn[r] of the row's
/// stream. No gradient.
void sample(const Tensor& logits, const Tensor& streams, Tensor drawn, Tensor ids, const SampleOptions& options,
            Tensor clock = {});

}  // namespace lamina::ops
