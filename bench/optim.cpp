// Optimizers. Element-wise ones and clipping are compared with memory bandwidth over their minimum traffic, Muon with
// the GEMM library's peak over the products of its iteration.
#include "lamina/ops/optim/adamw.h"
#include "lamina/ops/optim/grad_norm.h"
#include "lamina/ops/optim/muon.h"
#include "lamina/ops/optim/sgd.h"
#include "lamina/ops/optim/slots_kernel.h"
#include "support/limits.h"
#include "support/suite.h"

namespace lamina::bench {
namespace {

/// About 50 million parameters in model-like shapes: an embedding, layers of matrices, and many small norm weights.
std::vector<Shape> model_shapes() {
  std::vector<Shape> shapes{{32000, 512}};
  for (int layer = 0; layer < 11; ++layer) {
    shapes.insert(shapes.end(), {{512}, {1536, 512}, {512, 512}, {512}, {1376, 512}, {1376, 512}, {512, 1376}});
  }
  return shapes;
}

Tensor filled(const Shape& shape, DType dtype, const Device& device, double value = 0.01) {
  return Tensor::full(shape, value, dtype, device);
}

std::vector<ops::AdamWSlot> adamw_slots(const Device& device, DType param, DType grad) {
  std::vector<ops::AdamWSlot> slots;
  for (const Shape& shape : model_shapes()) {
    const Tensor master = param == DType::f32 ? Tensor() : filled(shape, DType::f32, device);
    slots.push_back({{filled(shape, param, device), filled(shape, grad, device), master, 1e-6, 0.1},
                     filled(shape, DType::f32, device),
                     filled(shape, DType::f32, device),
                     10});
  }
  return slots;
}

std::vector<ops::SgdSlot> sgd_slots(const std::vector<ops::AdamWSlot>& from) {
  std::vector<ops::SgdSlot> slots;
  for (const ops::AdamWSlot& slot : from) {
    const ops::ParamSlot& common = slot;
    slots.push_back({common, slot.m});
  }
  return slots;
}

double bytes_of(const std::vector<ops::AdamWSlot>& slots, int64_t states) {
  int64_t bytes = 0;
  for (const ops::AdamWSlot& slot : slots) bytes += ops::slot_bytes(slot, states);
  return static_cast<double>(bytes);
}

void adamw_types(Context& context, DType param, DType grad) {
  const auto slots = adamw_slots(context.device(), param, grad);
  const auto [seconds, bandwidth] = context.beside_memory({[&] { ops::adamw(slots); }});
  const double rate = bytes_of(slots, 2) / seconds[0] * 1e-9;
  const std::string what = str("adamw 50M ", param, param == DType::f32 ? "" : " + master", ", grad ", grad);
  context.add({what, rate, bandwidth, "GB/s", "memory bandwidth", 0.7});
}

/// An update is memory-bound, so more threads gain about as much as in the triad; no separate goal.
void thread_gain(Context& context) {
  if (context.device().threads().count() < 2) return;
  const auto many = adamw_slots(context.device(), DType::f32, DType::f32);
  const auto one = adamw_slots(context.one_thread(), DType::f32, DType::f32);
  const Triad triad_one(context.one_thread());
  const auto [seconds, bandwidth] =
      context.beside_memory({[&] { ops::adamw(many); }, [&] { ops::adamw(one); }, [&] { triad_one(); }});
  const double bandwidth_one = Triad::bytes() / seconds[2] * 1e-9;
  context.add({"adamw 50M, all threads over one", seconds[1] / seconds[0], bandwidth / bandwidth_one, "times",
               "memory bandwidth's"});
}

void sgd_and_clipping(Context& context) {
  const auto slots = adamw_slots(context.device(), DType::f32, DType::f32);
  const auto momentum = sgd_slots(slots);
  std::vector<Tensor> grads;
  double bytes = 0;
  for (const ops::AdamWSlot& slot : slots) {
    grads.push_back(slot.grad);
    bytes += static_cast<double>(slot.grad.nbytes());
  }
  const auto clip = [&] {
    grads[0].data<float>()[0] = 1e6F;  // keeps the norm above the clipping limit
    ops::clip_grad_norm_(grads, {.max_norm = 1.0});
  };
  const auto [seconds, bandwidth] =
      context.beside_memory({[&] { ops::sgd(momentum, {.momentum = 0.9}); }, [&] { ops::global_norm(grads); }, clip});
  const auto add = [&, limit = bandwidth](const char* what, double moved, double time, std::optional<double> at_least) {
    context.add({what, moved / time * 1e-9, limit, "GB/s", "memory bandwidth", at_least});
  };
  add("sgd momentum 50M f32", bytes_of(slots, 1), seconds[0], 0.7);
  add("global_norm 50M f32", bytes, seconds[1], std::nullopt);
  add("clip_grad_norm_ 50M f32", 3 * bytes, seconds[2], 0.7);  // one read for the norm; one read and one write to scale
}

void muon(Context& context, const Shape& shape) {
  const Device& device = context.device();
  const ops::MuonSlot slot{{filled(shape, DType::f32, device), filled(shape, DType::f32, device), Tensor(), 1e-6, 0.1},
                           filled(shape, DType::f32, device)};
  for (int64_t i = 0; i < slot.grad.numel(); ++i)
    slot.grad.data<float>()[i] = static_cast<float>(i * 7919 % 1000) - 500;
  const auto small = static_cast<double>(std::min(shape[0], shape[1]));
  const double flops = 5 * (4 * static_cast<double>(shape.numel()) * small + 2 * small * small * small);
  const double rate = flops / context.seconds([&] { ops::muon({slot}); }) * 1e-9;
  context.add({str("muon ", shape), rate, context.gemm_peak(), "GFLOP/s", "sgemm peak"});
}

}  // namespace

LAMINA_BENCH_SUITE(optim) {
  adamw_types(context, DType::f32, DType::f32);
  adamw_types(context, DType::bf16, DType::f32);
  adamw_types(context, DType::bf16, DType::bf16);
  thread_gain(context);
  sgd_and_clipping(context);
  for (const Shape& shape : {Shape{512, 512}, Shape{1536, 512}, Shape{512, 2048}}) muon(context, shape);
}

}  // namespace lamina::bench
