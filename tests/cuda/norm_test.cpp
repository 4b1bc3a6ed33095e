// Gradients of norms over far more rows than a GPU runs thread blocks, for every row layout of the kernel: blocks that
// process several rows with prefetch, and weight gradients reduced over all blocks. The op cases are too small for
// that. The truth is the CPU kernel in f64, which the op cases verify.
#include <algorithm>
#include <cmath>

#include "cuda/on_gpu.h"
#include "lamina/autograd/tape.h"
#include "lamina/ops/norm/layer_norm.h"
#include "lamina/ops/norm/rms_norm.h"
#include "lamina/ops/position/norm_rotary.h"
#include "lamina/ops/position/tables.h"
#include "support/close.h"
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

/// The first `rounded` results are in `dtype`, the others are f32 sums.
void expect_near(const std::vector<std::vector<double>>& ours, const std::vector<std::vector<double>>& truth,
                 DType dtype, size_t rounded) {
  for (size_t i = 0; i < truth.size(); ++i) {
    const DType type = i < rounded ? dtype : DType::f32;
    EXPECT_LE(largest_error(ours[i], truth[i]), rounding_tolerance(truth[i], 40, type))
        << "result " << i << " of " << dtype;
  }
}

void expect_gradients(const NormSize& size, bool centred, DType dtype) {
  const auto truth = gradients(size, centred, DType::f64, Device::cpu(2));
  const auto ours = gradients(size, centred, dtype, Device::cuda());
  EXPECT_EQ(ours, gradients(size, centred, dtype, Device::cuda())) << "a second time";
  expect_near(ours, truth, dtype, 1);
}

/// Queries and keys of a packed projection, normed and rotated.
struct TurnedSize {
  int64_t batch, seq, n_heads, n_kv_heads, head_dim;
  ops::RotaryOptions rotation;
};

/// Queries, keys, and the gradients of the projection and both norm weights.
std::vector<std::vector<double>> turned(const TurnedSize& size, DType dtype, const Device& device) {
  const auto draw = [&](const Shape& of, uint64_t seed) {
    return random_tensor(of, seed, DType::bf16).to(dtype).to(device);
  };
  const auto heads = [&](int64_t count) { return Shape{size.batch, size.seq, count, size.head_dim}; };
  Tensor qkv = draw(heads(size.n_heads + 2 * size.n_kv_heads), 1);
  Tensor q_weight = draw({size.head_dim}, 2);
  Tensor k_weight = draw({size.head_dim}, 3);
  const DType sums = dtype == DType::f64 ? DType::f64 : DType::f32;
  const int64_t turning = size.rotation.rotary_dim != 0 ? size.rotation.rotary_dim : size.head_dim;
  const ops::RotaryTables tables = ops::rotary_tables(size.seq, turning, {}, Device::cpu(2));
  Tape tape;
  tape.watch(qkv);
  tape.watch(q_weight, sums);
  tape.watch(k_weight, sums);
  const ops::NormedHeads out =
      ops::norm_rotary_packed(qkv, size.n_heads, size.n_kv_heads, q_weight, k_weight, tables.cos.to(device),
                              tables.sin.to(device), {.weight_offset = 1.0}, size.rotation);
  tape.backward({out.q, out.k, out.v},
                {draw(heads(size.n_heads), 4), draw(heads(size.n_kv_heads), 5), draw(heads(size.n_kv_heads), 6)});
  return {out.q.to_vector<double>(), out.k.to_vector<double>(), tape.grad(qkv).to_vector<double>(),
          tape.grad(q_weight).to_vector<double>(), tape.grad(k_weight).to_vector<double>()};
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

using CudaNormRotary = OnGpu<>;

TEST_F(CudaNormRotary, OfManyHeads) {
  const ops::RotaryOptions half{.pairing = ops::RotaryPairing::interleaved, .rotary_dim = 64};
  for (const TurnedSize& size :
       {TurnedSize{2, 3001, 4, 2, 64, {}}, TurnedSize{1, 4301, 8, 1, 128, half}, TurnedSize{1, 2501, 4, 1, 256, {}}}) {
    const auto truth = turned(size, DType::f64, Device::cpu(2));
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const ::testing::ScopedTrace trace(__FILE__, __LINE__, str("heads of ", size.head_dim));
      const auto ours = turned(size, dtype, Device::cuda());
      EXPECT_EQ(ours, turned(size, dtype, Device::cuda())) << "a second time";
      expect_near(ours, truth, dtype, 3);
    }
  }
}

// In 16-byte vectors per bf16 row: 8, 48, 60, 96 and 128 use lanes of a warp, 192 and 512 a thread block, 1100 a block
// with four vectors per thread. f32 rows have twice as many. Width 1001 is not vectorized.
INSTANTIATE_TEST_SUITE_P(Sizes, CudaNorm,
                         ::testing::Values(NormSize{100000, 64, 0}, NormSize{12000, 384, 0}, NormSize{10001, 480, 0},
                                           NormSize{7000, 768, 0}, NormSize{5000, 1024, 0}, NormSize{4000, 1536, 0},
                                           NormSize{2000, 4096, 0}, NormSize{700, 8800, 0}, NormSize{5, 768, 0},
                                           NormSize{3000, 1001, 0}));
// Groups of 8 vectors in rows of 16, and groups of 64 in rows of 256.
INSTANTIATE_TEST_SUITE_P(Sizes, CudaGroupedNorm,
                         ::testing::Values(NormSize{20000, 128, 64}, NormSize{3000, 2048, 512}));

}  // namespace
}  // namespace lamina::testing
