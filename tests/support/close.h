#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "support/error_of.h"
#include "support/op_run.h"

namespace lamina::testing {

inline double largest_error(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

/// Our error against the f64 truth is at most twice that of a plain loop in the same precision, plus one rounding of
/// the largest value.
inline void expect_as_close(const std::vector<double>& ours, const std::vector<double>& truth,
                            const std::vector<double>& naive, DType dtype, const std::string& what) {
  ASSERT_EQ(ours.size(), truth.size()) << what;
  double largest = 0;
  for (const double value : truth) largest = std::max(largest, std::abs(value));
  const double epsilon = dtype == DType::f64    ? 0x1p-52
                         : dtype == DType::bf16 ? 0x1p-8
                         : dtype == DType::f16  ? 0x1p-11
                                                : 0x1p-23;
  double error = 0;
  for (size_t i = 0; i < truth.size(); ++i) error = std::max(error, std::abs(truth[i] - round_to(naive[i], dtype)));
  EXPECT_LE(largest_error(ours, truth), 2 * error + epsilon * largest) << what;
}

}  // namespace lamina::testing
