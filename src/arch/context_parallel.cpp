#include "lamina/arch/layers.h"
#include "lamina/arch/tensor_shards.h"

namespace lamina::arch {
namespace {

constexpr const char* kHint = "use layout.cp=1; dp, tp and pp divide it";

/// Collects the problems of one block.
struct ContextCheck {
  const std::string& path;
  std::vector<Problem>& problems;

  void note(const std::string& key, const std::string& what) const {
    problems.push_back({"context_parallel", path + "." + key, what, kHint});
  }
  void recurrent(const std::string& what) const {
    note("mixer", what + " carries a state from position to position, so ranks cannot share its positions");
  }
  void operator()(const Attention& a) const {
    const bool plain_position =
        !std::holds_alternative<Alibi>(*a.position) && !std::holds_alternative<T5Bias>(*a.position);
    if (std::holds_alternative<TransformerXl>(*a.position)) {
      note("mixer.position", "transformer_xl does not work with context-parallel ranks yet");
    }
    if (std::holds_alternative<BigBirdPattern>(a.pattern)) {
      note("mixer.pattern", "bigbird does not work with context-parallel ranks yet");
    }
    if (std::holds_alternative<LongformerPattern>(a.pattern)) {
      note("mixer.pattern", "longformer does not work with context-parallel ranks yet");
    }
    if (!*a.causal && (!plain_position || !std::holds_alternative<FullPattern>(a.pattern))) {
      note("mixer.causal", "patterns, alibi and t5 need causal attention with context-parallel ranks");
    }
  }
  void operator()(const Mla& /*a*/) const {}
  void operator()(const Mamba& /*m*/) const { recurrent("mamba"); }
  void operator()(const Mamba2& /*m*/) const { recurrent("mamba2"); }
  void operator()(const S4d& /*m*/) const { recurrent("s4d"); }
  void operator()(const ShortConv& /*m*/) const { recurrent("short_conv"); }
  void operator()(const RgLru& /*m*/) const { recurrent("rg_lru"); }
  void operator()(const Lightning& /*m*/) const { recurrent("lightning"); }
  void operator()(const Wkv& /*m*/) const { recurrent("wkv"); }
  void operator()(const ChannelMix& /*m*/) const { recurrent("channel_mix"); }
  void operator()(const GatedDelta& /*m*/) const { recurrent("gated_delta"); }
  void operator()(const AttentionMamba2& /*m*/) const { recurrent("attention_mamba2"); }
  void operator()(const NoMixer& /*m*/) const {}
  void operator()(const Moe& f) const {
    if (f.capacity) note("ffn.capacity", "a capacity per sequence does not work with context-parallel ranks");
  }
  template <class Ffn>
  void operator()(const Ffn& /*works on every token by itself*/) const {}
};

}  // namespace

std::vector<Problem> context_parallel_problems(const ArchSpec& spec, int64_t ranks) {
  if (ranks == 1) return {};
  if (spec.encoder) {
    return {{"context_parallel", "encoder", "context-parallel ranks cannot share an encoder–decoder's sequences yet",
             "use layout.cp=1"}};
  }
  if (spec.retrieval) {
    return {{"context_parallel", "retrieval", "context-parallel ranks cannot share sequences with neighbours yet",
             "use layout.cp=1"}};
  }
  std::vector<Problem> problems;
  for (const WrittenBlock& written : written_blocks(spec)) {
    const ContextCheck check{written.path, problems};
    std::visit(check, written.block->mixer);
    std::visit(check, written.block->ffn);
  }
  return problems;
}

}  // namespace lamina::arch
