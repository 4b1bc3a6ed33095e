#pragma once

#include "lamina/io/hf/family.h"

namespace lamina::io::hf {

/// Names of the config.json keys for the experts, and their defaults.
struct ExpertKeys {
  std::string_view count_keys;
  int64_t count;
  int64_t top_k;
  std::string_view width_key;
  int64_t width;
};
/// Maps the number of experts, num_experts_per_tok, their width and hidden_act.
arch::Moe& gated_experts(ConfigMap& map, Draft& draft, const ExpertKeys& keys);
/// Maps the feed-forward width of the layers without experts. Their activation is that of the experts.
void dense_layers(ConfigMap& map, Draft& draft, const arch::Moe& moe, int64_t d_ff,
                  std::string_view key = "intermediate_size");
/// Maps mlp_only_layers and decoder_sparse_step: which layers have no experts.
void sparse_steps(ConfigMap& map, Draft& draft);

NameMap mixtral_names();        ///< block_sparse_moe.gate, experts.{e}.w1, w2, w3
NameMap expert_names();         ///< one tensor per expert, shared experts, and the feed-forwards of dense layers
NameMap joined_expert_names();  ///< names in memory, where transformers packs all experts into one tensor
NameMap shared_expert_names();  ///< expert_names() plus one shared expert with a gate

}  // namespace lamina::io::hf
