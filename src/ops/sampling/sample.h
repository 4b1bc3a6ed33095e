#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Filters act in the order of the fields, each on what the one before left, renormalised.
struct SampleOptions {
  double temperature = 1.0;  ///< divides the logits; 0 takes the likeliest token, the first of equals
  int64_t top_k = 0;         ///< keep the k largest logits and their equals; 0: all
  double top_p = 1.0;  ///< drop the least likely tokens, of equals those of higher ids first, up to 1 − p together
  double min_p = 0.0;  ///< keep tokens at least this likely, relative to the likeliest
  uint64_t seed = 0;
};

/// One token of each row, drawn by its probability among those kept.
///   logits   [rows, vocab]  any floating type; an Error where one is not a number
///   streams  [rows] i64     of the seed's random numbers, one for each row
///   drawn    [rows] i64     how many numbers the row has drawn; counted on by one
///   ids      [rows] i64     written
///   clock    any shape, i64 counted on by one (count_on): what a step that ends with the choice has to count; or none
/// The first token, by id, whose running sum of probabilities exceeds number drawn[r] of the stream. No gradient.
void sample(const Tensor& logits, const Tensor& streams, Tensor drawn, Tensor ids, const SampleOptions& options,
            Tensor clock = {});

struct SampleArgs {
  Tensor logits;  ///< dense
  Tensor streams;
  Tensor drawn;
  SampleOptions options;
  Tensor ids;
  Tensor clock;
};

namespace cpu {
void sample(const SampleArgs& args);
}  // namespace cpu
namespace cuda {
void sample(const SampleArgs& args);
}  // namespace cuda

}  // namespace lamina::ops
