// A custom operator and a custom mixer in one file, without a change to the library.
//   operator  causal_mean: the mean of all tokens so far, with its gradient
//   mixer     GatedMean: out(silu(gate(x)) * causal_mean(value(x))), after average attention (arXiv:1805.00631)
//   model     embedding, mixer with a residual connection, norm, head
// The model learns a running majority: at each position, whether more ones than zeros came so far.
#include <lamina/lamina.h>

#include <cmath>
#include <iostream>
#include <random>

namespace {

using lamina::Device;
using lamina::DType;
using lamina::Tape;
using lamina::Tensor;
namespace ops = lamina::ops;

/// y[b, t] = (x[b, 0] + … + x[b, t]) / (t + 1)
///   x, y  [batch, seq, width] f32 on a CPU
/// Backward: dx[b, s] = Σ_{t ≥ s} dy[b, t] / (t + 1)
Tensor causal_mean(const Tensor& given) {
  LAMINA_CHECK(given.rank() == 3 && given.dtype() == DType::f32, "causal_mean: x has rank ", given.rank(),
               " and dtype ", given.dtype(), ", expected [batch, seq, width] in f32");
  const Tensor x = given.contiguous();
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const int64_t seq = x.dim(1);
  const int64_t width = x.dim(2);
  x.device().threads().ranges(x.dim(0), 1, [&](int64_t begin, int64_t end) {
    std::vector<float> sum(static_cast<size_t>(width));
    for (int64_t b = begin; b < end; ++b) {
      std::fill(sum.begin(), sum.end(), 0.0F);
      for (int64_t t = 0; t < seq; ++t) {
        const int64_t at = (b * seq + t) * width;
        for (int64_t i = 0; i < width; ++i) {
          sum[static_cast<size_t>(i)] += x.data<float>()[at + i];
          y.data<float>()[at + i] = sum[static_cast<size_t>(i)] / static_cast<float>(t + 1);
        }
      }
    }
  });
  // The tape calls this in backward. It needs only the shape, so nothing is saved.
  lamina::record("causal_mean", {given}, {y}, {}, [seq, width](lamina::Backward& backward) {
    const Tensor dy = backward.grad();
    Tensor dx = Tensor::empty(dy.shape(), dy.dtype(), dy.device());
    for (int64_t b = 0; b < dy.dim(0); ++b) {
      for (int64_t i = 0; i < width; ++i) {
        float sum = 0;
        for (int64_t t = seq - 1; t >= 0; --t) {
          const int64_t at = (b * seq + t) * width + i;
          sum += dy.data<float>()[at] / static_cast<float>(t + 1);
          dx.data<float>()[at] = sum;
        }
      }
    }
    backward.add(0, dx);
  });
  return y;
}

/// A module keeps its tensors as members and registers them by name; the base class then saves, loads and moves them.
class GatedMean final : public lamina::nn::Module {
 public:
  GatedMean(int64_t width, const Device& device) {
    for (Tensor* weight : {&gate_, &value_, &out_}) {
      *weight = Tensor::empty({width, width}, DType::f32, device);
    }
    add_parameter("gate", gate_);
    add_parameter("value", value_);
    add_parameter("out", out_);
    reset_parameters();
  }
  void reset_parameters() override {
    uint64_t seed = 1;
    for (const Tensor& weight : parameters()) lamina::nn::init_normal(weight, 0.0, 0.1, seed++);
  }
  /// x [batch, seq, width] → the same shape.
  Tensor forward(const Tensor& x) const {
    const Tensor gate = ops::activation(ops::linear(x, gate_), ops::Activation::silu);
    return ops::linear(ops::mul(gate, causal_mean(ops::linear(x, value_))), out_);
  }

 private:
  Tensor gate_, value_, out_;  // [width, width]
};

class MajorityModel final : public lamina::nn::Module {
 public:
  static constexpr int64_t kWidth = 32;

  explicit MajorityModel(const Device& device)
      : embedding_(2, kWidth, device),
        mixer_(kWidth, device),
        norm_(Tensor::full({kWidth}, 1.0, DType::f32, device)),
        head_(Tensor::empty({2, kWidth}, DType::f32, device)) {
    lamina::nn::init_normal(head_, 0.0, 0.1, 9);
    add_child("embedding", embedding_);
    add_child("mixer", mixer_);
    add_parameter("norm", norm_);
    add_parameter("head", head_);
  }
  /// ids [batch, seq] → logits [batch, seq, 2].
  Tensor forward(const Tensor& ids) const {
    const Tensor x = embedding_.forward(ids);
    return ops::linear(ops::add_rms_norm(mixer_.forward(x), x, norm_).y, head_);
  }

 private:
  lamina::nn::VocabEmbedding embedding_;
  GatedMean mixer_;
  Tensor norm_, head_;
};

struct Batch {
  Tensor ids;      // [batch, seq]
  Tensor targets;  // [batch, seq]: 1 if more ones than zeros came so far
};

Batch make_batch(std::mt19937& random, const Device& device) {
  constexpr int64_t kBatch = 32;
  constexpr int64_t kSeq = 33;
  std::vector<int64_t> ids;
  std::vector<int64_t> targets;
  for (int64_t row = 0; row < kBatch; ++row) {
    int64_t lead = 0;
    for (int64_t t = 0; t < kSeq; ++t) {
      ids.push_back(random() % 2);
      lead += ids.back() == 1 ? 1 : -1;
      targets.push_back(lead > 0 ? 1 : 0);
    }
  }
  return {Tensor::from(ids, {kBatch, kSeq}, device), Tensor::from(targets, {kBatch, kSeq}, device)};
}

/// The largest difference between the recorded gradient of causal_mean and a central difference, for a loss Σ y².
double gradient_error(const Device& device) {
  Tensor x = Tensor::empty({2, 5, 3}, DType::f32, device);
  lamina::nn::init_normal(x, 0.0, 1.0, 3);
  const auto loss = [](const Tensor& at) { return ops::sum(ops::mul(causal_mean(at), causal_mean(at))); };
  Tape tape;
  tape.watch(x);
  tape.backward(loss(x));
  const std::vector<double> grad = tape.grad(x).to_vector<double>();
  double worst = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    constexpr float kStep = 1e-2F;
    double side[2];
    for (int k = 0; k < 2; ++k) {
      const Tensor moved = x.detach().clone();
      moved.data<float>()[i] += k == 0 ? kStep : -kStep;
      side[k] = loss(moved).item();
    }
    const double error = std::abs((side[0] - side[1]) / (2 * kStep) - grad[static_cast<size_t>(i)]);
    if (std::isnan(error)) return error;
    worst = std::max(worst, error);
  }
  return worst;
}

double accuracy(const MajorityModel& model, const Batch& batch) {
  const auto logits = model.forward(batch.ids).to_vector<float>();
  const auto targets = batch.targets.to_vector<int64_t>();
  int64_t right = 0;
  for (size_t i = 0; i < targets.size(); ++i) right += (logits[2 * i + 1] > logits[2 * i]) == (targets[i] == 1) ? 1 : 0;
  return static_cast<double>(right) / static_cast<double>(targets.size());
}

}  // namespace

int main() try {
  const Device device = Device::cpu();
  std::cout << "gradient of causal_mean: off by at most " << gradient_error(device) << '\n';

  MajorityModel model(device);
  lamina::NamedTensors parameters = model.named_parameters();
  Tape tape;
  for (auto& parameter : parameters) tape.watch(parameter.tensor);
  lamina::train::AdamW optimizer({{.params = parameters, .lr = 1e-2}});
  std::mt19937 random(1);
  for (int step = 0; step <= 200; ++step) {
    const Batch batch = make_batch(random, device);
    const Tensor loss = ops::cross_entropy(model.forward(batch.ids), batch.targets);
    tape.backward(loss);
    optimizer.step(tape);
    tape.zero_grad();
    if (step % 50 == 0) std::cout << "step " << step << "  loss " << loss.item() << '\n';
  }
  const lamina::NoGrad inference(tape);
  const double share = accuracy(model, make_batch(random, device));
  std::cout << "accuracy on new sequences: " << 100 * share << " %\n";
  return share > 0.95 && gradient_error(device) < 1e-2 ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << "custom_mixer: " << error.what() << '\n';
  return 1;
}
