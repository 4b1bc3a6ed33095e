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

const std::vector<Switch>& table() {
  static const std::vector<Switch> switches = {
      {"norm", "rms", "RMS norm", {"norm.kind=rms", kOwnNorms}},
      {"norm", "layer", "layer norm", {"norm.kind=layer", kOwnNorms}},
      {"norm", "layer-no-bias", "layer norm without bias", {"norm.kind=layer", "norm.bias=false", kOwnNorms}},
      {"norm", "layer-no-params", "layer norm without parameters", {"norm.kind=layer_no_params", kOwnNorms}},
      {"norm", "rms-groups", "RMS norm in 4 groups", {"norm.kind=rms", "norm.group_size={d_model/4}", kOwnNorms}},
      {"placement", "pre", "pre-norm", {"layers[*].pattern[*].placement=pre"}},
      {"placement", "post", "post-norm", {"layers[*].pattern[*].placement=post"}},
      {"placement", "sandwich", "sandwich norm", {"layers[*].pattern[*].placement=sandwich"}},
      {"placement", "branch-post", "norm after the branch", {"layers[*].pattern[*].placement=branch_post"}},
      {"placement", "after-norm", "residual after the norm", {"layers[*].pattern[*].placement=residual_after_norm"}},
      {"position", "learned", "learned positions", {"position.kind=learned"}},
      {"position", "sinusoidal", "sinusoidal positions", {"position.kind=sinusoidal"}},
      {"position", "rope", "RoPE", {"position.kind=rope"}},
      {"position", "alibi", "ALiBi", {"position.kind=alibi"}},
      {"position", "rope-half", "RoPE on half of each head", {"position.kind=rope", "position.fraction=0.5"}},
      {"position", "t5", "T5 bias", {"position.kind=t5"}},
      {"position", "nope", "no positions", {"position.kind=none"}},
      {"ffn", "relu", "ReLU", ffn("plain", "activation=relu")},
      {"ffn", "gelu", "GELU", ffn("plain", "activation=gelu")},
      {"ffn", "silu", "SiLU", ffn("plain", "activation=silu")},
      {"ffn", "relu2", "squared ReLU", ffn("plain", "activation=relu2")},
      {"ffn", "glu", "GLU", ffn("gated", "gate=glu")},
      {"ffn", "reglu", "ReGLU", ffn("gated", "gate=reglu")},
      {"ffn", "geglu", "GeGLU", ffn("gated", "gate=geglu")},
      {"ffn", "swiglu", "SwiGLU", ffn("gated", "gate=swiglu")},
      {"ffn", "liglu", "LiGLU (bilinear)", ffn("gated", "gate=liglu")},
      {"attention", "mha", "multi-head", {"layers[*].pattern[*].mixer.n_kv_heads={n_heads/1}"}},
      {"attention", "gqa", "grouped queries, 2 per KV head", {"layers[*].pattern[*].mixer.n_kv_heads={n_heads/2}"}},
      {"attention", "mqa", "multi-query", {"layers[*].pattern[*].mixer.n_kv_heads=1"}},
      {"attention", "mla", "latent attention",
       mixer("mla", {"n_heads={n_heads/1}", "kv_lora_rank={d_model/4}", "qk_nope={head_dim/1}", "qk_rope={head_dim/2}",
                     "v_head_dim={head_dim/1}"})},
      {"attention", "gate", "gate on the attention output", {"layers[*].pattern[*].mixer.gate=true"}},
      {"attention", "sinks", "attention sinks", {"layers[*].pattern[*].mixer.sinks=true"}},
      {"qk", "qk-norm", "QK-norm per head", {"layers[*].pattern[*].mixer.qk_norm.kind=per_head"}},
      {"qk", "qk-norm-whole", "QK-norm of the whole projection", {"layers[*].pattern[*].mixer.qk_norm.kind=whole"}},
      {"soft-cap", "score-cap", "scores capped at 50", {"layers[*].pattern[*].mixer.soft_cap=50"}},
      {"soft-cap", "logit-cap", "logits capped at 30", {"head.soft_cap=30"}},
      {"wiring", "serial", "serial block", {"layers[*].pattern[*].wiring.kind=serial"}},
      {"wiring", "parallel", "parallel block", {"layers[*].pattern[*].wiring.kind=parallel"}},
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
      {"bias", "bias", "biases", {"layers[*].pattern[*].mixer.bias=true", "layers[*].pattern[*].ffn.bias=true"}},
      {"bias",
       "no-bias",
       "no biases",
       {"layers[*].pattern[*].mixer.bias=false", "layers[*].pattern[*].ffn.bias=false"}},
      {"head", "tied", "head tied to the embedding", {"head.tied=true"}},
      {"head", "untied", "head of its own", {"head.tied=false"}},
      {"embedding", "embedding-scale", "embedding times √d", {"embedding.scale=sqrt_d_model"}},
      {"embedding", "embedding-norm", "layer norm on the embedding", {"embedding.norm.kind=layer"}},
      {"residual", "residual-scale", "branches times 0.5", {"layers[*].pattern[*].residual_scale=0.5"}},
      {"experts",
       "moe",
       "4 experts of half width, 2 per token",
       {"layers[*].pattern[*].ffn.kind=moe", "layers[*].pattern[*].ffn.experts=4", "layers[*].pattern[*].ffn.top_k=2",
        "layers[*].pattern[*].ffn.renormalise=true", "layers[*].pattern[*].ffn.expert.kind=gated",
        "layers[*].pattern[*].ffn.expert.d_ff={d_ff/2}", "layers[*].pattern[*].ffn.balance_loss=0.01"}},
      {"ssm", "mamba", "Mamba instead of attention", mixer("mamba", {})},
      {"ssm", "mamba2", "Mamba-2 instead of attention", mixer("mamba2", {})},
      {"ssm", "s4d", "S4D instead of attention", mixer("s4d", {})},
      {"ssm", "hybrid", "Mamba, one attention in the middle", {"layers={hybrid}"}},
      {"linear", "gated-delta", "gated delta rule",
       mixer("gated_delta", {"n_heads={n_heads/1}", "key_dim={head_dim/1}", "value_dim={head_dim/1}"})},
      {"linear", "lightning", "lightning attention", mixer("lightning", {"n_heads={n_heads/1}"})},
      {"linear", "wkv", "RWKV-4's time mixing", mixer("wkv", {})},
      {"linear", "rg-lru", "RG-LRU", mixer("rg_lru", {"blocks={n_heads/1}"})},
      {"linear", "short-conv", "gated short convolution", mixer("short_conv", {})},
  };
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

/// Lists all layers with Mamba mixers, except the middle layer, which keeps its own mixer.
std::string hybrid_layers(const arch::ArchSpec& base) {
  arch::ArchSpec spec;
  spec.layers.emplace_back();
  std::vector<arch::Block>& blocks = spec.layers[0].pattern;
  for (const arch::Block* block : arch::layer_blocks(base)) {
    blocks.push_back(*block);
    blocks.back().repeat = 1;
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i != blocks.size() / 2) blocks[i].mixer = arch::Mamba{};
  }
  return arch::spec_to_json(spec, arch::Defaults::omit)["layers"].dump();
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
    value = hybrid_layers(base);
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
