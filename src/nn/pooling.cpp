#include "lamina/nn/pooling.h"

#include <cmath>

#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/linear/matmul.h"
#include "lamina/ops/norm/rms_norm.h"

namespace lamina::nn {
namespace {

/// Weight of each token in the pooled vector of each row: [rows, tokens]. For the maximum every weight is 1.
Tensor shares_of(const std::vector<int64_t>& starts, arch::PoolingKind kind, DType dtype, const Device& device) {
  using arch::PoolingKind;
  const auto rows = static_cast<int64_t>(starts.size()) - 1;
  const int64_t tokens = starts.back();
  std::vector<double> shares(static_cast<size_t>(rows * tokens), 0.0);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t begin = starts[static_cast<size_t>(row)];
    const int64_t end = starts[static_cast<size_t>(row) + 1];
    const int64_t from = kind == PoolingKind::last ? end - 1 : begin;
    const int64_t to = kind == PoolingKind::first ? begin + 1 : end;
    const double share = kind == PoolingKind::max ? 1.0 : 1.0 / static_cast<double>(to - from);
    for (int64_t i = from; i < to; ++i) shares[static_cast<size_t>(row * tokens + i)] = share;
  }
  return Tensor::from(shares, {rows, tokens}, device).to(dtype);
}

/// [tokens, width]: 1 where the token has the largest value of its row (the first such token), else 0. Multiplied with
/// the tokens, it passes values and gradients of these only.
Tensor largest_of(const Tensor& tokens, const std::vector<int64_t>& starts) {
  const std::vector<double> values = tokens.to_vector<double>();
  const auto width = static_cast<size_t>(tokens.dim(1));
  std::vector<float> chosen(values.size(), 0.0F);
  for (size_t row = 0; row + 1 < starts.size(); ++row) {
    for (size_t i = 0; i < width; ++i) {
      auto best = static_cast<size_t>(starts[row]);
      for (size_t t = best + 1; t < static_cast<size_t>(starts[row + 1]); ++t) {
        if (values[t * width + i] > values[best * width + i]) best = t;
      }
      chosen[best * width + i] = 1.0F;
    }
  }
  return Tensor::from(chosen, tokens.shape(), tokens.device()).to(tokens.dtype());
}

}  // namespace

PooledHead::PooledHead(const arch::ArchSpec& spec, const ParameterFactory& make)
    : pooling_(spec.pooling), d_model_(spec.d_model) {
  if (pooling_ && pooling_->dense && make.holds_any("pooling")) {
    dense_.emplace(d_model_, d_model_, true, make.at("pooling"));
    add_child("pooling", *dense_);
  }
  if (spec.classifier && make.holds_any("classifier")) {
    classifier_.emplace(spec.classifier->classes, d_model_, true, make.at("classifier"));
    add_child("classifier", *classifier_);
  }
}

Tensor PooledHead::pooled(const Tensor& x, const ForwardStart& start) const {
  LAMINA_CHECK(pooling_, "model: the architecture has no pooling; set pooling.of");
  LAMINA_CHECK(start.batch > 0 && start.seq > 0, "model: nothing to pool in ids [", start.batch, ", ", start.seq, "]");
  std::vector<int64_t> starts = start.pass.row_starts;
  if (starts.empty()) {
    for (int64_t row = 0; row <= start.batch; ++row) starts.push_back(row * start.seq);
  }
  Tensor tokens = x.reshape({starts.back(), d_model_});
  if (pooling_->of == arch::PoolingKind::max) tokens = ops::mul(tokens, largest_of(tokens, starts));
  Tensor y = ops::matmul(shares_of(starts, pooling_->of, x.dtype(), x.device()), tokens);
  if (dense_) y = dense_->forward(y, pooling_->activation);
  if (!pooling_->unit_length) return y;
  // x / rms(x) has Euclidean norm sqrt(width).
  return ops::scale(ops::rms_norm(y, {}, {.eps = 1e-12}), 1.0 / std::sqrt(static_cast<double>(d_model_)));
}

Tensor PooledHead::class_logits(const Tensor& vectors) const {
  LAMINA_CHECK(classifier_, "model: the architecture has no classifier; set classifier.classes");
  return classifier_->forward(vectors);
}

}  // namespace lamina::nn
