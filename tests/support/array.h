#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "lamina/base/shape.h"

namespace lamina::testing {

/// A plain row-major array for oracles. It shares only Shape with Tensor.
template <class S>
struct Array {
  Shape shape;
  std::vector<S> values;

  Array() = default;
  explicit Array(const Shape& extents) : shape(extents), values(static_cast<size_t>(extents.numel())) {}

  bool defined() const { return shape.rank() > 0 || !values.empty(); }
  int64_t dim(int axis) const { return shape[axis]; }
  int64_t numel() const { return static_cast<int64_t>(values.size()); }
  S& operator[](int64_t i) { return values[static_cast<size_t>(i)]; }
  const S& operator[](int64_t i) const { return values[static_cast<size_t>(i)]; }
};

template <class S>
using Arrays = std::vector<Array<S>>;

}  // namespace lamina::testing
