#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "lamina/arch/resolve.h"
#include "lamina/arch/weights.h"
#include "lamina/autograd/tape.h"
#include "lamina/nn/mixer.h"
#include "lamina/nn/position_tables.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/elementwise/reduce.h"
#include "support/array.h"
#include "support/close.h"
#include "support/reverse.h"
#include "support/uniform.h"

namespace lamina::testing {

/// Weights of a mixer or feed-forward for an oracle, under the names of arch::block_weights.
template <class S>
using Weights = std::map<std::string, Array<S>>;

inline arch::ArchSpec one_block(int64_t d_model, const arch::Mixer& mixer, const arch::Ffn& ffn,
                                const arch::Position& position = arch::NoPosition{}) {
  arch::ArchSpec spec;
  spec.vocab_size = 8;
  spec.d_model = d_model;
  spec.context = 64;
  spec.position = position;
  spec.layers = {{.repeat = 1, .pattern = {arch::Block{.mixer = mixer, .ffn = ffn}}}};
  return arch::resolve(spec, "test");
}

/// A single mixer or feed-forward, in f64 by default, with weights uniform in ±`spread`.
struct BlockPart {
  explicit BlockPart(const arch::ArchSpec& resolved, double spread = 0.6, DType dtype = DType::f64)
      : spec(resolved),
        make(device, {.dtype = dtype}),
        positions(spec, make.at("position")),
        mixer(nn::make_mixer(spec, block(), make.at("mixer"), positions)),
        ffn(nn::make_ffn(spec, block(), make.at("ffn"))) {
    std::mt19937 random(7);
    for (auto& [name, tensor] : state()) {
      std::vector<double> values(static_cast<size_t>(tensor.numel()));
      for (double& value : values) value = uniform(random, -spread, spread);
      tensor.copy_(Tensor::from(values, tensor.shape(), device));
    }
  }

  const arch::Block& block() const { return spec.layers[0].pattern[0]; }

  /// Calls body(prefix, module) for each module that exists.
  template <class F>
  void modules(const F& body) const {
    body("position.", positions);
    if (mixer) body("mixer.", *mixer);
    if (ffn) body("ffn.", *ffn);
  }
  nn::StateDict state() const {
    nn::StateDict all;
    modules([&](const std::string& prefix, const nn::Module& module) {
      for (const auto& [name, tensor] : module.state_dict()) all.push_back({prefix + name, tensor});
    });
    return all;
  }
  void set(const std::string& name, const std::vector<double>& values) const {
    for (auto& [own, tensor] : state()) {
      if (own == name) tensor.copy_(Tensor::from(values, tensor.shape(), device));
    }
  }
  Weights<double> weights() const {
    Weights<double> all;
    for (const auto& [name, tensor] : state()) {
      all[name] = Array<double>(tensor.shape());
      all[name].values = tensor.to_vector<double>();
    }
    return all;
  }
  Tensor input(const Shape& shape, DType dtype = DType::f64) const {
    std::mt19937 random(11);
    std::vector<double> values(static_cast<size_t>(shape.numel()));
    for (double& value : values) value = uniform(random, -1.0, 1.0);
    return Tensor::from(values, shape, device).to(dtype);
  }
  static nn::ForwardContext pass_of(const Tensor& x) { return {.batch = x.dim(0), .seq = x.dim(1)}; }
  /// A forward call without cache.
  Tensor forward(const Tensor& x) const {
    nn::ForwardContext pass = pass_of(x);
    return mixer ? mixer->forward(x, pass, nullptr) : ffn->forward(x, pass);
  }
  /// Feeds the tokens of x through a cache in pieces of the given lengths.
  std::vector<double> cached(const Tensor& x, const std::vector<int64_t>& pieces) const {
    const auto cache = mixer->make_cache(x.dim(0), x.dim(1), x.dtype(), device);
    std::vector<std::vector<double>> rows(static_cast<size_t>(x.dim(0)));
    int64_t at = 0;
    for (const int64_t length : pieces) {
      nn::ForwardContext pass{.batch = x.dim(0), .seq = length, .offset = at};
      const Tensor y = mixer->forward(x.slice(1, at, length), pass, cache.get());
      for (int64_t row = 0; row < x.dim(0); ++row) {
        const std::vector<double> part = y.slice(0, row, 1).to_vector<double>();
        rows[static_cast<size_t>(row)].insert(rows[static_cast<size_t>(row)].end(), part.begin(), part.end());
      }
      at += length;
    }
    std::vector<double> all;
    for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
    return all;
  }

  Device device = Device::cpu(1);
  arch::ArchSpec spec;
  nn::ParameterFactory make;
  nn::PositionTables positions;
  std::unique_ptr<nn::Mixer> mixer;
  std::unique_ptr<nn::Ffn> ffn;
};

inline void expect_near(const std::vector<double>& ours, const std::vector<double>& truth, double relative,
                        const std::string& what) {
  const double largest = largest_magnitude(truth);
  EXPECT_LE(largest_error(ours, truth), relative * std::max(largest, 1e-3)) << what << ", largest " << largest;
}

/// Expects the weight names and shapes that the architecture lists.
inline void expect_listed_weights(const BlockPart& part) {
  std::map<std::string, std::vector<int64_t>> listed;
  for (const arch::Weight& weight : arch::block_weights(part.spec, part.block())) {
    if (weight.name.starts_with("mixer.") || weight.name.starts_with("ffn.")) listed[weight.name] = weight.shape;
  }
  for (const auto& [name, tensor] : part.state()) {
    if (name.starts_with("position.")) continue;
    ASSERT_TRUE(listed.count(name) == 1) << name;
    EXPECT_EQ(tensor.shape(), Shape{std::span<const int64_t>(listed[name])}) << name;
    listed.erase(name);
  }
  for (const auto& [name, shape] : listed) ADD_FAILURE() << name << " is missing";
}

/// Compares the output and the gradients of x and every weight (loss Σ y·w, fixed w) with a plain-loop oracle
/// f(Weights<S>, Array<S> x) → Array<S>. The tolerance is relative to the largest value.
template <class Oracle>
void expect_as_oracle(const BlockPart& part, const Shape& shape, const Oracle& oracle, double relative = 1e-9) {
  Tensor x = part.input(shape);
  Array<double> plain_x(shape);
  plain_x.values = x.to_vector<double>();
  const Array<double> truth = oracle(part.weights(), plain_x);
  expect_near(part.forward(x).to_vector<double>(), truth.values, relative, "forward");

  using R = Rev<double>;
  ScalarTape<double>::current().clear();
  Weights<R> leaves;
  for (const auto& [name, array] : part.weights()) {
    leaves[name] = Array<R>(array.shape);
    for (int64_t i = 0; i < array.numel(); ++i) leaves[name][i] = R::variable(array[i]);
  }
  Array<R> leaf_x(shape);
  for (int64_t i = 0; i < leaf_x.numel(); ++i) leaf_x[i] = R::variable(plain_x[i]);
  const Array<R> y = oracle(leaves, leaf_x);
  std::vector<int32_t> outputs;
  std::vector<double> seeds;
  for (int64_t i = 0; i < y.numel(); ++i) {
    outputs.push_back(y[i].node);
    seeds.push_back(std::sin(1.0 + static_cast<double>(i)));
  }
  const std::vector<double> grads = ScalarTape<double>::current().gradients(outputs, seeds);
  const auto wanted = [&](const Array<R>& array) {
    std::vector<double> values;
    for (int64_t i = 0; i < array.numel(); ++i) values.push_back(grads[static_cast<size_t>(array[i].node)]);
    return values;
  };

  Tape tape;
  tape.watch(x);
  part.modules([&](const std::string& /*prefix*/, const nn::Module& module) {
    for (Tensor& parameter : module.parameters()) tape.watch(parameter);
  });
  const Tensor loss = ops::sum(ops::mul(part.forward(x), Tensor::from(seeds, y.shape, part.device)));
  tape.backward(loss);
  expect_near(tape.grad(x).to_vector<double>(), wanted(leaf_x), relative, "gradient of x");
  part.modules([&](const std::string& prefix, const nn::Module& module) {
    for (const NamedTensor& entry : module.named_gradients(tape)) {
      const std::string name = prefix + entry.name;
      ASSERT_TRUE(entry.tensor.defined()) << name;
      expect_near(entry.tensor.to_vector<double>(), wanted(leaves.at(name)), relative, name);
    }
  });
}

/// Expects the outputs of one full call, however the tokens are split into cached calls.
inline void expect_cached_equals_full(const BlockPart& part, const Tensor& x, double relative = 1e-11) {
  const std::vector<double> full = part.forward(x).to_vector<double>();
  const int64_t seq = x.dim(1);
  std::vector<int64_t> singles{seq / 2};
  for (int64_t i = seq / 2; i < seq; ++i) singles.push_back(1);
  expect_near(part.cached(x, {seq}), full, relative, "all at once");
  expect_near(part.cached(x, singles), full, relative, "half, then one by one");
  expect_near(part.cached(x, std::vector<int64_t>(static_cast<size_t>(seq), 1)), full, relative, "one by one");
  expect_near(part.cached(x, {seq / 3, 2, seq - seq / 3 - 2}), full, relative, "in pieces");
}

/// Rows of different lengths, padded at the end, give what each row gives alone.
inline void expect_ragged_rows_are_independent(const BlockPart& part, int64_t d_model, double relative = 1e-11) {
  const Tensor x = part.input({2, 9, d_model});
  const auto cache = part.mixer->make_cache(2, 16, x.dtype(), part.device);
  // Row 0 has 5 tokens and then 3; row 1 has 2 (padded to 5) and then 4, for which row 0 is padded.
  nn::ForwardContext first{.batch = 2, .seq = 5, .counts = {5, 2}};
  part.mixer->forward(x.slice(1, 0, 5), first, cache.get());
  const Tensor longer = Tensor::zeros({2, 4, d_model}, x.dtype(), part.device);
  longer.slice(0, 0, 1).slice(1, 0, 3).copy_(x.slice(0, 0, 1).slice(1, 5, 3));
  longer.slice(0, 1, 1).copy_(x.slice(0, 1, 1).slice(1, 2, 4));
  nn::ForwardContext second{.batch = 2, .seq = 4, .offsets = {5, 2}, .counts = {3, 4}};
  second.positions = Tensor::from(std::vector<int64_t>{5, 6, 7, 8, 2, 3, 4, 5}, {2, 4}, part.device);
  const Tensor y = part.mixer->forward(longer, second, cache.get());
  const Tensor row0 = part.forward(x.slice(0, 0, 1).slice(1, 0, 8)).slice(1, 5, 3);
  const Tensor row1 = part.forward(x.slice(0, 1, 1).slice(1, 0, 6)).slice(1, 2, 4);
  expect_near(y.slice(0, 0, 1).slice(1, 0, 3).to_vector<double>(), row0.to_vector<double>(), relative, "row 0");
  expect_near(y.slice(0, 1, 1).to_vector<double>(), row1.to_vector<double>(), relative, "row 1");
}

/// Packed documents give what each document gives alone.
inline void expect_documents_are_apart(const BlockPart& part, int64_t d_model, double relative = 1e-11) {
  const Tensor x = part.input({2, 9, d_model});
  nn::ForwardContext pass = BlockPart::pass_of(x);
  pass.document_starts = Tensor::from(std::vector<int64_t>{0, 4, 9}, {3}, part.device);
  pass.positions = Tensor::from(std::vector<int64_t>{0, 1, 2, 3, 0, 1, 2, 3, 4}, {9}, part.device);
  const Tensor y = part.mixer->forward(x, pass, nullptr);
  expect_near(y.slice(1, 0, 4).to_vector<double>(), part.forward(x.slice(1, 0, 4)).to_vector<double>(), relative,
              "first document");
  expect_near(y.slice(1, 4, 5).to_vector<double>(), part.forward(x.slice(1, 4, 5)).to_vector<double>(), relative,
              "second document");
}

}  // namespace lamina::testing
