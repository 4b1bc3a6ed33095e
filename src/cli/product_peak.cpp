#include "lamina/cli/product_peak.h"

#include <algorithm>

#include "lamina/cli/seconds_of.h"
#include "lamina/ops/linear/matmul.h"

namespace lamina::cli {

double product_peak(const Device& device, DType dtype, int64_t size) {
  if (size == 0) size = device.kind() == DeviceKind::cuda ? 8192 : 2048;
  // Use varied values: a GPU multiplies constants faster than realistic values.
  std::vector<float> values(static_cast<size_t>(size * size));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i * 7919) % 251) / 125.0F - 1.0F;
  const Tensor a = Tensor::from(values, {size, size}, device).to(dtype);
  double best = 1e30;
  for (int i = 0; i < 5; ++i) best = std::min(best, seconds_of(device, [&] { ops::matmul(a, a); }));
  const auto n = static_cast<double>(size);
  return 2.0 * n * n * n / best;
}

}  // namespace lamina::cli
