// Attention against what the machine can do, as ratios within one run: GFLOP/s beside oneDNN's sgemm of 2048³, decode
// beside the read bandwidth. Repetitions of ours and of the yardstick alternate and the median of each counts, because
// machines are noisy.
#include <dnnl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "lamina/autograd/tape.h"
#include "lamina/ops/attention/attention.h"
#include "lamina/ops/attention/attention_decode.h"

namespace {

using lamina::Device;
using lamina::DType;
using lamina::Shape;
using lamina::Tensor;
namespace ops = lamina::ops;

double seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Tensor random_tensor(const Shape& shape, const Device& device, DType dtype = DType::f32) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& value : values) value = uniform(random);
  return Tensor::from(values, shape, device).to(dtype);
}

/// GFLOP/s of oneDNN's sgemm.
class SgemmPeak {
 public:
  double measure() {
    const double time = seconds([&] {
      dnnl_sgemm('N', 'N', kSize, kSize, kSize, 1.0F, a_.data(), kSize, b_.data(), kSize, 0.0F, c_.data(), kSize);
    });
    return 2e-9 * kSize * kSize * kSize / time;
  }

 private:
  static constexpr int64_t kSize = 2048;
  std::vector<float> a_ = std::vector<float>(kSize * kSize, 0.5F);
  std::vector<float> b_ = std::vector<float>(kSize * kSize, 0.25F);
  std::vector<float> c_ = std::vector<float>(kSize * kSize);
};

struct Shapes {
  int64_t batch;
  int64_t seq;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  ops::AttentionOptions options = {};
};

/// Seconds forward and backward, and the work each announced.
struct Timing {
  double forward = 0;
  double backward = 0;
  double forward_flops = 0;
  double backward_flops = 0;
};

class Attention {
 public:
  Attention(const Shapes& shapes, const Device& device)
      : options_(shapes.options),
        device_(device),
        q_(random_tensor({shapes.batch, shapes.seq, shapes.heads, shapes.head_dim}, device)),
        k_(random_tensor({shapes.batch, shapes.seq, shapes.kv_heads, shapes.head_dim}, device)),
        v_(random_tensor({shapes.batch, shapes.seq, shapes.kv_heads, shapes.head_dim}, device)),
        dy_(random_tensor(q_.shape(), device)) {
    for (Tensor* leaf : {&q_, &k_, &v_}) tape_.watch(*leaf);
  }
  Timing measure() {
    Timing timing;
    Tensor y;
    device_.reset_work();
    timing.forward = seconds([&] { y = ops::attention(q_, k_, v_, options_); });
    timing.forward_flops = static_cast<double>(device_.work().flops);
    device_.reset_work();
    timing.backward = seconds([&] { tape_.backward({y}, {dy_}); });
    timing.backward_flops = static_cast<double>(device_.work().flops);
    tape_.zero_grad();
    return timing;
  }

 private:
  ops::AttentionOptions options_;
  Device device_;
  lamina::Tape tape_;
  Tensor q_;
  Tensor k_;
  Tensor v_;
  Tensor dy_;
};

Timing median_timing(const std::vector<Timing>& all) {
  Timing result = all.front();
  std::vector<double> forward;
  std::vector<double> backward;
  for (const Timing& timing : all) {
    forward.push_back(timing.forward);
    backward.push_back(timing.backward);
  }
  result.forward = median(forward);
  result.backward = median(backward);
  return result;
}

void against_sgemm(const std::string& name, const Shapes& shapes, SgemmPeak& peak, int repeats) {
  Attention attention(shapes, Device::cpu());
  attention.measure();
  std::vector<Timing> timings;
  std::vector<double> peaks;
  for (int i = 0; i < repeats; ++i) {
    peaks.push_back(peak.measure());
    timings.push_back(attention.measure());
  }
  const Timing t = median_timing(timings);
  const double best = median(peaks);
  const double forward = 1e-9 * t.forward_flops / t.forward;
  const double backward = 1e-9 * t.backward_flops / t.backward;
  std::printf("%-34s forward %7.2f ms %4.0f GFLOP/s = %.2f   backward %7.2f ms %4.0f GFLOP/s = %.2f   sgemm %4.0f\n",
              name.c_str(), 1e3 * t.forward, forward, forward / best, 1e3 * t.backward, backward, backward / best,
              best);
}

void scaling() {
  const Shapes shapes{1, 2048, 4, 4, 64};
  Attention one(shapes, Device::cpu(1));
  Attention two(shapes, Device::cpu(2));
  std::vector<Timing> slow;
  std::vector<Timing> fast;
  for (int i = 0; i < 6; ++i) {
    slow.push_back(one.measure());
    fast.push_back(two.measure());
  }
  const Timing a = median_timing(slow);
  const Timing b = median_timing(fast);
  std::printf("%-34s forward %.2fx   backward %.2fx\n", "two threads against one", a.forward / b.forward,
              a.backward / b.backward);
}

void window_speedup() {
  Shapes shapes{1, 16384, 1, 1, 64};
  Attention full(shapes, Device::cpu());
  shapes.options.pattern = {.kind = ops::AttentionPattern::Kind::window, .window = 256};
  Attention window(shapes, Device::cpu());
  std::vector<Timing> slow{full.measure()};
  std::vector<Timing> fast{window.measure()};
  for (int i = 0; i < 3; ++i) {
    slow.push_back(full.measure());
    fast.push_back(window.measure());
    fast.push_back(window.measure());
  }
  const Timing a = median_timing(slow);
  const Timing b = median_timing(fast);
  std::printf("%-34s forward %.1fx (%.1f ms)   backward %.1fx (%.1f ms)\n", "window 256 at 16384 against full",
              a.forward / b.forward, 1e3 * b.forward, a.backward / b.backward, 1e3 * b.backward);
}

/// GB/s of summing a block of memory with all threads.
double read_bandwidth(const std::vector<float>& block, const Device& device) {
  constexpr int64_t kPart = 1 << 18;
  const int64_t parts = static_cast<int64_t>(block.size()) / kPart;
  std::vector<float> sums(static_cast<size_t>(parts));
  const double time = seconds([&] {
    device.threads().tasks(parts, [&](int64_t part) {
      const float* from = block.data() + part * kPart;
      float lanes[64] = {};
      for (int64_t i = 0; i < kPart; i += 64) {
        for (int64_t l = 0; l < 64; ++l) lanes[l] += from[i + l];
      }
      for (const float lane : lanes) sums[static_cast<size_t>(part)] += lane;
    });
  });
  return 1e-9 * static_cast<double>(block.size() * sizeof(float)) / time;
}

void decode(const std::string& name, int64_t seq_q, int64_t heads, int64_t kv_heads, DType dtype) {
  constexpr int64_t kHeadDim = 64;
  const Device device = Device::cpu();
  const int64_t length = (int64_t{1} << 27) / (kv_heads * kHeadDim * static_cast<int64_t>(lamina::size_of(dtype)));
  const Tensor q = random_tensor({1, seq_q, heads, kHeadDim}, device);
  const Tensor k = random_tensor({1, kv_heads, length, kHeadDim}, device, dtype);
  const Tensor lengths = Tensor::from(std::vector<int64_t>{length}, {1}, device);
  const Tensor v = k.clone();
  const std::vector<float> block(1 << 26, 1.0F);
  std::vector<double> times;
  std::vector<double> bandwidths;
  for (int i = 0; i < 7; ++i) {
    bandwidths.push_back(read_bandwidth(block, device));
    times.push_back(seconds([&] { ops::attention_decode(q, k, v, lengths); }));
  }
  const double rate = 2e-9 * static_cast<double>(k.nbytes()) / median(times);
  const double bandwidth = median(bandwidths);
  std::printf("%-34s %.1f GB/s = %.2f of reading (%.1f)\n", name.c_str(), rate, rate / bandwidth, bandwidth);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  const auto wanted = [&](const char* what) { return only.empty() || only == what; };
  ops::AttentionOptions open;
  open.causal = false;
  if (wanted("sgemm")) {
    SgemmPeak peak;
    peak.measure();
    against_sgemm("causal [1,2048,8,64]", {1, 2048, 8, 8, 64}, peak, 15);
    against_sgemm("open [1,2048,8,64]", {1, 2048, 8, 8, 64, open}, peak, 9);
    against_sgemm("causal [1,2048,8/2,128]", {1, 2048, 8, 2, 128}, peak, 5);
    against_sgemm("causal [12,256,6,64]", {12, 256, 6, 6, 64}, peak, 25);
    ops::AttentionOptions dropping;
    dropping.dropout = 0.2;
    against_sgemm("causal, dropout [12,256,6,64]", {12, 256, 6, 6, 64, dropping}, peak, 15);
  }
  if (wanted("threads")) scaling();
  if (wanted("window")) window_speedup();
  if (wanted("decode")) {
    decode("decode 8 heads, f32", 1, 8, 8, DType::f32);
    decode("decode 1 head, f32", 1, 1, 1, DType::f32);
    decode("decode 32/4 heads, f32", 1, 32, 4, DType::f32);
    decode("decode 8 heads, bf16", 1, 8, 8, DType::bf16);
    decode("decode 32/4 heads, bf16", 1, 32, 4, DType::bf16);
    decode("decode 4 queries, 8/2 heads, f32", 4, 8, 2, DType::f32);
  }
}
