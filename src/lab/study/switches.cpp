#include "lamina/lab/study/switches.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lamina/arch/edit.h"
#include "lamina/arch/json.h"
#include "lamina/arch/layers.h"
#include "lamina/arch/resolve.h"

namespace lamina::lab {
namespace {

/// Removes the blocks' own norms, so that the model's norm applies.
constexpr const char* kOwnNorms = "layers[*].pattern[*].norm=null";

/// Unsets d_ff, so that each kind of FFN has its default width. All of them then have about the same number of
/// parameters.
std::vector<std::string> ffn(const char* kind, const char* choice) {
  const std::string path = "layers[*].pattern[*].ffn.";
  return {path + "kind=" + kind, path + "d_ff=null", path + choice};
}

/// Replaces every mixer by one of this kind, with these keys.
std::vector<std::string> mixer(const std::string& kind, const std::vector<std::string>& keys) {
  std::vector<std::string> edits{"layers[*].pattern[*].mixer=" + kind};
  for (const std::string& key : keys) edits.push_back("layers[*].pattern[*].mixer." + key);
  return edits;
}

/// RoPE with this scaling by a factor of 2.
std::vector<std::string> rope_scaling(const std::string& kind, const std::vector<std::string>& keys) {
  std::vector<std::string> edits{"position.kind=rope", "position.scaling.kind=" + kind, "position.scaling.factor=2"};
  for (const std::string& key : keys) edits.push_back("position.scaling." + key);
  return edits;
}
constexpr const char* kHalfLength = "original_length={context/2}";

/// A mixture of four experts of this width, with a balancing loss and these keys.
std::vector<std::string> experts(const std::string& d_ff, const std::vector<std::string>& keys) {
  const std::string path = "layers[*].pattern[*].ffn.";
  std::vector<std::string> edits{path + "kind=moe", path + "experts=4", path + "expert.kind=gated",
                                 path + "expert.d_ff=" + d_ff, path + "balance_loss=0.01"};
  for (const std::string& key : keys) edits.push_back(path + key);
  return edits;
}

/// Norms, their placement, and positions.
std::vector<Switch> norms_and_positions() {
  return {
      {"norm", "rms", "RMS norm", {"norm.kind=rms", kOwnNorms}},
      {"norm", "layer", "layer norm", {"norm.kind=layer", kOwnNorms}},
      {"norm", "layer-no-bias", "layer norm without bias", {"norm.kind=layer", "norm.bias=false", kOwnNorms}},
      {"norm", "layer-no-params", "layer norm without parameters", {"norm.kind=layer_no_params", kOwnNorms}},
      {"norm", "rms-no-params", "RMS norm without parameters", {"norm.kind=rms_no_params", kOwnNorms}},
      {"norm", "rms-groups", "RMS norm in 4 groups", {"norm.kind=rms", "norm.group_size={d_model/4}", kOwnNorms}},
      {"placement", "pre", "pre-norm", {"layers[*].pattern[*].placement=pre"}},
      {"placement", "post", "post-norm", {"layers[*].pattern[*].placement=post"}},
      {"placement", "sandwich", "sandwich norm", {"layers[*].pattern[*].placement=sandwich"}},
      {"placement", "branch-post", "norm after the branch", {"layers[*].pattern[*].placement=branch_post"}},
      {"placement", "after-norm", "residual after the norm", {"layers[*].pattern[*].placement=residual_after_norm"}},
      {"placement", "no-final-norm", "no norm before the head", {"final_norm=false"}},
      {"position", "learned", "learned positions", {"position.kind=learned"}},
      {"position", "sinusoidal", "sinusoidal positions", {"position.kind=sinusoidal"}},
      {"position", "rope", "RoPE", {"position.kind=rope"}},
      {"position", "alibi", "ALiBi", {"position.kind=alibi"}},
      {"position", "rope-half", "RoPE on half of each head", {"position.kind=rope", "position.fraction=0.5"}},
      {"position", "t5", "T5 bias", {"position.kind=t5"}},
      {"position", "transformer-xl", "relative attention (Transformer-XL)", {"position.kind=transformer_xl"}},
      {"position", "nope", "no positions", {"position.kind=none"}},
      {"rotation",
       "rope-interleaved",
       "RoPE on neighbouring dimensions",
       {"position.kind=rope", "position.pairing=interleaved"}},
      {"rotation", "rope-slow", "RoPE with base 1,000,000", {"position.kind=rope", "position.theta=1e6"}},
      {"rotation", "rope-pi", "RoPE, positions halved", rope_scaling("linear", {})},
      {"rotation", "rope-ntk", "RoPE, NTK scaling by 2", rope_scaling("ntk", {})},
      {"rotation", "rope-dynamic", "RoPE, dynamic NTK scaling", rope_scaling("dynamic_ntk", {kHalfLength})},
      {"rotation", "rope-yarn", "RoPE, YaRN scaling by 2", rope_scaling("yarn", {kHalfLength})},
      {"rotation", "rope-llama3", "RoPE, Llama 3's scaling by 2", rope_scaling("llama3", {kHalfLength})},
  };
}

/// Feed-forwards and attention heads.
std::vector<Switch> feed_forward_and_attention() {
  return {
      {"ffn", "relu", "ReLU", ffn("plain", "activation=relu")},
      {"ffn", "gelu", "GELU", ffn("plain", "activation=gelu")},
      {"ffn", "silu", "SiLU", ffn("plain", "activation=silu")},
      {"ffn", "relu2", "squared ReLU", ffn("plain", "activation=relu2")},
      {"ffn", "no-ffn", "no feed-forward", {"layers[*].pattern[*].ffn.kind=none"}},
      {"ffn", "glu", "GLU", ffn("gated", "gate=glu")},
      {"ffn", "reglu", "ReGLU", ffn("gated", "gate=reglu")},
      {"ffn", "geglu", "GeGLU", ffn("gated", "gate=geglu")},
      {"ffn", "swiglu", "SwiGLU", ffn("gated", "gate=swiglu")},
      {"ffn", "liglu", "LiGLU (bilinear)", ffn("gated", "gate=liglu")},
      {"activation", "gelu-tanh", "GELU, tanh approximation", ffn("plain", "activation=gelu_tanh")},
      {"activation", "elu", "ELU", ffn("plain", "activation=elu")},
      {"activation", "selu", "SELU", ffn("plain", "activation=selu")},
      {"activation", "sigmoid", "sigmoid", ffn("plain", "activation=sigmoid")},
      {"activation", "tanh", "tanh", ffn("plain", "activation=tanh")},
      {"activation", "xielu", "xIELU (learned)", ffn("plain", "xielu.beta=0.5")},
      {"activation", "geglu-tanh", "GeGLU, tanh approximation", ffn("gated", "gate=geglu_tanh")},
      {"activation",
       "swiglu-clamped",
       "SwiGLU, clamped, with up + 1",
       {"layers[*].pattern[*].ffn.kind=gated", "layers[*].pattern[*].ffn.d_ff=null",
        "layers[*].pattern[*].ffn.gate=swiglu", "layers[*].pattern[*].ffn.alpha=1.702",
        "layers[*].pattern[*].ffn.limit=7", "layers[*].pattern[*].ffn.up_offset=1"}},
      {"attention", "mha", "multi-head", {"layers[*].pattern[*].mixer.n_kv_heads={n_heads/1}"}},
      {"attention", "gqa", "grouped queries, 2 per KV head", {"layers[*].pattern[*].mixer.n_kv_heads={n_heads/2}"}},
      {"attention", "mqa", "multi-query", {"layers[*].pattern[*].mixer.n_kv_heads=1"}},
      {"attention", "mla", "latent attention",
       mixer("mla", {"n_heads={n_heads/1}", "kv_lora_rank={d_model/4}", "qk_nope={head_dim/1}", "qk_rope={head_dim/2}",
                     "v_head_dim={head_dim/1}"})},
      {"attention", "gate", "gate on the attention output", {"layers[*].pattern[*].mixer.gate=true"}},
      {"attention", "sinks", "attention sinks", {"layers[*].pattern[*].mixer.sinks=true"}},
      {"attention", "clip-qkv", "q, k and v clamped to ±8", {"layers[*].pattern[*].mixer.clip_qkv=8"}},
      {"scale", "unscaled", "scores without 1/√d", {"layers[*].pattern[*].mixer.scale=1"}},
      {"scale",
       "temperature",
       "query temperature that grows with the position",
       {"layers[*].pattern[*].mixer.temperature.scale=0.1",
        "layers[*].pattern[*].mixer.temperature.interval={context/4}"}},
      {"scale", "logit-scale", "logits divided by √d", {"head.scale=inverse_sqrt_d_model"}},
      {"qk", "qk-norm", "QK-norm per head", {"layers[*].pattern[*].mixer.qk_norm.kind=per_head"}},
      {"qk", "qk-norm-whole", "QK-norm of the whole projection", {"layers[*].pattern[*].mixer.qk_norm.kind=whole"}},
      {"qk",
       "qk-norm-after",
       "QK-norm after the rotation",
       {"layers[*].pattern[*].mixer.qk_norm.kind=per_head", "layers[*].pattern[*].mixer.qk_norm.after_rope=true"}},
      {"soft-cap", "score-cap", "scores capped at 50", {"layers[*].pattern[*].mixer.soft_cap=50"}},
      {"soft-cap", "logit-cap", "logits capped at 30", {"head.soft_cap=30"}},
  };
}

/// Wiring, patterns, embeddings, experts and other mixers.
std::vector<Switch> blocks_and_mixers() {
  return {
      {"wiring", "serial", "serial block", {"layers[*].pattern[*].wiring.kind=serial"}},
      {"wiring", "parallel", "parallel block", {"layers[*].pattern[*].wiring.kind=parallel"}},
      {"wiring",
       "parallel-norms",
       "parallel block with two norms",
       {"layers[*].pattern[*].wiring.kind=parallel", "layers[*].pattern[*].wiring.shared_norm=false"}},
      {"pattern",
       "window",
       "window of a quarter of the context",
       {"layers[*].pattern[*].mixer.pattern.kind=window", "layers[*].pattern[*].mixer.pattern.size={context/4}"}},
      {"pattern",
       "strided",
       "window of an eighth of the context, strided",
       {"layers[*].pattern[*].mixer.pattern.kind=strided", "layers[*].pattern[*].mixer.pattern.window={context/8}",
        "layers[*].pattern[*].mixer.pattern.stride={context/8}"}},
      {"pattern",
       "longformer",
       "window of an eighth of the context, one global token",
       {"layers[*].pattern[*].mixer.pattern.kind=longformer", "layers[*].pattern[*].mixer.pattern.window={context/8}"}},
      {"pattern",
       "bigbird",
       "blocks of a sixteenth of the context: window, global, random",
       {"layers[*].pattern[*].mixer.pattern.kind=bigbird", "layers[*].pattern[*].mixer.pattern.block={context/16}"}},
      {"pattern",
       "chunks",
       "chunks of a quarter of the context",
       {"layers[*].pattern[*].mixer.pattern.kind=chunks", "layers[*].pattern[*].mixer.pattern.size={context/4}"}},
      {"pattern",
       "every-4th-full",
       "windows with RoPE, every 4th layer full without positions",
       {"layers={every-4th}"}},
      {"bias", "bias", "biases", {"layers[*].pattern[*].mixer.bias=true", "layers[*].pattern[*].ffn.bias=true"}},
      {"bias",
       "no-bias",
       "no biases",
       {"layers[*].pattern[*].mixer.bias=false", "layers[*].pattern[*].ffn.bias=false"}},
      {"head", "tied", "head tied to the embedding", {"head.tied=true"}},
      {"head", "untied", "head of its own", {"head.tied=false"}},
      {"head", "head-bias", "head with a bias", {"head.bias=true"}},
      {"embedding", "embedding-narrow", "embedding of half the width", {"embedding.d_embed={d_model/2}"}},
      {"embedding", "embedding-scale", "embedding times √d", {"embedding.scale=sqrt_d_model"}},
      {"embedding", "embedding-norm", "layer norm on the embedding", {"embedding.norm.kind=layer"}},
      {"residual", "residual-scale", "branches times 0.5", {"layers[*].pattern[*].residual_scale=0.5"}},
      {"residual", "skip-scale", "residual stream times 0.9", {"layers[*].pattern[*].skip_scale=0.9"}},
      {"experts", "moe", "4 experts of half width, 2 per token", experts("{d_ff/2}", {"top_k=2", "renormalise=true"})},
      {"experts", "moe-top-1", "4 experts, 1 per token (Switch)", experts("{d_ff/1}", {"top_k=1"})},
      {"experts", "moe-chosen", "4 experts of half width, softmax over the 2 chosen (Mixtral)",
       experts("{d_ff/2}", {"top_k=2", "score=softmax_of_chosen"})},
      {"experts", "moe-shared", "4 experts of a quarter, 2 per token and 2 shared, sigmoid scores (DeepSeek-V3)",
       experts("{d_ff/4}",
               {"top_k=2", "score=sigmoid", "renormalise=true", "selection_bias=true", "shared_experts=2"})},
      {"ssm", "mamba", "Mamba instead of attention", mixer("mamba", {})},
      {"ssm", "mamba2", "Mamba-2 instead of attention", mixer("mamba2", {})},
      {"ssm", "s4d", "S4D instead of attention", mixer("s4d", {})},
      {"ssm", "hybrid", "Mamba, one attention in the middle", {"layers={hybrid}"}},
      {"ssm", "attention-mamba2", "attention beside Mamba-2",
       mixer("attention_mamba2", {"attention.n_heads={n_heads/1}", "mamba2.head_dim={head_dim/1}"})},
      {"linear", "gated-delta", "gated delta rule",
       mixer("gated_delta", {"n_heads={n_heads/1}", "key_dim={head_dim/1}", "value_dim={head_dim/1}"})},
      {"linear", "lightning", "lightning attention", mixer("lightning", {"n_heads={n_heads/1}"})},
      {"linear", "wkv", "RWKV-4's time mixing", mixer("wkv", {})},
      {"linear", "rwkv", "RWKV-4's time and channel mixing", {"layers={rwkv}"}},
      {"linear", "rg-lru", "RG-LRU", mixer("rg_lru", {"blocks={n_heads/1}"})},
      {"linear", "short-conv", "gated short convolution", mixer("short_conv", {})},
  };
}

const std::vector<Switch>& table() {
  static const std::vector<Switch> switches = [] {
    std::vector<Switch> all;
    for (const auto& part : {norms_and_positions(), feed_forward_and_attention(), blocks_and_mixers()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return switches;
}

/// The size that a placeholder names, from the first block of the base that has it.
int64_t size_of(const arch::ArchSpec& base, const std::string& name) {
  if (name == "context") return base.context;
  if (name == "d_model") return base.d_model;
  for (const arch::WrittenBlock& written : arch::written_blocks(base)) {
    if (name == "n_heads") {
      if (const auto* attention = arch::attention_of(written.block->mixer)) return attention->n_heads;
    }
    if (name == "head_dim") {
      if (const auto* attention = arch::attention_of(written.block->mixer)) return attention->head_dim.value_or(0);
    }
    if (name == "d_ff") {
      if (const auto* gated = std::get_if<arch::GatedFfn>(&written.block->ffn)) return gated->d_ff.value_or(0);
      if (const auto* plain = std::get_if<arch::PlainFfn>(&written.block->ffn)) return plain->d_ff.value_or(0) * 2 / 3;
    }
  }
  return 0;
}

/// The layers of the base as a list for `layers`. `change` sets layer i, which is a copy of the base's, and may add
/// blocks after it.
template <class F>
std::string layer_list(const arch::ArchSpec& base, const F& change) {
  arch::ArchSpec spec;
  spec.layers.emplace_back();
  std::vector<arch::Block>& blocks = spec.layers[0].pattern;
  const std::vector<const arch::Block*> layers = arch::layer_blocks(base);
  for (size_t i = 0; i < layers.size(); ++i) {
    blocks.push_back(*layers[i]);
    blocks.back().repeat = 1;
    change(i, layers.size(), blocks);
  }
  return arch::spec_to_json(spec, arch::Defaults::omit)["layers"].dump();
}

/// All layers with Mamba mixers, except the middle layer, which keeps its own mixer.
void make_hybrid(size_t i, size_t count, std::vector<arch::Block>& blocks) {
  if (i != count / 2) blocks.back().mixer = arch::Mamba{};
}

/// Every layer as two blocks: time mixing and channel mixing.
void make_rwkv(size_t /*i*/, size_t /*count*/, std::vector<arch::Block>& blocks) {
  blocks.back().mixer = arch::Wkv{};
  blocks.back().ffn = arch::NoFfn{};
  blocks.push_back(blocks.back());
  blocks.back().mixer = arch::ChannelMix{};
}

/// Windows of a quarter of the context with RoPE; every 4th layer sees everything, without positions.
std::string every_fourth_full(const arch::ArchSpec& base) {
  return layer_list(base, [&](size_t i, size_t /*count*/, std::vector<arch::Block>& blocks) {
    arch::Attention* attention = arch::attention_of(blocks.back().mixer);
    if (attention == nullptr) return;
    if (i % 4 == 3) {
      attention->position = arch::NoPosition{};
    } else {
      attention->pattern = arch::WindowPattern{.size = std::max<int64_t>(base.context / 4, 1)};
      attention->position = arch::Rope{};
    }
  });
}

/// Replaces {name/number} by the base's size divided by the number; at least 1.
std::string filled(std::string edit, const arch::ArchSpec& base) {
  const size_t open = edit.find('{');
  const size_t close = edit.find('}');
  if (open == std::string::npos || close == std::string::npos) return edit;
  const std::string inside = edit.substr(open + 1, close - open - 1);
  const size_t slash = inside.find('/');
  std::string value;
  if (inside == "hybrid") {
    value = layer_list(base, make_hybrid);
  } else if (inside == "rwkv") {
    value = layer_list(base, make_rwkv);
  } else if (inside == "every-4th") {
    value = every_fourth_full(base);
  } else {
    const int64_t size = size_of(arch::fill_defaults(base), inside.substr(0, slash));
    value = std::to_string(std::max<int64_t>(size / std::stoll(inside.substr(slash + 1)), 1));
  }
  return edit.replace(open, close - open + 1, value);
}

Variant variant_of(const Switch& choice, const arch::ArchSpec& base) {
  Variant variant{.name = choice.name, .label = choice.label, .set = {}, .recipe = {}, .architecture = {}};
  for (const std::string& edit : choice.set) variant.set.push_back(filled(edit, base));
  return variant;
}

/// Whether the variant equals the base.
bool leaves_as_is(const Variant& variant, const arch::ArchSpec& base) {
  return arch::fill_defaults(arch::with_overrides(base, variant.set)) == arch::fill_defaults(base);
}

/// Whether the switch gives a different architecture that can be built. For example, grouped queries do not apply to a
/// model without attention.
bool applies(const Variant& variant, arch::ArchSpec base) {
  if (base.vocab_size == 0) base.vocab_size = 1;  // unknown without data; any value works
  try {
    if (leaves_as_is(variant, base)) return false;
    arch::resolve(arch::with_overrides(base, variant.set));
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

const std::vector<Switch>& switches() { return table(); }

std::vector<std::string> switch_groups() {
  std::vector<std::string> groups;
  for (const Switch& choice : table()) {
    if (groups.empty() || groups.back() != choice.group) groups.emplace_back(choice.group);
  }
  return groups;
}

std::vector<Variant> switch_variants(const std::string& name_or_group, const arch::ArchSpec& base) {
  std::vector<Variant> found;
  std::vector<std::string> known = switch_groups();
  const bool group = std::find(known.begin(), known.end(), name_or_group) != known.end();
  for (const Switch& choice : table()) {
    known.emplace_back(choice.name);
    if (group ? choice.group == name_or_group : choice.name == name_or_group) found.push_back(variant_of(choice, base));
  }
  if (group) std::erase_if(found, [&](const Variant& variant) { return !applies(variant, base); });
  if (group || !found.empty()) return found;
  const std::string nearest = nearest_of(name_or_group.substr(0, 64), known);
  throw Error(str("no switch \"", name_or_group, "\"; ",
                  nearest.empty() ? "`lamina compare --list` lists all" : "did you mean " + nearest + "?"));
}

std::vector<Variant> all_switch_variants(const arch::ArchSpec& base) {
  std::vector<Variant> all;
  for (const Switch& choice : table()) all.push_back(variant_of(choice, base));
  std::erase_if(all, [&](const Variant& variant) { return !applies(variant, base); });
  return all;
}

std::vector<Variant> ladder_steps(const arch::ArchSpec& base) {
  std::vector<Variant> steps;
  arch::ArchSpec so_far = base;
  for (const char* name : {"pre", "rope", "rms", "swiglu", "gqa"}) {
    const Variant step = switch_variants(name, base)[0];
    if (!applies(step, so_far)) continue;
    so_far = arch::with_overrides(so_far, step.set);
    steps.push_back(step);
  }
  return steps;
}

}  // namespace lamina::lab
