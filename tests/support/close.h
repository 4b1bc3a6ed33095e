#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/error_of.h"
#include "support/op_run.h"

/// Comparison of results in all tests. NaN never passes: a NaN result makes the error infinite, and a NaN in the
/// expected values makes every derived tolerance NaN, for which `error <= NaN` is false.
namespace lamina::testing {

/// Machine epsilon: the spacing of values just above 1.
inline double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f64: return 0x1p-52;
    case DType::bf16: return 0x1p-8;
    case DType::f16: return 0x1p-11;
    default: return 0x1p-23;
  }
}

/// Largest |value|; NaN if any value is NaN.
inline double largest_magnitude(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) {
    if (std::isnan(value)) return value;
    most = std::max(most, std::abs(value));
  }
  return most;
}

inline double largest_magnitude(const Tensor& tensor) { return largest_magnitude(tensor.to_vector<double>()); }

/// Largest |a[i] - b[i]|; infinite if the sizes differ or a difference is NaN. Equal infinities have difference 0.
inline double largest_error(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    const double error = std::abs(a[i] - b[i]);
    if (std::isnan(error)) return std::numeric_limits<double>::infinity();
    most = std::max(most, error);
  }
  return most;
}

inline double largest_error(const Tensor& a, const Tensor& b) {
  return largest_error(a.to_vector<double>(), b.to_vector<double>());
}

/// Tolerance for two implementations of one formula in the same types. Each may round all `operations` that feed an
/// element in the accumulation type (f64 for f64, else f32), and the result once in `dtype`.
inline double rounding_tolerance(const std::vector<double>& truth, int64_t operations, DType dtype) {
  const double accumulated = epsilon(dtype == DType::f64 ? DType::f64 : DType::f32) * static_cast<double>(operations);
  return 2 * (accumulated + epsilon(dtype)) * largest_magnitude(truth);
}

/// Expects an error against the f64 truth of at most twice that of a plain loop in the same precision, plus one
/// rounding of the largest value.
inline void expect_as_close(const std::vector<double>& ours, const std::vector<double>& truth,
                            std::vector<double> naive, DType dtype, const std::string& what) {
  for (double& value : naive) value = round_to(value, dtype);
  EXPECT_LE(largest_error(ours, truth), 2 * largest_error(naive, truth) + epsilon(dtype) * largest_magnitude(truth))
      << what;
}

}  // namespace lamina::testing
