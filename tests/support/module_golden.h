#pragma once

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lamina/io/safetensors.h"
#include "support/close.h"

namespace lamina::testing {

/// Golden cases of one kind from tests/golden/modules.json, made with PyTorch.
inline std::vector<nlohmann::json> golden_cases(const std::string& kind) {
  std::ifstream file(LAMINA_GOLDEN_DIR "/modules.json");
  std::vector<nlohmann::json> chosen;
  for (const auto& entry : nlohmann::json::parse(file)) {
    if (entry.at("kind") == kind) chosen.push_back(entry);
  }
  return chosen;
}

inline io::SafetensorsFile golden_tensors(const Device& device) {
  return io::SafetensorsFile::open(LAMINA_GOLDEN_DIR "/modules.safetensors", device);
}

/// Distance between neighbouring `dtype` values around `value`.
inline double ulp(double value, DType dtype) {
  const int digits = dtype == DType::f64 ? 53 : dtype == DType::f32 ? 24 : dtype == DType::f16 ? 11 : 8;
  const int smallest = dtype == DType::f16 ? -24 : dtype == DType::f64 ? -1074 : dtype == DType::f32 ? -149 : -133;
  if (value == 0) return std::ldexp(1.0, smallest);
  return std::ldexp(1.0, std::max(std::ilogb(value) - digits + 1, smallest));
}

/// Largest |ours − golden| in units of ulp(max(|golden|, floor)); infinite if shapes, types or NaNs differ. `floor` is
/// the size of the summed terms: if they cancel, their rounding errors remain.
inline double worst_ulps(const Tensor& ours, const Tensor& golden, double floor = 0.0) {
  if (ours.shape() != golden.shape() || ours.dtype() != golden.dtype()) return std::numeric_limits<double>::infinity();
  const auto a = ours.to_vector<double>();
  const auto b = golden.to_vector<double>();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double distance = std::abs(a[i] - b[i]) / ulp(std::max(std::abs(b[i]), floor), golden.dtype());
    worst = std::isnan(distance) ? std::numeric_limits<double>::infinity() : std::max(worst, distance);
  }
  return worst;
}

}  // namespace lamina::testing
