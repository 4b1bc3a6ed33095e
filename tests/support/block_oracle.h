#pragma once

#include <cmath>
#include <string>

#include "support/block_part.h"

/// Building blocks for oracles of mixers and feed-forwards: plain loops over rows.
namespace lamina::testing::plain {

/// Number of rows: product of all dimensions but the last.
template <class S>
int64_t rows_of(const Array<S>& x) {
  return x.numel() / x.dim(-1);
}

/// y[r, o] = Σ_i weight[o, i] · x[r, i] + bias[o], with "<name>.weight" and, if it exists, "<name>.bias".
template <class S>
Array<S> linear(const Weights<S>& weights, const std::string& name, const Array<S>& x) {
  const Array<S>& weight = weights.at(name + ".weight");
  const auto bias = weights.find(name + ".bias");
  const int64_t in = weight.dim(1);
  const int64_t out = weight.dim(0);
  Shape shape = x.shape;
  shape[-1] = out;
  Array<S> y(shape);
  for (int64_t r = 0; r < rows_of(x); ++r) {
    for (int64_t o = 0; o < out; ++o) {
      S sum = bias == weights.end() ? S(0) : bias->second[o];
      for (int64_t i = 0; i < in; ++i) sum += weight[o * in + i] * x[r * in + i];
      y[r * out + o] = sum;
    }
  }
  return y;
}

/// Columns [begin, begin + width) of the last dimension.
template <class S>
Array<S> columns(const Array<S>& x, int64_t begin, int64_t width) {
  Shape shape = x.shape;
  shape[-1] = width;
  Array<S> y(shape);
  for (int64_t r = 0; r < rows_of(x); ++r) {
    for (int64_t i = 0; i < width; ++i) y[r * width + i] = x[r * x.dim(-1) + begin + i];
  }
  return y;
}

template <class S>
S sigmoid(const S& x) {
  using std::exp;
  return S(1) / (S(1) + exp(-x));
}
template <class S>
S silu(const S& x) {
  return x * sigmoid(x);
}
template <class S>
S gelu(const S& x) {
  using std::erf;
  return S(0.5) * x * (S(1) + erf(x * S(0.70710678118654752440)));
}
template <class S>
S softplus(const S& x) {
  using std::exp;
  using std::log1p;
  return log1p(exp(x));
}

/// Each group of a row divided by its root mean square, times "<name>.weight".
template <class S>
Array<S> rms_norm(const Weights<S>& weights, const std::string& name, const Array<S>& x, double eps,
                  int64_t groups = 1) {
  using std::sqrt;
  const Array<S>& weight = weights.at(name + ".weight");
  const int64_t width = x.dim(-1);
  const int64_t size = width / groups;
  Array<S> y(x.shape);
  for (int64_t at = 0; at < x.numel(); at += size) {
    S sum(0);
    for (int64_t i = 0; i < size; ++i) sum += x[at + i] * x[at + i];
    const S root = sqrt(sum / S(static_cast<double>(size)) + S(eps));
    for (int64_t i = 0; i < size; ++i) y[at + i] = x[at + i] / root * weight[(at + i) % width];
  }
  return y;
}

/// Causal depthwise convolution: bias[c] + Σ_j weight[c, j] · x[t − taps + 1 + j, c].
template <class S>
Array<S> conv(const Weights<S>& weights, const std::string& name, const Array<S>& x) {
  const Array<S>& weight = weights.at(name + ".weight");
  const auto bias = weights.find(name + ".bias");
  const int64_t seq = x.dim(1);
  const int64_t channels = x.dim(2);
  const int64_t taps = weight.dim(1);
  Array<S> y(x.shape);
  for (int64_t at = 0; at < y.numel(); ++at) {
    const int64_t c = at % channels;
    const int64_t t = at / channels % seq;
    S sum = bias == weights.end() ? S(0) : bias->second[c];
    for (int64_t back = 0; back < taps && back <= t; ++back) {
      sum += weight[c * taps + taps - 1 - back] * x[at - back * channels];
    }
    y[at] = sum;
  }
  return y;
}

template <class S>
Array<S> conv_silu(const Weights<S>& weights, const std::string& name, const Array<S>& x) {
  Array<S> y = conv(weights, name, x);
  for (int64_t i = 0; i < y.numel(); ++i) y[i] = silu(y[i]);
  return y;
}

/// RoPE of x [..., heads, width] at positions 0, 1, … of the second dimension: rotates the first `rotary` elements of
/// each head. cos and sin are f32, as in the library's tables.
template <class S>
Array<S> rotate(const Array<S>& x, int64_t rotary, double theta, bool interleaved) {
  const int64_t seq = x.dim(1);
  const int64_t heads = x.dim(2);
  const int64_t width = x.dim(3);
  Array<S> y = x;
  for (int64_t row = 0; row < x.numel() / width; ++row) {
    const auto position = static_cast<double>(row / heads % seq);
    for (int64_t i = 0; i < rotary / 2; ++i) {
      const double angle = position * std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary));
      const S c(static_cast<double>(static_cast<float>(std::cos(angle))));
      const S s(static_cast<double>(static_cast<float>(std::sin(angle))));
      const int64_t a = row * width + (interleaved ? 2 * i : i);
      const int64_t b = interleaved ? a + 1 : a + rotary / 2;
      y[a] = x[a] * c - x[b] * s;
      y[b] = x[b] * c + x[a] * s;
    }
  }
  return y;
}

/// Attention output of one query and head: softmax over the scores of keys j <= i, weighting v(j, c). score(j) and v(j,
/// c) are called only for keys with seen(j).
template <class S, class Seen, class Score, class Value>
std::vector<S> attend(int64_t i, int64_t width, const Seen& seen, const Score& score, const Value& v) {
  using std::exp;
  std::vector<S> out(static_cast<size_t>(width), S(0));
  S total(0);
  for (int64_t j = 0; j <= i; ++j) {
    if (!seen(j)) continue;
    const S weight = exp(score(j));
    total += weight;
    for (int64_t c = 0; c < width; ++c) out[static_cast<size_t>(c)] += weight * v(j, c);
  }
  for (S& value : out) value /= total;
  return out;
}

}  // namespace lamina::testing::plain
