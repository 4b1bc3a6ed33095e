#pragma once

#include "lamina/nn/model.h"

namespace lamina::infer {

struct DecodeSpeed {
  double seconds_per_step = 0;  ///< time of one step of all rows; the best round
  double tokens_per_second = 0;
  double bytes_per_step = 0;  ///< average bytes read and written, as reported by the operators
};

/// Measures greedy decoding of `tokens` tokens after a single token, with `batch` rows. Reports the best of `rounds`
/// rounds, after a warm-up round. `cache_dtype` as in Model::make_cache.
DecodeSpeed measure_decode(nn::Model& model, int64_t batch, int64_t tokens, int rounds,
                           std::optional<DType> cache_dtype = {});

}  // namespace lamina::infer
