#include "lamina/cli/sgemm_peak.h"

#include <algorithm>

#include "lamina/cli/seconds_of.h"
#include "lamina/ops/linear/matmul.h"

namespace lamina::cli {

double sgemm_peak(const Device& device, int64_t size) {
  const Tensor a = Tensor::full({size, size}, 0.5, DType::f32, device);
  double best = 1e30;
  for (int i = 0; i < 5; ++i) best = std::min(best, seconds_of([&] { ops::matmul(a, a); }));
  const auto n = static_cast<double>(size);
  return 2.0 * n * n * n / best;
}

}  // namespace lamina::cli
