#include "lamina/nn/pooling.h"

#include <cmath>

#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/linear/matmul.h"
#include "lamina/ops/norm/rms_norm.h"

namespace lamina::nn {
namespace {

/// Weight of each token in the pooled vector of each row: [rows, tokens].
Tensor shares_of(const std::vector<int64_t>& starts, arch::PoolingKind kind, DType dtype, const Device& device) {
  const auto rows = static_cast<int64_t>(starts.size()) - 1;
  const int64_t tokens = starts.back();
  std::vector<float> shares(static_cast<size_t>(rows * tokens), 0.0F);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t begin = starts[static_cast<size_t>(row)];
    const int64_t length = starts[static_cast<size_t>(row) + 1] - begin;
    const int64_t used = kind == arch::PoolingKind::first ? 1 : length;
    for (int64_t i = 0; i < used; ++i) {
      shares[static_cast<size_t>(row * tokens + begin + i)] = 1.0F / static_cast<float>(used);
    }
  }
  return Tensor::from(shares, {rows, tokens}, device).to(dtype);
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
  LAMINA_CHECK(pooling_, "model: the architecture has no pooling; set pooling.of to mean or first");
  LAMINA_CHECK(start.batch > 0 && start.seq > 0, "model: nothing to pool in ids [", start.batch, ", ", start.seq, "]");
  std::vector<int64_t> starts = start.pass.row_starts;
  if (starts.empty()) {
    for (int64_t row = 0; row <= start.batch; ++row) starts.push_back(row * start.seq);
  }
  const Tensor tokens = x.reshape({starts.back(), d_model_});
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
