#include "support/op_run.h"

#include <random>

#include "lamina/autograd/tape.h"
#include "support/poison.h"
#include "support/uniform.h"

namespace lamina::testing {
namespace {

/// Poisons the GPU before an operator under test runs.
void poison_device_of([[maybe_unused]] const std::vector<Tensor>& tensors) {
#ifdef LAMINA_HAS_CUDA
  for (const Tensor& tensor : tensors) {
    if (tensor.defined()) return poison(tensor.device());
  }
#endif
}

}  // namespace

double round_to(double value, DType dtype) {
  return visit_dtype(dtype, [&](auto tag) { return convert<double>(convert<typename decltype(tag)::type>(value)); });
}

std::vector<std::vector<double>> make_values(const OpVariant& variant, DType dtype, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<double>> all;
  for (const Input& input : variant.inputs()) {
    std::vector<double> values = input.values;
    if (values.empty() && !input.absent) {
      values.resize(static_cast<size_t>(input.shape.numel()));
      for (double& value : values) value = uniform(random, input.low, input.high);
    }
    for (double& value : values) value = round_to(value, input.dtype.value_or(dtype));
    all.push_back(std::move(values));
  }
  return all;
}

Tensor make_tensor(const std::vector<double>& values, const Shape& shape, DType dtype, const Device& device) {
  return Tensor::from(values, shape, device).to(dtype);
}

std::vector<Tensor> make_inputs(const OpVariant& variant, const std::vector<std::vector<double>>& values, DType dtype,
                                const Device& device) {
  std::vector<Tensor> tensors;
  const std::vector<Input> inputs = variant.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].absent) {
      tensors.emplace_back();
    } else if (device.kind() == DeviceKind::meta) {
      tensors.push_back(Tensor::empty(inputs[i].shape, inputs[i].dtype.value_or(dtype), device));
    } else {
      tensors.push_back(make_tensor(values[i], inputs[i].shape, inputs[i].dtype.value_or(dtype), device));
    }
  }
  return tensors;
}

Tensor make_strided(const Tensor& tensor) {
  if (!tensor.defined() || tensor.rank() == 0) return tensor;
  Shape wide = tensor.shape();
  wide.push_back(2);
  Tensor block = Tensor::zeros(wide, tensor.dtype(), tensor.device());
  Tensor column = block.slice(-1, 1, 1);
  Shape single = tensor.shape();
  single.push_back(1);
  column.copy_(tensor.reshape(single));
  return column.reshape(tensor.shape());
}

std::vector<double> output_gradient(uint64_t seed, size_t output, size_t numel, DType dtype) {
  std::mt19937_64 random(seed * 31 + output + 1);
  std::vector<double> grad(numel);
  for (double& value : grad) value = round_to(uniform(random, -1.0, 1.0), dtype);
  return grad;
}

Outcome run_variant(const OpVariant& variant, const std::vector<Tensor>& given, uint64_t seed, bool backward) {
  const std::vector<Input> specs = variant.inputs();
  Tape tape;
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < given.size(); ++i) {
    Tensor input = given[i];
    if (backward && specs[i].differentiable && !specs[i].absent) {
      input = given[i].slice(0, 0, given[i].dim(0));  // a separate handle for the tape
      tape.watch(input);
    }
    inputs.push_back(input);
  }
  Outcome outcome;
  poison_device_of(inputs);
  const std::vector<Tensor> outputs = variant.run(inputs);
  std::vector<Tensor> followed;
  std::vector<Tensor> grads;
  const bool meta = !outputs.empty() && outputs[0].defined() && outputs[0].is_meta();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& output = outputs[i];
    outcome.shapes.push_back(output.shape());
    outcome.dtypes.push_back(output.dtype());
    outcome.outputs.push_back(meta ? std::vector<double>{} : output.to_vector<double>());
    if (!backward || !is_floating(output.dtype()) || !output.grad_link()) continue;
    followed.push_back(output);
    grads.push_back(make_tensor(output_gradient(seed, i, static_cast<size_t>(output.numel()), output.dtype()),
                                output.shape(), output.dtype(), output.device()));
  }
  if (!backward) return outcome;
  poison_device_of(grads);
  tape.backward(followed, grads);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool wanted = specs[i].differentiable && !specs[i].absent;
    const Tensor grad = wanted ? tape.grad(inputs[i]) : Tensor();
    outcome.grads.push_back(!wanted || meta  ? std::vector<double>{}
                            : grad.defined() ? grad.to_vector<double>()
                                             : std::vector<double>(static_cast<size_t>(inputs[i].numel()), 0.0));
  }
  return outcome;
}

namespace {

template <class S>
Array<S> constant_array(const Input& input, const std::vector<double>& values) {
  Array<S> array(input.shape);
  for (size_t i = 0; i < values.size(); ++i) array.values[i] = S(values[i]);
  return array;
}

}  // namespace

template <class S>
Outcome run_oracle(const OpVariant& variant, const std::vector<std::vector<double>>& values,
                   const std::vector<DType>& output_dtypes, uint64_t seed, bool backward) {
  const std::vector<Input> specs = variant.inputs();
  Outcome outcome;
  if (!backward) {
    Arrays<S> inputs;
    for (size_t i = 0; i < specs.size(); ++i) {
      inputs.push_back(specs[i].absent ? Array<S>() : constant_array<S>(specs[i], values[i]));
    }
    for (const Array<S>& output : variant.oracle(inputs)) {
      outcome.shapes.push_back(output.shape);
      outcome.outputs.emplace_back(output.values.begin(), output.values.end());
    }
    return outcome;
  }
  auto& tape = ScalarTape<S>::current();
  tape.clear();
  Arrays<Rev<S>> inputs;
  for (size_t i = 0; i < specs.size(); ++i) {
    inputs.push_back(specs[i].absent ? Array<Rev<S>>() : constant_array<Rev<S>>(specs[i], values[i]));
    if (!specs[i].differentiable) continue;
    for (Rev<S>& value : inputs.back().values) value = Rev<S>::variable(value.value);
  }
  const Arrays<Rev<S>> outputs = variant.oracle(inputs);
  std::vector<int32_t> nodes;
  std::vector<S> seeds;
  for (size_t i = 0; i < outputs.size(); ++i) {
    outcome.shapes.push_back(outputs[i].shape);
    std::vector<double> numbers;
    for (const Rev<S>& value : outputs[i].values) numbers.push_back(static_cast<double>(value.value));
    outcome.outputs.push_back(std::move(numbers));
    if (!is_floating(output_dtypes[i])) continue;
    const auto grad = output_gradient(seed, i, outputs[i].values.size(), output_dtypes[i]);
    for (size_t j = 0; j < grad.size(); ++j) {
      nodes.push_back(outputs[i].values[j].node);
      seeds.push_back(static_cast<S>(grad[j]));
    }
  }
  const std::vector<S> grads = tape.gradients(nodes, seeds);
  for (size_t i = 0; i < specs.size(); ++i) {
    std::vector<double> grad;
    if (specs[i].differentiable) {
      for (const Rev<S>& value : inputs[i].values)
        grad.push_back(static_cast<double>(grads[static_cast<size_t>(value.node)]));
    }
    outcome.grads.push_back(std::move(grad));
  }
  tape.clear();
  return outcome;
}

template Outcome run_oracle<float>(const OpVariant&, const std::vector<std::vector<double>>&, const std::vector<DType>&,
                                   uint64_t, bool);
template Outcome run_oracle<double>(const OpVariant&, const std::vector<std::vector<double>>&,
                                    const std::vector<DType>&, uint64_t, bool);

}  // namespace lamina::testing
