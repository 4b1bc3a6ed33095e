#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "lamina/tensor/tensor.h"
#include "support/op_run.h"
#include "support/uniform.h"

namespace lamina::testing {

/// One parameter of a plain-loop optimizer. S is double for the truth, float for the naive error.
template <class S>
struct PlainParam {
  std::vector<S> p, g, m, v;
  double lr = 0, weight_decay = 0;
};

template <class S>
void plain_adamw(PlainParam<S>& t, int step, double beta1, double beta2, double eps) {
  const S correction1 = S(1 - std::pow(beta1, step));
  const S correction2 = S(1 - std::pow(beta2, step));
  for (size_t i = 0; i < t.p.size(); ++i) {
    t.p[i] = t.p[i] - S(t.lr * t.weight_decay) * t.p[i];
    t.m[i] = S(beta1) * t.m[i] + S(1 - beta1) * t.g[i];
    t.v[i] = S(beta2) * t.v[i] + S(1 - beta2) * t.g[i] * t.g[i];
    t.p[i] = t.p[i] - S(t.lr) * (t.m[i] / correction1) / (std::sqrt(t.v[i] / correction2) + S(eps));
  }
}

template <class S>
void plain_sgd(PlainParam<S>& t, double momentum, bool nesterov) {
  for (size_t i = 0; i < t.p.size(); ++i) {
    const S g = t.g[i] + S(t.weight_decay) * t.p[i];
    t.m[i] = S(momentum) * t.m[i] + g;
    const S direction = momentum == 0 ? g : nesterov ? g + S(momentum) * t.m[i] : t.m[i];
    t.p[i] = t.p[i] - S(t.lr) * direction;
  }
}

/// c = a · b, [rows, inner] · [inner, cols].
template <class S>
std::vector<S> plain_product(const std::vector<S>& a, const std::vector<S>& b, int64_t rows, int64_t inner,
                             int64_t cols) {
  std::vector<S> c(static_cast<size_t>(rows * cols), S{0});
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      for (int64_t k = 0; k < inner; ++k) {
        c[static_cast<size_t>(i * cols + j)] +=
            a[static_cast<size_t>(i * inner + k)] * b[static_cast<size_t>(k * cols + j)];
      }
    }
  }
  return c;
}

template <class S>
std::vector<S> plain_transpose(const std::vector<S>& a, int64_t rows, int64_t cols) {
  std::vector<S> t(a.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) t[static_cast<size_t>(j * rows + i)] = a[static_cast<size_t>(i * cols + j)];
  }
  return t;
}

/// X ← a·X + b·(X·Xᵀ)·X + c·(X·Xᵀ)²·X, by the formula. It does not transpose to the smaller side: the polynomial is
/// odd, so the result is the same.
template <class S>
std::vector<S> plain_newton_schulz(std::vector<S> x, int64_t rows, int64_t cols, int steps) {
  S norm{0};
  for (const S value : x) norm += value * value;
  norm = std::max(std::sqrt(norm), S(1e-7));
  for (S& value : x) value /= norm;
  for (int step = 0; step < steps; ++step) {
    const auto square = plain_product(x, plain_transpose(x, rows, cols), rows, cols, rows);
    const auto once = plain_product(square, x, rows, rows, cols);
    const auto twice = plain_product(square, once, rows, rows, cols);
    for (size_t i = 0; i < x.size(); ++i) x[i] = S(3.4445) * x[i] + S(-4.7750) * once[i] + S(2.0315) * twice[i];
  }
  return x;
}

template <class S>
void plain_muon(PlainParam<S>& t, int64_t rows, int64_t cols, double momentum, bool nesterov, double scale) {
  std::vector<S> u(t.g.size());
  for (size_t i = 0; i < u.size(); ++i) {
    t.m[i] = S(momentum) * t.m[i] + S(1 - momentum) * t.g[i];
    u[i] = nesterov ? S(1 - momentum) * t.g[i] + S(momentum) * t.m[i] : t.m[i];
  }
  const auto x = plain_newton_schulz(u, rows, cols, 5);
  for (size_t i = 0; i < u.size(); ++i) {
    t.p[i] = t.p[i] - S(t.lr * t.weight_decay) * t.p[i] - S(t.lr * scale) * x[i];
  }
}

inline std::vector<double> random_values(size_t count, uint64_t seed, DType rounded_to) {
  std::mt19937_64 random(seed);
  std::vector<double> values(count);
  for (double& value : values) value = round_to(uniform(random, -1.0, 1.0), rounded_to);
  return values;
}

template <class S>
std::vector<S> cast_all(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

}  // namespace lamina::testing
