// The operators and sizes of `lamina bench ops`: training with 65,536 tokens per step, and decoding of one token. CPU
// sizes have fewer rows, so that a call takes a fraction of a second.
#include "lamina/cli/op_bench.h"
#include "lamina/ops/activation/gated_activation.h"
#include "lamina/ops/dropout/dropout.h"
#include "lamina/ops/embedding/embedding.h"
#include "lamina/ops/linear/linear.h"
#include "lamina/ops/linear/quantized_linear.h"
#include "lamina/ops/loss/cross_entropy.h"
#include "lamina/ops/loss/softmax.h"
#include "lamina/ops/norm/layer_norm.h"
#include "lamina/ops/norm/rms_norm.h"
#include "lamina/ops/optim/adamw.h"

namespace lamina::cli {
namespace {

using Setting = OpBenchSetting;
using Tensors = std::vector<Tensor>;

const std::vector<OpWay> kForward{OpWay::forward};
const std::vector<OpWay> kBoth{OpWay::forward, OpWay::backward};

TapedCall::Leaf weight_leaf(const Tensor& weight) { return {weight, DType::f32}; }

void add_linear(const Setting& s, std::vector<OpBench>& list) {
  struct Size {
    int64_t rows, in, out;
  };
  const auto narrow = [&](int64_t width) { return s.pick(width, width, width / 16); };
  const int64_t rows = s.pick(65536, 1024, 16);
  for (const Size& size : {Size{rows, 768, 2304}, Size{rows, 768, 3072}, Size{rows, 3072, 768},
                           Size{s.pick(16384, 1024, 16), 384, 1152}}) {
    const int64_t in = narrow(size.in);
    const int64_t out = narrow(size.out);
    list.push_back(
        {str("linear ", size.rows, "x", in, "->", out), kBoth, [rows = size.rows, in, out](const Setting& at) {
           return OpCall{{at.random({rows, in}), weight_leaf(at.random({out, in}))},
                         [](const Tensors& t) { return Tensors{ops::linear(t[0], t[1])}; }};
         }});
  }
  for (const auto& [in, out] : {std::pair{narrow(2048), narrow(5632)}, std::pair{narrow(768), narrow(3072)}}) {
    list.push_back({str("linear 1x", in, "->", out), kForward, [in = in, out = out](const Setting& at) {
                      OpCall call{{at.random({1, in})}, {}};
                      Tensors weights(1, at.random({out, in}));
                      call.cycle = at.copies_beyond_caches(weights[0].nbytes());
                      while (std::ssize(weights) < call.cycle) weights.push_back(weights[0].clone());
                      call.run = [weights, turn = size_t{0}](const Tensors& t) mutable {
                        return Tensors{ops::linear(t[0], weights[turn++ % weights.size()])};
                      };
                      return call;
                    }});
  }
}

/// The projections of a parallel block, which read the same normed input: attention's and the feed-forward's, as two
/// products and as one.
void add_parallel_block(const Setting& s, std::vector<OpBench>& list) {
  const int64_t width = s.pick(768, 768, 48);
  for (const int64_t rows : {int64_t{1}, s.pick(65536, 1024, 16)}) {
    for (const bool fused : {false, true}) {
      list.push_back({str("parallel block ", rows, "x", width, fused ? ", one product" : ", two products"),
                      rows == 1 ? kForward : kBoth, [rows, width, fused](const Setting& at) {
                        const auto project = [width, fused](const Tensor& x, const Tensor& weight) {
                          if (fused) return Tensors{ops::linear(x, weight)};
                          return Tensors{ops::linear(x, weight.slice(0, 0, 3 * width)),
                                         ops::linear(x, weight.slice(0, 3 * width, 4 * width))};
                        };
                        OpCall call{{at.random({rows, width})}, {}};
                        Tensors weights(1, at.random({7 * width, width}));
                        if (rows > 1) {
                          call.leaves.push_back(weight_leaf(weights[0]));
                          call.run = [project](const Tensors& t) { return project(t[0], t[1]); };
                          return call;
                        }
                        call.cycle = at.copies_beyond_caches(weights[0].nbytes());
                        while (std::ssize(weights) < call.cycle) weights.push_back(weights[0].clone());
                        call.run = [project, weights, turn = size_t{0}](const Tensors& t) mutable {
                          return project(t[0], weights[turn++ % weights.size()]);
                        };
                        return call;
                      }});
    }
  }
}

void add_quantized(const Setting& s, std::vector<OpBench>& list) {
  const int64_t width = s.pick(4096, 4096, 64);
  for (const auto format : {ops::QuantizedFormat::q8, ops::QuantizedFormat::q4}) {
    list.push_back({str("quantized linear ", name_of(format), " 1x", width, "->", width), kForward,
                    [width, format](const Setting& at) {
                      OpCall call{{at.random({1, width})}, {}};
                      std::vector weights(1, ops::quantize(at.random_f32({width, width}), format));
                      call.cycle = at.copies_beyond_caches(weights[0].data.nbytes());
                      while (std::ssize(weights) < call.cycle) {
                        weights.push_back(weights[0]);
                        weights.back().data = weights[0].data.clone();
                      }
                      call.run = [weights, turn = size_t{0}](const Tensors& t) mutable {
                        return Tensors{ops::quantized_linear(t[0], weights[turn++ % weights.size()])};
                      };
                      return call;
                    }});
  }
}

/// Residuals are not leaves: their gradient is the same tensor as that of x, and a leaf would force a copy.
void add_norms(const Setting& s, std::vector<OpBench>& list) {
  const int64_t rows = s.pick(65536, 4096, 16);
  for (const int64_t width : {s.pick(4096, 4096, 64), s.pick(768, 768, 48)}) {
    const std::string at_size = str(" ", rows, "x", width);
    list.push_back({"rms norm" + at_size, kBoth, [rows, width](const Setting& at) {
                      return OpCall{{at.random({rows, width}), weight_leaf(at.random({width}))},
                                    [](const Tensors& t) { return Tensors{ops::rms_norm(t[0], t[1])}; }};
                    }});
    list.push_back({"rms norm + residual" + at_size, kBoth, [rows, width](const Setting& at) {
                      return OpCall{{at.random({rows, width}), weight_leaf(at.random({width}))},
                                    [residual = at.random({rows, width})](const Tensors& t) {
                                      const ops::ResidualNorm result = ops::add_rms_norm(t[0], residual, t[1]);
                                      return Tensors{result.h, result.y};
                                    }};
                    }});
    list.push_back({"layer norm" + at_size, kBoth, [rows, width](const Setting& at) {
                      return OpCall{
                          {at.random({rows, width}), weight_leaf(at.random({width})), weight_leaf(at.random({width}))},
                          [](const Tensors& t) { return Tensors{ops::layer_norm(t[0], t[1], t[2])}; }};
                    }});
    list.push_back({"layer norm + residual" + at_size, kBoth, [rows, width](const Setting& at) {
                      return OpCall{
                          {at.random({rows, width}), weight_leaf(at.random({width})), weight_leaf(at.random({width}))},
                          [residual = at.random({rows, width})](const Tensors& t) {
                            const ops::ResidualNorm result = ops::add_layer_norm(t[0], residual, t[1], t[2]);
                            return Tensors{result.h, result.y};
                          }};
                    }});
  }
}

/// Adds an operator that has one tensor argument.
void add_of_one(std::vector<OpBench>& list, const std::string& name, const Shape& shape,
                const std::function<Tensor(const Tensor&)>& function) {
  list.push_back({str(name, " ", shape[0], "x", shape[1]), kBoth, [shape, function](const Setting& at) {
                    return OpCall{{at.random(shape)}, [function](const Tensors& t) { return Tensors{function(t[0])}; }};
                  }});
}

void add_elementwise(const Setting& s, std::vector<OpBench>& list) {
  using ops::Gate;
  const int64_t rows = s.pick(65536, 4096, 16);
  const Shape joined{rows, s.pick(4096, 4096, 64)};
  add_of_one(list, "swiglu", joined, [](const Tensor& x) { return ops::gated_activation(x, Gate::swiglu); });
  add_of_one(list, "geglu", joined, [](const Tensor& x) { return ops::gated_activation(x, Gate::geglu); });
  add_of_one(list, "gelu", {rows, s.pick(3072, 3072, 48)},
             [](const Tensor& x) { return ops::activation(x, ops::Activation::gelu); });
  add_of_one(list, "softmax", {rows, s.pick(1024, 1024, 64)}, ops::softmax);
  add_of_one(list, "log softmax", {rows, s.pick(1024, 1024, 64)}, ops::log_softmax);
  add_of_one(list, "dropout", {rows, s.pick(768, 768, 48)}, [](const Tensor& x) {
    return ops::dropout(x, 0.1, {1, 2});
  });
}

void add_ends(const Setting& s, std::vector<OpBench>& list) {
  const int64_t vocab = s.pick(50304, 50304, 100);
  const int64_t width = s.pick(768, 768, 48);
  const int64_t tokens = s.pick(65536, 4096, 16);
  const int64_t rows = s.pick(16384, 128, 16);
  list.push_back({str("embedding ", tokens, " of ", vocab, "x", width), kBoth, [=](const Setting& at) {
                    const Tensor ids = at.random_ids({tokens}, vocab);
                    return OpCall{{weight_leaf(at.random({vocab, width}))},
                                  [ids](const Tensors& t) { return Tensors{ops::embedding(t[0], ids)}; }};
                  }});
  const auto targets_of = [=](const Setting& at) { return at.random_ids({rows}, vocab); };
  list.push_back({str("cross entropy ", rows, "x", vocab), kBoth, [=](const Setting& at) {
                    const Tensor targets = targets_of(at);
                    return OpCall{{at.random({rows, vocab})},
                                  [targets](const Tensors& t) { return Tensors{ops::cross_entropy(t[0], targets)}; }};
                  }});
  // The gradients are computed together with the loss, so backward takes no time of its own.
  list.push_back(
      {str("linear cross entropy ", rows, "x", width, "->", vocab),
       {OpWay::forward, OpWay::both},
       [=](const Setting& at) {
         const Tensor targets = targets_of(at);
         return OpCall{{at.random({rows, width}), weight_leaf(at.random({vocab, width}))},
                       [targets](const Tensors& t) { return Tensors{ops::linear_cross_entropy(t[0], t[1], targets)}; }};
       }});
}

/// As in training: f32 weights, or bf16/f16 weights with f32 master weights. Gradients and moments are f32.
void add_adamw(const Setting& s, std::vector<OpBench>& list) {
  const int64_t count = s.pick(124'000'000, 16'000'000, 4096);
  list.push_back({str("adamw ", count), kForward, [count](const Setting& at) {
                    ops::AdamWSlot slot;
                    slot.param = at.random({count});
                    slot.grad = at.random_f32({count});
                    if (at.dtype != DType::f32) slot.master = slot.param.to(DType::f32);
                    slot.m = Tensor::zeros({count}, DType::f32, at.device);
                    slot.v = Tensor::zeros({count}, DType::f32, at.device);
                    slot.weight_decay = 0.1;
                    return OpCall{{}, [slot](const Tensors&) {
                                    ops::adamw({slot});
                                    return Tensors{};
                                  }};
                  }});
}

}  // namespace

std::vector<OpBench> op_benches(const OpBenchSetting& setting) {
  std::vector<OpBench> list;
  add_linear(setting, list);
  add_parallel_block(setting, list);
  add_quantized(setting, list);
  add_norms(setting, list);
  add_attention_benches(setting, list);
  add_paged_benches(setting, list);
  add_elementwise(setting, list);
  add_ends(setting, list);
  add_adamw(setting, list);
  add_sequence_benches(setting, list);
  for (OpBench& bench : list) {
    if (bench.name.starts_with("linear 1x")) bench.forward_choice = "linear";
    if (bench.name.starts_with("quantized linear")) bench.forward_choice = "quantized_linear";
  }
  return list;
}

}  // namespace lamina::cli
