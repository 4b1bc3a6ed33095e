#include "lamina/nn/mixers/query_temperature.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/embedding/embedding.h"

namespace lamina::nn {

const Tensor& QueryTemperature::table(int64_t rows, const Device& device) {
  if (table_.defined() && table_.device() == device && table_.dim(0) >= rows) return table_;
  constexpr uint64_t kLeast = 64;  // minimum; sizes are powers of two, so that rebuilds are rare
  const auto count = static_cast<int64_t>(std::bit_ceil(std::max(static_cast<uint64_t>(rows), kLeast)));
  std::vector<float> factors;
  for (int64_t position = 0; position < count; ++position) {
    const auto steps = static_cast<double>((position + 1) / spec_.interval);
    factors.push_back(static_cast<float>(1.0 + spec_.scale * std::log1p(steps)));
  }
  table_ = Tensor::from(factors, {count, 1}, device);
  return table_;
}

Tensor QueryTemperature::apply(const Tensor& q, const ForwardContext& pass) {
  const Tensor& factors = table(std::max(pass.end(), pass.last_position() + 1), q.device());
  const Tensor rows =
      pass.positions.defined() ? ops::embedding(factors, pass.positions) : factors.slice(0, pass.offset, pass.seq);
  const int64_t batch = rows.numel() / pass.seq;  // 1 if all batch rows have the same positions
  return ops::mul(q, rows.reshape({batch, pass.seq, 1, 1}).to(q.dtype()));
}

}  // namespace lamina::nn
