// Every operator case with bench shapes: forward, and forward with backward, as rates against the machine's limits.
// Operation and byte counts come from the operators themselves, through a meta device.
#include "lamina/autograd/tape.h"
#include "support/op_run.h"
#include "support/suite.h"

namespace lamina::bench {
namespace {

struct Prepared {
  Tape tape;
  std::vector<Tensor> inputs;
  std::vector<Tensor> output_grads;
};

void prepare(Prepared& state, const testing::OpVariant& variant, const Device& device, bool backward) {
  const auto values = device.kind() == DeviceKind::meta ? std::vector<std::vector<double>>{}
                                                        : testing::make_values(variant, DType::f32, 1);
  state.inputs = testing::make_inputs(variant, values, DType::f32, device);
  const std::vector<testing::Input> specs = variant.inputs();
  for (size_t i = 0; i < specs.size(); ++i) {
    if (backward && specs[i].differentiable && !specs[i].absent) state.tape.watch(state.inputs[i]);
  }
}

void step(Prepared& state, const testing::OpVariant& variant, bool backward) {
  const std::vector<Tensor> outputs = variant.run(state.inputs);
  if (!backward) return;
  std::vector<Tensor> followed;
  for (const Tensor& output : outputs) {
    if (output.grad_link()) followed.push_back(output);
  }
  if (state.output_grads.size() != followed.size()) {
    state.output_grads.clear();
    for (const Tensor& output : followed) {
      state.output_grads.push_back(Tensor::full(output.shape(), 0.5, output.dtype(), output.device()));
    }
  }
  state.tape.backward(followed, state.output_grads);
  state.tape.zero_grad();
}

void measure(Context& context, const testing::OpCase& op, const testing::OpVariant& variant, bool backward) {
  const Device meta = Device::meta();
  Prepared planned;
  prepare(planned, variant, meta, backward);
  meta.reset_work();
  step(planned, variant, backward);
  const Work work = meta.work();

  Prepared real;
  prepare(real, variant, context.device(), backward);
  const double time = context.seconds([&] { step(real, variant, backward); });
  const double gflops = static_cast<double>(work.flops) / time * 1e-9;
  const double gbytes = static_cast<double>(work.bytes) / time * 1e-9;
  const bool compute_bound = gflops / context.gemm_peak() > gbytes / context.bandwidth();
  const std::string what = op.name + " " + variant.describe() + (backward ? " fwd+bwd" : " fwd");
  if (compute_bound) {
    context.add({what, gflops, context.gemm_peak(), "GFLOP/s", "sgemm peak"});
  } else {
    context.add({what, gbytes, context.bandwidth(), "GB/s", "memory bandwidth"});
  }
}

}  // namespace

LAMINA_BENCH_SUITE(operators) {
  for (const testing::OpCase& op : testing::op_cases()) {
    for (const auto& variant : op.bench) {
      measure(context, op, *variant, false);
      if (op.backward) measure(context, op, *variant, true);
    }
  }
}

}  // namespace lamina::bench
