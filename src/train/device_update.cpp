#include "lamina/train/device_update.h"

#include <cmath>
#include <limits>

#include "lamina/ops/optim/grad_norm.h"

namespace lamina::train {

bool DeviceUpdate::possible(const Recipe& recipe, const Device& device, const Optimizer& optimizer) {
  return Replay::possible(device) && dynamic_cast<const AdamW*>(&optimizer) != nullptr &&
         recipe.data.order != data::Order::packed;
}

DeviceUpdate::DeviceUpdate(nn::Model& model, Tape& tape, AdamW& optimizer, const Recipe& recipe,
                           const std::vector<double>& rates)
    : model_(model), tape_(tape), optimizer_(optimizer), recipe_(recipe), replay_(model.device(), [this] { work(); }) {
  const Device& device = model.device();
  dynamics_ = Tensor::zeros({4}, DType::f32, device);
  report_ = Tensor::zeros({recipe.accumulation + 1}, DType::f32, device);
  optimizer_.set_dynamics(dynamics_);
  for (size_t group = 0; group < rates.size(); ++group) optimizer_.set_lr(group, rates[group]);
}

void DeviceUpdate::work() {
  const auto input_at = [&](int64_t i) { return inputs_[static_cast<size_t>(i)]; };
  run_passes(model_, tape_, recipe_, recipe_.accumulation, input_at, [&](int64_t i, const Tensor& loss) {
    report_.slice(0, i, 1).copy_(loss.detach().reshape({1}));
    return true;
  });
  const std::vector<Tensor> grads = optimizer_.gradients(tape_);
  const double most = recipe_.clip > 0 ? recipe_.clip : std::numeric_limits<double>::infinity();
  ops::clip_factor(grads, most, report_.slice(0, recipe_.accumulation, 1), dynamics_.slice(0, 3, 1));
  optimizer_.step(grads);
  tape_.zero_grad();
}

void DeviceUpdate::start(int64_t step, const std::vector<data::Batch>& batches, double lr_factor) {
  const Device host = Device::cpu(1);
  for (size_t i = 0; i < batches.size(); ++i) {
    if (inputs_.size() == i) {
      inputs_.push_back(pass_input(batches[i], 0, batches[i].rows, model_.device(), static_cast<uint64_t>(i)));
      continue;
    }
    const PassInput now = pass_input(batches[i], 0, batches[i].rows, host, static_cast<uint64_t>(i));
    inputs_[i].ids.copy_(now.ids);
    inputs_[i].targets.copy_(now.targets);
    if (now.source.defined()) inputs_[i].source.copy_(now.source);
    if (now.neighbours.defined()) inputs_[i].neighbours.copy_(now.neighbours);
  }
  const ops::AdamWOptions& options = optimizer_.options();
  const auto update = static_cast<double>(optimizer_.updates() + 1);
  const std::vector<float> now{static_cast<float>(lr_factor),
                               static_cast<float>(1.0 / (1.0 - std::pow(options.beta1, update))),
                               static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(options.beta2, update)))};
  dynamics_.slice(0, 0, 3).copy_(Tensor::from(now, {3}, host));
  // Must match nn::ForwardContext::draw: each pass has 2^20 random streams.
  const uint64_t random_offset = static_cast<uint64_t>(step * recipe_.accumulation) << 20U;
  if (!replay_.run(random_offset)) optimizer_.count_repeated_update();
}

DeviceUpdate::Result DeviceUpdate::finish() {
  const std::vector<float> report = report_.to_vector<float>();
  Result result;
  for (size_t i = 0; i + 1 < report.size(); ++i)
    result.loss += static_cast<double>(report[i]) / static_cast<double>(recipe_.accumulation);
  result.grad_norm = report.back();
  return result;
}

}  // namespace lamina::train
