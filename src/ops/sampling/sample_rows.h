#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Sampling options of each row. They are in device memory, so that a captured CUDA graph stays valid while sequences
/// come and go. Tensors are [rows]; an undefined tensor means the default in parentheses for every row.
struct RowSampling {
  Tensor temperature;  ///< f32 (1): divides the logits; 0: greedy
  Tensor top_k;        ///< i32 (0): keep the k largest logits, including ties with the k-th; 0: all
  Tensor top_p;  ///< f32 (1): drop the least likely tokens up to a total of 1 − p; among ties the highest ids first
  Tensor min_p;  ///< f32 (0): keep tokens that are at least min_p times as likely as the likeliest
  Tensor typical_p;   ///< f32 (1): keep tokens whose −log p is closest to the entropy, up to this probability mass
  Tensor repetition;  ///< f32 (1): divides positive and multiplies negative logits of tokens seen before
  Tensor presence;    ///< f32 (0): subtracted from the logits of tokens in the answer
  Tensor frequency;   ///< f32 (0): subtracted once per occurrence in the answer
  Tensor seed;        ///< i64 (0): key of the random numbers
  Tensor drawn;       ///< i64 (0): index of the random number, which is the position in the answer; not modified
  /// i32 [rows, vocab], needed for penalties. Low 31 bits: occurrences of the token in the answer. Bit 31: it is in the
  /// prompt.
  Tensor counts;
  Tensor bias;  ///< f32 [rows, vocab] (0): added to the logits
  /// i32 [rows, ⌈vocab / 32⌉] (all ones): bit id % 32 of word id / 32 is 1 if the token may be sampled
  Tensor mask;
};

/// Samples one token per row, with the row's own options.
///   logits      [rows, vocab], any floating type
///   vocab_size  only ids below it are sampled; 0: all
///   ids         [rows] i64, written: the sampled tokens
///   logprobs    f32 [rows, 1 + top_logprobs], written; undefined: not wanted. The log-probability of the chosen token
///               and of the `top_logprobs` likeliest ones under the model: softmax of the raw logits below vocab_size
///   top_ids     i64 [rows, top_logprobs], written: ids of the likeliest tokens, ties to the lowest id
/// Order per row: bias, penalties and mask; then temperature, top_k, top_p, min_p and typical_p, each applied to the
/// renormalized result of the previous one, as in infer::Sampler. The sampled token is the first, by id, whose
/// cumulative probability exceeds number `drawn` of the random stream (seed, 0). So it depends only on logits, options
/// and position. Temperature 0 takes the likeliest token, ties to the lowest id. A NaN logit is an error. If the mask
/// allows no token, or all logits of a sampled row are −inf, the id is −1 and its log-probability −inf. No gradient.
void sample_rows(const Tensor& logits, const RowSampling& options, int64_t vocab_size, int64_t top_logprobs, Tensor ids,
                 Tensor logprobs, Tensor top_ids);

/// Adds 1 to counts[rows[i], ids[i]], the occurrence counts of RowSampling. Entries with rows[i] < 0 are skipped.
///   counts [slots, vocab] i32, written; rows [n] i32; ids [n] i64
void count_tokens(Tensor counts, const Tensor& rows, const Tensor& ids);

}  // namespace lamina::ops
