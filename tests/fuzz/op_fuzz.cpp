// Calls operators as the fuzzer's bytes say: any shape, type, device and options, undefined tensors, nested views, in
// any order, on tensors from earlier calls. Only lamina::Error may be thrown. A new operator is one entry in
// fuzz_operators.h.
#include <memory>

#include "fuzz_operators.h"
#include "lamina/ops/norm/rms_norm.h"
#include "lamina/ops/optim/adamw.h"
#include "lamina/ops/optim/grad_norm.h"
#include "lamina/ops/optim/muon.h"
#include "lamina/ops/optim/sgd.h"

namespace lamina::fuzz {
namespace {

ops::ParamSlot param_slot(World& w) {
  const Tensor param = w.tensor();
  const Tensor grad = w.like(param);
  const Tensor master = w.bytes().below(4) == 0 ? w.like(param) : Tensor();
  return {param, grad, master, w.bytes().number(), w.bytes().number()};
}
ops::AdamWSlot adamw_slot(World& w) {
  const ops::ParamSlot slot = param_slot(w);
  return {slot, w.like(slot.param), w.like(slot.param), w.bytes().integer()};
}
ops::SgdSlot sgd_slot(World& w) {
  const ops::ParamSlot slot = param_slot(w);
  return {slot, w.like(slot.param)};
}
ops::MuonSlot muon_slot(World& w) {
  const ops::ParamSlot slot = param_slot(w);
  return {slot, w.like(slot.param)};
}
ops::MuonOptions muon_options(Bytes& b) {
  return {b.number(), b.flag(), static_cast<int>(b.integer()), b.number(), static_cast<ops::MuonScale>(b.below(2))};
}

void watch(World& w) {
  Tensor leaf = w.tensor();
  w.bytes().flag() ? w.tape().watch(leaf) : w.tape().watch(leaf, w.bytes().dtype());
  w.keep(leaf);
}
void backward(World& w) {
  const Tensor y = w.tensor();
  const Tensor z = w.tensor();
  const bool retain = w.bytes().flag();
  switch (w.bytes().below(3)) {
    case 0: w.tape().backward(y, retain); break;
    case 1: w.tape().backward({y}, {w.like(y)}, retain); break;
    default: w.tape().backward({y, z}, {w.like(y), w.like(z)}, retain); break;
  }
}
void run_checkpoint(World& w) {
  const Tensor x = w.tensor();
  const Tensor captured = w.vector_like(x);
  const int kind = w.bytes().below(4);
  const auto segment = [captured, kind](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    switch (kind) {
      case 0: return {ops::rms_norm(in[0], captured), in[0]};
      case 1: return {in[0].reshape({-1}), Tensor(), captured};
      case 2: return {};
      default: return {in[0].transpose(0, -1).clone(), in[0].to(DType::f32)};
    }
  };
  for (const Tensor& output : checkpoint(w.tape(), segment, {x, w.tensor()})) w.keep(output);
}
void overlapping_copy(World& w) {
  const Tensor t = w.tensor();
  Tensor target = t.slice(w.bytes().axis(), w.bytes().integer(), w.bytes().integer());
  const Tensor source = t.slice(w.bytes().axis(), w.bytes().integer(), w.bytes().integer());
  w.bytes().flag() ? target.copy_(source) : target.add_(source);
}
void no_grad(World& w) {
  const NoGrad scope(w.tape());
  w.keep(ops::rms_norm(w.tensor(), Tensor()));
  w.tensor().fill_(w.bytes().number());
}
void borrow(World& w) {
  auto memory = std::make_shared<std::vector<char>>(4096);
  const Shape shape = w.bytes().shape();
  const DType dtype = w.bytes().dtype();
  if (shape.numel() > 500) return;  // Tensor::borrow trusts the caller about the length
  char* data = w.bytes().below(8) == 0 ? nullptr : memory->data() + w.bytes().below(8);
  w.keep(Tensor::borrow(data, shape, dtype, w.device(), memory));
}
void read_back(World& w) {
  const Tensor t = w.tensor();
  t.to_vector<float>();
  t.item();
}

const Call kCalls[] = {
    // Tensors, views and copies.
    [](World& w) { w.keep(w.fresh(w.bytes().shape(), w.bytes().dtype())); },
    [](World& w) { w.keep(w.tensor().reshape(w.bytes().shape())); },
    [](World& w) { w.keep(w.tensor().transpose(w.bytes().axis(), w.bytes().axis())); },
    [](World& w) { w.keep(w.tensor().slice(w.bytes().axis(), w.bytes().integer(), w.bytes().integer())); },
    [](World& w) { w.keep(w.tensor().contiguous()); },
    [](World& w) { w.keep(w.tensor().clone()); },
    [](World& w) { w.keep(w.tensor().detach()); },
    [](World& w) { w.keep(w.tensor().to(w.bytes().dtype())); },
    [](World& w) { w.keep(w.tensor().to(w.device())); },
    [](World& w) { w.tensor().copy_(w.tensor()); },
    [](World& w) { w.tensor().add_(w.tensor()); },
    [](World& w) { w.tensor().fill_(w.bytes().number()); },
    overlapping_copy,
    borrow,
    read_back,
    // The tape.
    watch,
    watch,
    backward,
    backward,
    run_checkpoint,
    no_grad,
    [](World& w) { w.keep(w.tape().grad(w.tensor())); },
    [](World& w) { w.tape().set_grad(w.tensor(), w.tensor()); },
    [](World& w) { w.tape().zero_grad(); },
    [](World& w) { w.tape().reset(); },
    // Optimizers.
    [](World& w) {
      ops::adamw({adamw_slot(w), adamw_slot(w)}, {w.bytes().number(), w.bytes().number(), 1e-8});
    },
    [](World& w) {
      ops::sgd({sgd_slot(w)}, {w.bytes().number(), w.bytes().flag()});
    },
    [](World& w) { ops::muon({muon_slot(w)}, muon_options(w.bytes())); },
    [](World& w) {
      ops::clip_grad_norm_({w.tensor(), w.tensor()}, {w.bytes().number(), w.bytes().flag(), {}});
    },
    [](World& w) {
      ops::scale_({w.tensor(), w.tensor()}, w.bytes().number());
    },
};

}  // namespace
}  // namespace lamina::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lamina;  // NOLINT: the entry point must stand outside
  static const Device cpu = Device::cpu(1, std::make_shared<fuzz::SmallMemory>());
  static const Device meta = Device::meta();
  fuzz::Bytes bytes(data, size);
  fuzz::World world(bytes, cpu, meta);
  for (int calls = 0; calls < 64 && !bytes.empty(); ++calls) {
    const auto index = static_cast<size_t>(bytes.byte()) % (std::size(fuzz::kCalls) + std::size(fuzz::kOperators));
    try {
      index < std::size(fuzz::kCalls) ? fuzz::kCalls[index](world)
                                      : fuzz::kOperators[index - std::size(fuzz::kCalls)](world);
    } catch (const Error&) {
      // An Error is the expected answer to invalid calls.
    }
  }
  return 0;
}
