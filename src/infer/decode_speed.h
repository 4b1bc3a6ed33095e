#pragma once

#include "lamina/nn/model.h"

namespace lamina::infer {

/// Result of measure_decode().
struct DecodeSpeed {
  double seconds_per_step = 0;  ///< time of one step of all rows, in the best round
  double tokens_per_second = 0;
  double bytes_per_step = 0;  ///< bytes that the operators of the first step read and write, as they report it
};

/// Options of measure_decode().
struct DecodeSpeedOptions {
  int64_t batch = 1;
  int64_t context = 1;   ///< number of cached tokens per row before the first step
  int64_t tokens = 128;  ///< number of steps
  int rounds = 3;        ///< number of rounds after a warm-up round; the best one counts
  std::optional<DType> cache_dtype;
};

/// Measures greedy decoding. Every row starts with `context` tokens in its cache.
DecodeSpeed measure_decode(nn::Model& model, const DecodeSpeedOptions& options);

/// Result of measure_prefill().
struct PrefillSpeed {
  double tokens_per_second = 0;
  double flops_per_token = 0;  ///< as reported by the operators
};

/// Options of measure_prefill().
struct PrefillSpeedOptions {
  int64_t prompts = 1;
  int64_t length = 512;        ///< tokens of each prompt
  int64_t step_tokens = 8192;  ///< new tokens per step; a step packs several prompts, or a chunk of a longer one
  int rounds = 3;
  std::optional<DType> cache_dtype;
};

/// Measures reading prompts, up to and including the first sampled token of each.
PrefillSpeed measure_prefill(nn::Model& model, const PrefillSpeedOptions& options);

}  // namespace lamina::infer
