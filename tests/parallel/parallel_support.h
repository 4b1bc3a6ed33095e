#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

#include "lamina/arch/layers.h"
#include "lamina/base/philox.h"
#include "lamina/comm/local.h"
#include "lamina/train/learner.h"
#include "support/close.h"

namespace lamina::testing {

/// A resolved recipe of a small architecture, with changes as for --set.
inline train::Recipe small_recipe(const std::vector<std::string>& changes) {
  const char* text = R"({"architecture": "llama-tiny", "data": {"train": "none.txt"}, "batch": 12, "length": 10,
    "steps": 5, "accumulation": 2, "optimizer": {"kind": "adamw", "lr": 0.01},
    "schedule": {"kind": "constant", "warmup": 0}, "clip": 0.5})";
  return train::resolve_recipe(train::read_recipe(text, "small", changes), 0, "small");
}

/// Random tokens; row r has about r positions without a target, so that rows weigh differently. Packed: one row of
/// documents, which are shorter and longer than the chunks of ranks. Encoder–decoders have a source of three tokens
/// less.
inline data::Batch batch_of(const train::Recipe& recipe, int64_t pass) {
  data::Batch batch{recipe.batch, recipe.length, {}, {}, {}};
  const RandomKey key{99, static_cast<uint64_t>(pass)};
  const auto vocab = static_cast<uint32_t>(recipe.architecture.vocab_size);
  for (int64_t i = 0; i < recipe.batch * recipe.length; ++i) {
    batch.ids.push_back(philox_word(key, static_cast<uint64_t>(2 * i)) % vocab);
    const bool ignored = i % recipe.length < i / recipe.length % recipe.length;
    batch.targets.push_back(ignored ? kIgnoreIndex : philox_word(key, static_cast<uint64_t>(2 * i + 1)) % vocab);
  }
  if (recipe.architecture.encoder) {
    batch.source_length = recipe.length - 3;
    for (int64_t i = 0; i < batch.rows * batch.source_length; ++i) {
      batch.source.push_back(philox_word({98, key.stream}, static_cast<uint64_t>(i)) % vocab);
    }
  }
  if (train::is_packed(recipe)) {
    batch.length *= batch.rows;
    batch.rows = 1;
    batch.document_starts = {0};
    for (int64_t start = 7 + pass % 5; start < batch.length; start += start % 3 == 0 ? 41 : 1 + start % 9) {
      batch.document_starts.push_back(start);
    }
    batch.document_starts.push_back(batch.length);
  }
  return batch;
}

inline void watch_all(nn::Model& model, Tape& tape) {
  for (auto& [name, parameter] : model.named_parameters()) tape.watch(parameter);
}

/// The balancing loss of experts is a mean over a micro-batch, so it depends on dp.
inline bool has_experts(const arch::ArchSpec& spec) {
  const std::vector<const arch::Block*> blocks = arch::layer_blocks(spec);
  return std::any_of(blocks.begin(), blocks.end(),
                     [](const arch::Block* block) { return std::holds_alternative<arch::Moe>(block->ffn); });
}

/// Losses, norms and tensors of a run, for comparison between numbers of ranks.
struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  std::map<std::string, std::vector<float>> tensors;  ///< weights and training state
};

/// Five updates on `communicator` (null: one process). The result is complete on rank 0.
inline Trained train_five(const train::Recipe& recipe, std::shared_ptr<comm::Communicator> communicator,
                          const std::function<void(train::Learner&)>& before = {},
                          const Device& device = Device::cpu(1)) {
  train::Learner learner(recipe, device, std::move(communicator));
  if (before) before(learner);
  Trained trained;
  for (int64_t step = 0; step < 5; ++step) {
    const train::StepResult result = learner.step(step, [&](int64_t pass) { return batch_of(recipe, pass); });
    trained.losses.push_back(result.loss);
    trained.norms.push_back(result.grad_norm);
  }
  learner.with_kept_weights([&](const nn::StateDict& weights) {
    for (const auto& [name, tensor] : weights) {
      trained.tensors["weight " + name] = tensor.to(DType::f32).to_vector<float>();
    }
  });
  for (const NamedTensor& entry : learner.training_state()) {
    trained.tensors[entry.name] = entry.tensor.to(DType::f32).to_vector<float>();
  }
  return trained;
}

/// train_five() on local ranks; rank 0's result. `wrap` may replace each rank's communicator.
inline Trained train_on_ranks(
    int ranks, const train::Recipe& recipe,
    const std::function<std::shared_ptr<comm::Communicator>(std::shared_ptr<comm::Communicator>)>& wrap = {}) {
  Trained first;
  comm::run_local_ranks(ranks, [&](comm::Communicator& c) {
    const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
    const Trained trained = train_five(recipe, wrap ? wrap(own) : own);
    if (c.rank() == 0) first = trained;
  });
  return first;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Names what differs in a bit; empty if nothing does.
inline std::string first_difference(const Trained& a, const Trained& b) {
  for (size_t i = 0; i < a.losses.size(); ++i) {
    if (a.losses[i] != b.losses[i]) return str("loss of update ", i + 1, ": ", a.losses[i], " and ", b.losses[i]);
    if (a.norms[i] != b.norms[i]) return str("norm of update ", i + 1, ": ", a.norms[i], " and ", b.norms[i]);
  }
  if (a.tensors.size() != b.tensors.size()) return str(a.tensors.size(), " and ", b.tensors.size(), " tensors");
  for (const auto& [name, values] : a.tensors) {
    const auto other = b.tensors.find(name);
    if (other == b.tensors.end() || !same_bits(values, other->second)) return name;
  }
  return "";
}

/// Largest difference of weights; infinite if one is NaN.
inline double largest_difference(const Trained& a, const Trained& b) {
  double largest = 0;
  for (const auto& [name, values] : a.tensors) {
    if (!name.starts_with("weight ")) continue;
    const std::vector<float>& others = b.tensors.at(name);
    largest = std::max(largest, largest_error({values.begin(), values.end()}, {others.begin(), others.end()}));
  }
  return largest;
}

}  // namespace lamina::testing
