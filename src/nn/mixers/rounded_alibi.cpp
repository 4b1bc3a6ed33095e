#include "lamina/nn/mixers/rounded_alibi.h"

#include <algorithm>
#include <bit>

#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/embedding/embedding.h"

namespace lamina::nn {
namespace {

float rounded(float value) { return static_cast<float>(bf16(value)); }

/// Appends `constants` to the elements of every head of x. They must broadcast to [batch, seq, heads, width].
Tensor with_constants(const Tensor& x, const Tensor& constants) {
  const Tensor zeros = Tensor::zeros({x.dim(0), x.dim(1), 1, 1}, x.dtype(), x.device());
  return ops::concat({x, ops::add(zeros, constants.to(x.dtype()))}, -1);
}

}  // namespace

RoundedAlibi::RoundedAlibi(const std::vector<float>& slopes, int64_t n_kv_heads, double factor)
    : n_kv_heads_(n_kv_heads), factor_(factor) {
  for (const float slope : slopes) slopes_.push_back(rounded(slope));
}

Tensor RoundedAlibi::extend_queries(const Tensor& q) {
  if (!one_hot_.defined() || !(one_hot_.device() == q.device())) {
    std::vector<float> chosen;
    for (int64_t h = 0; h < q.dim(2); ++h) {
      for (int64_t i = 0; i < width(); ++i) chosen.push_back(i == h % width() ? 1.0F : 0.0F);
    }
    one_hot_ = Tensor::from(chosen, {1, 1, q.dim(2), width()}, q.device());
  }
  return with_constants(q, one_hot_);
}

const Tensor& RoundedAlibi::table(int64_t rows, const Device& device) {
  if (table_.defined() && table_.device() == device && table_.dim(0) >= rows) return table_;
  constexpr uint64_t kLeast = 64;  // minimum; sizes are powers of two, so that rebuilds are rare
  const auto count = static_cast<int64_t>(std::bit_ceil(std::max(static_cast<uint64_t>(rows), kLeast)));
  std::vector<float> biases;
  for (int64_t position = 0; position < count; ++position) {
    const float place = rounded(static_cast<float>(position));
    for (const float slope : slopes_) {
      biases.push_back(static_cast<float>(factor_ * static_cast<double>(rounded(slope * place))));
    }
  }
  table_ = Tensor::from(biases, {count, static_cast<int64_t>(slopes_.size())}, device);
  return table_;
}

Tensor RoundedAlibi::extend_keys(const Tensor& k, const ForwardContext& pass) {
  const Tensor& biases = table(std::max(pass.end(), pass.last_position() + 1), k.device());
  const Tensor rows =
      pass.positions.defined() ? ops::embedding(biases, pass.positions) : biases.slice(0, pass.offset, pass.seq);
  const int64_t batch = rows.numel() / (pass.seq * biases.dim(1));  // 1 if all batch rows have the same positions
  return with_constants(k, rows.reshape({batch, pass.seq, n_kv_heads_, width()}));
}

}  // namespace lamina::nn
