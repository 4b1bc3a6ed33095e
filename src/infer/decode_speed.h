#pragma once

#include "lamina/nn/model.h"

namespace lamina::infer {

struct DecodeSpeed {
  double seconds_per_step = 0;  ///< time of one step of all rows; the best round
  double tokens_per_second = 0;
  double bytes_per_step = 0;  ///< bytes read and written by the first step, as reported by the operators
};

struct DecodeSpeedOptions {
  int64_t batch = 1;
  int64_t context = 1;   ///< tokens in each row's cache before the first step
  int64_t tokens = 128;  ///< steps
  int rounds = 3;        ///< after a warm-up round; the best one counts
  std::optional<DType> cache_dtype;
};

/// Measures greedy decoding with a full cache: every row starts after `context` tokens.
DecodeSpeed measure_decode(nn::Model& model, const DecodeSpeedOptions& options);

struct PrefillSpeed {
  double tokens_per_second = 0;
  double flops_per_token = 0;  ///< as reported by the operators
};

struct PrefillSpeedOptions {
  int64_t prompts = 1;
  int64_t length = 512;        ///< of each prompt
  int64_t step_tokens = 8192;  ///< new tokens in a step; prompts are packed into it, and longer ones cut into chunks
  int rounds = 3;
  std::optional<DType> cache_dtype;
};

/// Measures reading prompts, up to the first sampled token of each.
PrefillSpeed measure_prefill(nn::Model& model, const PrefillSpeedOptions& options);

}  // namespace lamina::infer
