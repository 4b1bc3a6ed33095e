#include "lamina/nn/mixers/alibi_slopes.h"

#include <cmath>

#include "lamina/ops/position/tables.h"

namespace lamina::nn {

std::vector<float> alibi_slopes(const arch::Alibi& alibi, const arch::Attention& attention,
                                const ParameterFactory& make) {
  int64_t first = 0;
  int64_t heads = attention.n_heads;
  if (const arch::Shard* queries = make.shard("q.weight")) {  // this rank holds only some of the heads
    first = queries->begin / *attention.head_dim;
    heads = queries->whole_shape[0] / *attention.head_dim;
  }
  const std::vector<double> all = ops::alibi_slopes(heads);  // for max_bias = 8
  std::vector<float> slopes;
  for (int64_t h = first; h < first + attention.n_heads; ++h) {
    const double slope = std::pow(all[static_cast<size_t>(h)], alibi.max_bias / 8.0);
    slopes.push_back(static_cast<float>(slope * alibi.slope_scale));
  }
  return slopes;
}

}  // namespace lamina::nn
