#pragma once

#include "nn/model_oracle.h"
#include "nn/model_support.h"

namespace lamina::testing {

inline OracleWeights weights_of(const nn::Model& model) {
  OracleWeights weights;
  for (const auto& [name, tensor] : model.state_dict()) weights[name] = tensor.to_vector<double>();
  return weights;
}

template <class S>
std::vector<double> oracle_logits(const nn::Model& model, const std::vector<int64_t>& ids) {
  const OracleWeights weights = weights_of(model);
  std::vector<double> flat;
  for (const auto& row : ModelOracle<S>(model.spec(), weights).logits(ids)) {
    flat.insert(flat.end(), row.begin(), row.end());
  }
  return flat;
}

inline void expect_oracle(const NamedSpec& named) {
  const Device device = Device::cpu(2);
  nn::Model model(named.spec, device);
  scramble(model);
  const auto ids = random_ids(11, named.spec.vocab_size);
  const auto ours = model.logits(ids_tensor(ids, 1, device)).to_vector<double>();
  expect_as_close(ours, oracle_logits<double>(model, ids), oracle_logits<float>(model, ids), DType::f32, named.name);
}

/// Whether the oracle supports the spec: it has only unscaled RoPE and linear scaling. rope_scaling_test covers others.
inline bool oracle_knows(const arch::ArchSpec& spec) {
  for (const arch::Block* block : arch::layer_blocks(spec)) {
    const auto* attention = std::get_if<arch::Attention>(&block->mixer);
    if (attention == nullptr || std::holds_alternative<arch::TransformerXl>(*attention->position)) return false;
    if (std::holds_alternative<arch::Moe>(block->ffn)) return false;
    const auto* rope = std::get_if<arch::Rope>(&*attention->position);
    if (rope != nullptr && rope->scaling.index() > 1) return false;
  }
  return true;
}

}  // namespace lamina::testing
