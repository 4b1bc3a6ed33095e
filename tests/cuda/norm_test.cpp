// Gradients of norms over many more rows than a GPU has blocks, for every way its kernel lays out a row: blocks that
// walk several rows, with rows to come under way, and weight gradients put together from all of them. The operators'
// own cases are too small for that; the CPU's kernels, which those cases prove, are the truth in f64.
#include <algorithm>
#include <cmath>

#include "cuda/on_gpu.h"
#include "lamina/autograd/tape.h"
#include "lamina/ops/norm/layer_norm.h"
#include "lamina/ops/norm/rms_norm.h"
#include "support/random_tensor.h"

namespace lamina::testing {
namespace {

struct NormSize {
  int64_t rows, width, group;
};

/// Gradients of x, weight and, for layer norm, bias.
std::vector<std::vector<double>> gradients(const NormSize& size, bool centred, DType dtype, const Device& device) {
  const Shape shape{size.rows, size.width};
  const auto draw = [&](const Shape& of, uint64_t seed) {
    return random_tensor(of, seed, DType::bf16).to(dtype).to(device);
  };
  Tensor x = draw(shape, 1);
  Tensor weight = draw({size.width}, 2);
  Tensor bias = draw({size.width}, 3);
  const Tensor residual = Tensor::zeros(shape, dtype, device);
  const DType sums = dtype == DType::f64 ? DType::f64 : DType::f32;
  Tape tape;
  tape.watch(x);
  tape.watch(weight, sums);
  tape.watch(bias, sums);
  const ops::ResidualNorm out = centred ? ops::add_layer_norm(x, residual, weight, bias)
                                        : ops::add_rms_norm(x, residual, weight, {.group_size = size.group});
  tape.backward({out.h, out.y}, {draw(shape, 4), draw(shape, 5)});
  std::vector<std::vector<double>> all{tape.grad(x).to_vector<double>(), tape.grad(weight).to_vector<double>()};
  if (centred) all.push_back(tape.grad(bias).to_vector<double>());
  return all;
}

void expect_gradients(const NormSize& size, bool centred, DType dtype) {
  const auto truth = gradients(size, centred, DType::f64, Device::cpu(2));
  const auto ours = gradients(size, centred, dtype, Device::cuda());
  EXPECT_EQ(ours, gradients(size, centred, dtype, Device::cuda())) << "a second time";
  for (size_t i = 0; i < truth.size(); ++i) {
    double most = 0;
    double error = 0;
    for (size_t j = 0; j < truth[i].size(); ++j) {
      most = std::max(most, std::abs(truth[i][j]));
      error = std::max(error, std::abs(ours[i][j] - truth[i][j]));
    }
    const double rounding = i == 0 && dtype == DType::bf16 ? 0x1p-8 : 0.0;
    EXPECT_LE(error, (rounding + 1e-5) * most) << "gradient " << i << " of " << dtype;
  }
}

class CudaNorm : public OnGpu<::testing::TestWithParam<NormSize>> {};
class CudaGroupedNorm : public CudaNorm {};

TEST_P(CudaNorm, OfManyRows) {
  for (const bool centred : {false, true}) {
    for (const DType dtype : {DType::bf16, DType::f32}) expect_gradients(GetParam(), centred, dtype);
  }
}
TEST_P(CudaGroupedNorm, OfManyRows) {  // layer norm has no groups
  for (const DType dtype : {DType::bf16, DType::f32}) expect_gradients(GetParam(), false, dtype);
}

// bf16 has eight elements to a pack: 8, 48, 60, 96 and 128 packs by lanes, 192 and 512 by blocks, 1100 by blocks with
// four packs a thread; f32 twice as many; 1001 fits no packs.
INSTANTIATE_TEST_SUITE_P(Sizes, CudaNorm,
                         ::testing::Values(NormSize{100000, 64, 0}, NormSize{12000, 384, 0}, NormSize{10001, 480, 0},
                                           NormSize{7000, 768, 0}, NormSize{5000, 1024, 0}, NormSize{4000, 1536, 0},
                                           NormSize{2000, 4096, 0}, NormSize{700, 8800, 0}, NormSize{5, 768, 0},
                                           NormSize{3000, 1001, 0}));
// 8 packs of 16, and 64 of 256.
INSTANTIATE_TEST_SUITE_P(Sizes, CudaGroupedNorm,
                         ::testing::Values(NormSize{20000, 128, 64}, NormSize{3000, 2048, 512}));

}  // namespace
}  // namespace lamina::testing
