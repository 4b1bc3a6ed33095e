// Paged attention and row sampling in CUDA graphs: lengths, pages and options change between replays. The truth is the
// CPU, whose kernels the op cases verify.
#include "cuda/on_gpu.h"
#include "lamina/ops/attention/paged/paged_step.h"
#include "lamina/ops/sampling/sample_rows.h"
#include "support/close.h"
#include "support/random_tensor.h"

namespace lamina::testing {
namespace {

using PagedOnGpu = OnGpu<>;

constexpr int64_t kPageSize = 32;
constexpr int64_t kWidth = 40;  // pages per row
constexpr int64_t kHeads = 8;
constexpr int64_t kKvHeads = 2;
constexpr int64_t kHeadDim = 64;

/// Caches and rows of one device.
struct PagedState {
  ops::PagedCache cache;
  ops::PagedRows rows;
  Tensor positions;
  Tensor qkv;
  Tensor cos, sin;

  PagedState(const Device& device, int64_t count, DType cache_type, DType type) {
    const Shape pages{count * kWidth, kKvHeads, kPageSize, kHeadDim};
    cache.k = random_tensor(pages, 1, cache_type).to(device);
    cache.v = random_tensor(pages, 2, cache_type).to(device);
    std::vector<int32_t> tables;
    std::vector<int32_t> starts{0};
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t p = 0; p < kWidth; ++p) tables.push_back(static_cast<int32_t>(p * count + r));
      starts.push_back(static_cast<int32_t>(r + 1));
    }
    rows.tables = Tensor::from(tables, {count, kWidth}, device);
    rows.starts = Tensor::from(starts, {count + 1}, device);
    rows.lengths = Tensor::zeros({count}, DType::i32, device);
    positions = Tensor::zeros({count}, DType::i64, device);
    qkv = Tensor::zeros({count, kHeads + 2 * kKvHeads, kHeadDim}, type, device);
    cos = random_tensor({kWidth * kPageSize, kHeadDim / 2}, 3, DType::f32).to(device);
    sin = random_tensor({kWidth * kPageSize, kHeadDim / 2}, 4, DType::f32).to(device);
  }
  /// The inputs of step n: row r has length lengths[r] + n, or is unused if that is 0.
  void set_step(const std::vector<int32_t>& lengths, int32_t n) {
    std::vector<int32_t> now;
    std::vector<int64_t> at;
    for (const int32_t length : lengths) {
      now.push_back(length == 0 ? 0 : length + n);
      at.push_back(std::max(now.back() - 1, 0));
    }
    const Device& device = qkv.device();
    rows.lengths.copy_(Tensor::from(now, {static_cast<int64_t>(now.size())}, device));
    positions.copy_(Tensor::from(at, {static_cast<int64_t>(at.size())}, device));
    qkv.copy_(random_tensor(qkv.shape(), static_cast<uint64_t>(100 + n), qkv.dtype()).to(device));
  }
  Tensor step() const {
    return ops::paged_attention_step(qkv, cache, rows, {.cos = cos, .sin = sin, .positions = positions});
  }
};

void compare_steps(DType cache_type, DType type, double allowed) {
  const std::vector<int32_t> lengths{1, 500, 0, 31, 32, 1200};
  PagedState truth(Device::cpu(2), 6, cache_type, type);
  PagedState state(Device::cuda(), 6, cache_type, type);
  Tensor y;
  Replay replay(state.qkv.device(), [&] { y = state.step(); });
  for (int32_t n = 0; n < 40; ++n) {
    truth.set_step(lengths, n);
    state.set_step(lengths, n);
    replay.run();
    EXPECT_LE(largest_error(y.to_vector<double>(), truth.step().to_vector<double>()), allowed) << "step " << n;
  }
  EXPECT_LE(largest_error(state.cache.k.to_vector<double>(), truth.cache.k.to_vector<double>()), allowed);
  EXPECT_EQ(state.cache.v.to_vector<double>(), truth.cache.v.to_vector<double>());
}

TEST_F(PagedOnGpu, StepsReplayWithGrowingRows) {
  compare_steps(DType::bf16, DType::bf16, 0.02);
  compare_steps(DType::f16, DType::f16, 0.003);
  compare_steps(DType::bf16, DType::f32, 0.009);  // rotated keys may round to the other neighbour in bf16
}

/// On a deterministic device a row's result does not depend on the other rows.
TEST_F(PagedOnGpu, IsBatchInvariantOnADeterministicDevice) {
  const Device gpu = Device::cuda(0, true);
  const std::vector<int32_t> lengths{900, 33, 1100, 64, 1};
  PagedState all(gpu, 5, DType::bf16, DType::bf16);
  all.set_step(lengths, 0);
  const Tensor together = all.step();
  for (int64_t r = 0; r < 5; ++r) {
    PagedState one(gpu, 5, DType::bf16, DType::bf16);
    one.set_step(lengths, 0);
    one.rows.tables = one.rows.tables.slice(0, r, 1).contiguous();
    one.rows.lengths = one.rows.lengths.slice(0, r, 1).contiguous();
    one.rows.starts = one.rows.starts.slice(0, 0, 2).contiguous();
    one.positions = one.positions.slice(0, r, 1).contiguous();
    one.qkv = one.qkv.slice(0, r, 1).contiguous();
    EXPECT_EQ(one.step().to_vector<double>(), together.slice(0, r, 1).to_vector<double>()) << "row " << r;
  }
}

TEST_F(PagedOnGpu, SamplingReplaysWithChangingOptions) {
  constexpr int64_t kRows = 6;
  constexpr int64_t kVocab = 5000;
  const Device gpu = Device::cuda();
  const Device cpu = Device::cpu(2);
  const auto options_on = [](const Device& device) {
    return ops::RowSampling{.temperature = Tensor::zeros({kRows}, DType::f32, device),
                            .top_k = Tensor::zeros({kRows}, DType::i32, device),
                            .top_p = Tensor::zeros({kRows}, DType::f32, device),
                            .seed = Tensor::zeros({kRows}, DType::i64, device),
                            .drawn = Tensor::zeros({kRows}, DType::i64, device)};
  };
  const ops::RowSampling truth = options_on(cpu);
  const ops::RowSampling options = options_on(gpu);
  Tensor logits = Tensor::zeros({kRows, kVocab}, DType::f32, gpu);
  const Tensor ids = Tensor::zeros({kRows}, DType::i64, gpu);
  const Tensor logprobs = Tensor::zeros({kRows, 3}, DType::f32, gpu);
  const Tensor top_ids = Tensor::zeros({kRows, 2}, DType::i64, gpu);
  const Tensor expected = Tensor::zeros({kRows}, DType::i64, cpu);
  Replay replay(gpu, [&] { ops::sample_rows(logits, options, 0, 2, ids, logprobs, top_ids); });
  for (int n = 0; n < 12; ++n) {
    for (int64_t r = 0; r < kRows; ++r) {
      for (const ops::RowSampling* each : {&truth, &options}) {
        each->temperature.slice(0, r, 1).fill_((n + r) % 3 == 0 ? 0.0 : 0.8);
        each->top_k.slice(0, r, 1).fill_(static_cast<double>((n + r) % 2 * 25));
        each->top_p.slice(0, r, 1).fill_((n + r) % 4 == 0 ? 0.9 : 1.0);
        each->seed.slice(0, r, 1).fill_(static_cast<double>(7 * r));
        each->drawn.slice(0, r, 1).fill_(static_cast<double>(n));
      }
    }
    const Tensor values = random_tensor({kRows, kVocab}, static_cast<uint64_t>(n), DType::f32);
    logits.copy_(values.to(gpu));
    replay.run();
    ops::sample_rows(values, truth, 0, 0, expected, {}, {});
    EXPECT_EQ(ids.to_vector<int64_t>(), expected.to_vector<int64_t>()) << "step " << n;
  }
}

}  // namespace
}  // namespace lamina::testing
