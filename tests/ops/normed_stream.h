#pragma once

#include <algorithm>
#include <cmath>

#include "lamina/ops/linear/norm_linear.h"
#include "support/op_case.h"

namespace lamina::testing {

using ops::RowNorm;

/// Residual stream and norm: inputs 0 to 3 of norm_linear and of the fused sublayer steps.
struct NormedStream {
  Shape shape;
  int64_t out = 1;
  RowNorm::Kind kind = RowNorm::Kind::rms;
  bool residual = true;
  bool scale = true;       ///< a layer norm then also has a bias
  bool bias = false;       ///< bias of the product
  double offset = 0.0;     ///< added to an RMS norm's scale
  int64_t group_size = 0;  ///< group size of an RMS norm
  int64_t parts = 0;       ///< number of residual parts to add up; 0: one plain tensor

  bool layer() const { return kind == RowNorm::Kind::layer; }
  std::string describe() const {
    return str(layer() ? "layer " : "rms ", shape, " -> ", out, residual ? " residual" : "", scale ? "" : " no scale",
               bias ? " bias" : "", offset != 0 ? " offset" : "", group_size != 0 ? " groups" : "",
               parts != 0 ? str(" ", parts, " parts") : "");
  }
  std::vector<Input> stream_inputs() const {
    const Input vector{.shape = {shape[-1]}};
    Shape added;
    if (parts != 0) added.push_back(parts);
    for (const int64_t extent : shape) added.push_back(extent);
    return {{.shape = shape},
            residual ? Input{.shape = added} : absent(),
            scale ? vector : absent(),
            scale && layer() ? vector : absent()};
  }
  std::vector<Input> inputs(int64_t weight_rows) const {
    std::vector<Input> all = stream_inputs();
    all.push_back({.shape = {weight_rows, shape[-1]}});
    all.push_back(bias ? Input{.shape = {weight_rows}} : absent());
    return all;
  }
  RowNorm norm(const std::vector<Tensor>& in) const {
    return {kind, in[2], in[3], {.eps = 1e-3, .group_size = group_size, .weight_offset = offset}};
  }
  std::vector<Tensor> outputs(const ops::NormLinear& result) const {
    return residual ? std::vector<Tensor>{result.h, result.y} : std::vector<Tensor>{result.y};
  }
  template <class S>
  Array<S> value(const Arrays<S>& in) const {
    Array<S> h(shape);
    for (int64_t i = 0; i < h.numel(); ++i) {
      S added = 0;
      for (int64_t n = 0; residual && n < std::max<int64_t>(parts, 1); ++n) added += in[1][n * h.numel() + i];
      h[i] = in[0][i] + added;
    }
    return h;
  }
  template <class S>
  Array<S> normed(const Array<S>& h, const Arrays<S>& in) const {
    using std::sqrt;
    const int64_t width = shape[-1];
    const int64_t group = group_size == 0 ? width : group_size;
    Array<S> y(shape);
    for (int64_t start = 0; start < h.numel(); start += group) {
      S mean = 0;
      for (int64_t i = start; layer() && i < start + group; ++i) mean += h[i] / S(group);
      S squares = 0;
      for (int64_t i = start; i < start + group; ++i) squares += (h[i] - mean) * (h[i] - mean);
      const S deviation = sqrt(squares / S(group) + S(1e-3));
      for (int64_t i = start; i < start + group; ++i) {
        y[i] = (h[i] - mean) / deviation;
        if (scale) y[i] *= in[2][i % width] + S(offset);
        if (scale && layer()) y[i] += in[3][i % width];
      }
    }
    return y;
  }
  template <class S>
  Arrays<S> results(const Array<S>& h, const Array<S>& y) const {
    return residual ? Arrays<S>{h, y} : Arrays<S>{y};
  }
};

constexpr auto kRms = RowNorm::Kind::rms;
constexpr auto kLayer = RowNorm::Kind::layer;

}  // namespace lamina::testing
