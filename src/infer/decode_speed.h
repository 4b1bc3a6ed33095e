#pragma once

#include "lamina/nn/model.h"

namespace lamina::infer {

struct DecodeSpeed {
  double seconds_per_step = 0;  ///< of one step of all rows; the best round
  double tokens_per_second = 0;
  double bytes_per_step = 0;  ///< read and written on average, as the operators announce them
};

/// Greedy decoding of `tokens` behind a single token, `batch` rows at once: the best of some rounds, behind one that
/// touches the memory. `cache_dtype` as Model::make_cache takes it.
DecodeSpeed measure_decode(nn::Model& model, int64_t batch, int64_t tokens, int rounds,
                           std::optional<DType> cache_dtype = {});

}  // namespace lamina::infer
