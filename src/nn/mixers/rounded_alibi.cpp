#include "lamina/nn/mixers/rounded_alibi.h"

#include <algorithm>

#include "lamina/ops/elementwise/concat.h"

namespace lamina::nn {
namespace {

float rounded(float value) { return static_cast<float>(bf16(value)); }

/// The position of each token, in row-major order of [batch, seq].
std::vector<int64_t> positions_of(const ForwardContext& pass) {
  std::vector<int64_t> given;
  if (pass.positions.defined() && !pass.positions.is_meta()) given = pass.positions.to_vector<int64_t>();
  std::vector<int64_t> positions;
  for (int64_t row = 0; row < pass.batch; ++row) {
    for (int64_t s = 0; s < pass.seq; ++s) {
      // A list of length seq is shared by all rows.
      const auto index = static_cast<size_t>(row * pass.seq + s) % std::max<size_t>(given.size(), 1);
      positions.push_back(given.empty() ? pass.offset_of(row) + s : given[index]);
    }
  }
  return positions;
}

Tensor with_constants(const Tensor& x, const std::vector<float>& constants, int64_t width) {
  const Tensor beside = Tensor::from(constants, {x.dim(0), x.dim(1), x.dim(2), width}, x.device());
  return ops::concat({x, beside.to(x.dtype())}, -1);
}

}  // namespace

RoundedAlibi::RoundedAlibi(const std::vector<float>& slopes, int64_t n_kv_heads, double factor)
    : n_kv_heads_(n_kv_heads), factor_(factor) {
  for (const float slope : slopes) slopes_.push_back(rounded(slope));
}

Tensor RoundedAlibi::extend_queries(const Tensor& q) const {
  std::vector<float> chosen;
  for (int64_t token = 0; token < q.dim(0) * q.dim(1); ++token) {
    for (int64_t h = 0; h < q.dim(2); ++h) {
      for (int64_t i = 0; i < width(); ++i) chosen.push_back(i == h % width() ? 1.0F : 0.0F);
    }
  }
  return with_constants(q, chosen, width());
}

Tensor RoundedAlibi::extend_keys(const Tensor& k, const ForwardContext& pass) const {
  std::vector<float> biases;
  for (const int64_t position : positions_of(pass)) {
    const float place = rounded(static_cast<float>(position));
    for (const float slope : slopes_) {
      biases.push_back(static_cast<float>(factor_ * static_cast<double>(rounded(slope * place))));
    }
  }
  return with_constants(k, biases, width());
}

}  // namespace lamina::nn
