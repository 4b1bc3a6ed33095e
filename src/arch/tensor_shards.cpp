#include "lamina/arch/tensor_shards.h"

#include <algorithm>
#include <functional>

#include "lamina/arch/layers.h"

namespace lamina::arch {
namespace {

int64_t size_of(const UnitRange& range) { return range.end - range.begin; }

int64_t own_units(int64_t units, int64_t groups, int ranks, int rank) {
  return size_of(unit_range(divided_rows(units, groups), ranks, rank));
}

/// Replaces the sizes of an architecture by the sizes of one rank's part.
struct Divide {
  int ranks;
  int rank;

  void operator()(Attention& a) const {
    const int64_t kv = *a.n_kv_heads;
    a.n_heads = own_units(a.n_heads, kv, ranks, rank);
    a.n_kv_heads = own_units(kv, kv, ranks, rank);
  }
  void operator()(Mamba& m) const { m.d_inner = own_units(*m.d_inner, 1, ranks, rank); }
  void operator()(Mamba2& m) const {
    const int64_t heads = *m.d_inner / m.head_dim;
    const int64_t own = own_units(heads, m.groups, ranks, rank);
    m.norm_groups = std::max<int64_t>(1, m.norm_groups * own / heads);
    m.d_inner = own * m.head_dim;
    m.groups = own_units(m.groups, m.groups, ranks, rank);
  }
  void operator()(AttentionMamba2& m) const {
    (*this)(m.attention);
    (*this)(m.mamba2);
  }
  void operator()(Mla& a) const { a.n_heads = own_units(a.n_heads, 1, ranks, rank); }
  void operator()(PlainFfn& f) const { f.d_ff = own_units(*f.d_ff, 1, ranks, rank); }
  void operator()(GatedFfn& f) const { f.d_ff = own_units(*f.d_ff, 1, ranks, rank); }
  void operator()(Moe& f) const {
    std::visit(*this, f.expert);
    if (f.shared_d_ff) f.shared_d_ff = own_units(*f.shared_d_ff, 1, ranks, rank);
  }
  template <class Other>
  void operator()(Other& /*no sizes to divide*/) const {}
};

/// Whether a layer of the stage uses a position table that several layers share.
bool uses_shared_positions(const ArchSpec& spec, const UnitRange& layers) {
  const std::vector<const Block*> blocks = layer_blocks(spec);
  return std::any_of(blocks.begin() + layers.begin, blocks.begin() + layers.end, [](const Block* block) {
    const Attention* a = attention_of(block->mixer);
    if (a == nullptr) return false;
    const auto* t5 = std::get_if<T5Bias>(&*a->position);
    const auto* xl = std::get_if<TransformerXl>(&*a->position);
    return (t5 != nullptr && t5->shared) || (xl != nullptr && xl->shared_bias);
  });
}

/// Whether a pipeline stage holds a weight outside the layers.
bool stage_holds(const ArchSpec& spec, const std::string& name, const PipelineStage& stage) {
  const bool first = stage.is_first();
  const bool last = stage.is_last();
  if (name == "embedding.weight") return first || (last && spec.head.tied);
  if (name.starts_with("embedding.")) return first;
  if (!name.starts_with("position.")) return last;
  if (name == "position.weight" && std::holds_alternative<LearnedPosition>(spec.position)) return first;
  const auto layers = static_cast<int64_t>(layer_blocks(spec).size());
  bool uses = false;
  for (int chunk = 0; chunk < stage.chunks; ++chunk) {
    uses = uses || uses_shared_positions(spec, chunk_layers(layers, stage, chunk));
  }
  return uses;
}

/// A rank's part of a weight, without information about other ranks.
Shard part_of(const Weight& weight, const ModelGrid& grid, int rank) {
  Shard shard;
  shard.whole_shape = weight.shape;
  shard.by_experts = weight.experts > 0 && grid.experts > 1;
  const UnitRange lead =
      expert_range(weight.shape[0], shard.by_experts ? grid.experts : 1, shard.by_experts ? grid.expert_of(rank) : 0);
  shard.lead_begin = lead.begin;
  shard.lead_count = size_of(lead);
  const Division& division = weight.division;
  if (division.kind == Division::Kind::divided) {
    shard.axis = division.axis;
    const int64_t unit = weight.shape[static_cast<size_t>(division.axis)] / division.units;
    const UnitRange own = unit_range(division, grid.tensor, grid.tensor_of(rank));
    shard.begin = own.begin * unit;
    shard.count = size_of(own) * unit;
    return shard;
  }
  const bool elsewhere = division.kind == Division::Kind::one_rank && grid.tensor_of(rank) != grid.tensor - 1;
  shard.begin = lead.begin;
  shard.count = elsewhere ? 0 : size_of(lead);
  return shard;
}

Shard shard_of(const Weight& weight, const ModelGrid& grid, int rank, const std::vector<bool>& stages);

/// A rank's part of a weight with sections: its part of every section.
Shard sectioned_shard(const Weight& weight, const ModelGrid& grid, int rank, const std::vector<bool>& stages) {
  Shard all;
  all.whole_shape = weight.shape;
  int64_t first = 0;
  for (const Division::Section& section : weight.division.sections) {
    Weight part = weight;
    part.shape[0] = section.rows;
    part.division = divided_rows(section.units, section.groups);
    Shard shard = shard_of(part, grid, rank, stages);
    shard.whole_shape = weight.shape;
    shard.begin += first;
    first += section.rows;
    all.count += shard.count;
    all.sections.push_back(std::move(shard));
  }
  return all;
}

/// A rank's part of a weight that the given stages hold, with the ranks that hold the same part.
Shard shard_of(const Weight& weight, const ModelGrid& grid, int rank, const std::vector<bool>& stages) {
  if (weight.division.kind == Division::Kind::sections) return sectioned_shard(weight, grid, rank, stages);
  Shard shard = part_of(weight, grid, rank);
  if (!stages[static_cast<size_t>(grid.stage_of(rank))]) shard.count = 0;
  if (shard.count == 0) return shard;
  const int expert = grid.expert_of(rank);
  bool several_stages = false;
  for (int stage = 0; stage < grid.stages; ++stage) {
    if (!stages[static_cast<size_t>(stage)]) continue;
    for (int t = 0; t < grid.tensor; ++t) {
      const int other = grid.rank_at(stage, expert, t);
      const Shard part = part_of(weight, grid, other);
      if (part.count == 0 || part.begin != shard.begin) continue;
      shard.holders.push_back(other);
      several_stages = several_stages || stage != grid.stage_of(rank);
    }
  }
  shard.first_copy = shard.holders[0] - (shard.by_experts ? 0 : expert * grid.tensor);
  const bool in_sublayer = weight.name.starts_with("mixer.") || weight.name.starts_with("ffn.");
  shard.sums_gradient = shard.holders.size() > 1 && (in_sublayer || grid.sequence || several_stages);
  return shard;
}

/// Collects the problems of one block.
struct Check {
  int64_t ranks;
  const std::string& path;
  std::vector<Problem>& problems;

  void note(const std::string& key, const std::string& message, const std::string& hint) const {
    problems.push_back({"tensor_parallel", path + "." + key, message, hint});
  }
  void enough(const std::string& key, int64_t units) const {
    if (units >= ranks) return;
    note(key, str(units, " cannot be divided over ", ranks, " tensor-parallel ranks"), str("use at most ", units));
  }
  void missing(const std::string& key, const std::string& what) const {
    note(key, what + " cannot be divided over tensor-parallel ranks yet", "use layout.tp=1; dp and zero divide it");
  }
  void operator()(const Attention& a) const {
    const int64_t kv = *a.n_kv_heads;
    enough("mixer.n_heads", a.n_heads);
    if (kv < ranks && ranks % kv != 0) {
      note("mixer.n_kv_heads", str(kv, " KV heads for ", ranks, " tensor-parallel ranks"),
           str("give at most ", kv, " ranks, or a multiple of ", kv));
    } else if (kv < ranks && a.n_heads / kv < ranks / kv) {
      note("mixer.n_heads", str(ranks / kv, " ranks share a KV head with ", a.n_heads / kv, " query heads"),
           str("use at most ", a.n_heads, " ranks"));
    }
    if (std::holds_alternative<WholeQkNorm>(a.qk_norm)) missing("mixer.qk_norm", "a norm over all heads");
    if (std::holds_alternative<TransformerXl>(*a.position)) missing("mixer.position", "transformer_xl");
    if (std::holds_alternative<BigBirdPattern>(a.pattern)) missing("mixer.pattern", "bigbird");
    if (std::holds_alternative<LongformerPattern>(a.pattern)) missing("mixer.pattern", "longformer");
  }
  void operator()(const Mla& a) const { enough("mixer.n_heads", a.n_heads); }
  void operator()(const Mamba& m) const { enough("mixer.d_inner", *m.d_inner); }
  void operator()(const Mamba2& m) const {
    const int64_t heads = *m.d_inner / m.head_dim;
    if (heads < ranks || (m.groups < ranks && (ranks % m.groups != 0 || heads / m.groups < ranks / m.groups))) {
      note("mixer.groups", str(heads, " heads in ", m.groups, " groups for ", ranks, " tensor-parallel ranks"),
           "ranks share whole groups, or the heads of a group: give a divisor or a multiple of the groups");
    }
    if (m.norm != GatedNorm::none &&
        (m.norm_groups % ranks != 0 || heads % ranks != 0 || (m.groups % ranks != 0 && m.groups > ranks))) {
      note("mixer.norm_groups",
           str("a norm over ", m.norm_groups, m.norm_groups == 1 ? " group" : " groups", " of channels for ", ranks,
               " tensor-parallel ranks"),
           "a rank computes the norm of its own channels: give a multiple of the ranks, or norm none");
    }
  }
  void operator()(const S4d& /*m*/) const { missing("mixer", "s4d"); }
  void operator()(const ShortConv& /*m*/) const { missing("mixer", "short_conv"); }
  void operator()(const RgLru& /*m*/) const { missing("mixer", "rg_lru"); }
  void operator()(const Lightning& /*m*/) const { missing("mixer", "lightning"); }
  void operator()(const Wkv& /*m*/) const { missing("mixer", "wkv"); }
  void operator()(const ChannelMix& /*m*/) const { missing("mixer", "channel_mix"); }
  void operator()(const GatedDelta& /*m*/) const { missing("mixer", "gated_delta"); }
  void operator()(const AttentionMamba2& m) const {
    (*this)(m.attention);
    (*this)(m.mamba2);
  }
  void operator()(const NoMixer& /*m*/) const {}
  void operator()(const PlainFfn& f) const { enough("ffn.d_ff", *f.d_ff); }
  void operator()(const GatedFfn& f) const { enough("ffn.d_ff", *f.d_ff); }
  void operator()(const NoFfn& /*f*/) const {}
  void operator()(const Moe& f) const {
    enough("ffn.expert.d_ff", std::visit([](const auto& e) { return *e.d_ff; }, f.expert));
    if (f.shared_experts > 0) enough("ffn.shared_d_ff", *f.shared_d_ff);
  }
};

/// A T5 table that layers share is divided as the heads of the first of them, so every layer must divide its heads
/// alike.
void check_shared_table(const ArchSpec& spec, int ranks, std::vector<Problem>& problems) {
  const Attention* first = nullptr;
  for (const WrittenBlock& written : written_blocks(spec)) {
    const Attention* a = attention_of(written.block->mixer);
    const auto* t5 = a == nullptr ? nullptr : std::get_if<T5Bias>(&*a->position);
    if (t5 == nullptr || !t5->shared) continue;
    if (first == nullptr) first = a;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto heads = [&](const Attention& of) {
        return unit_range(divided_rows(of.n_heads, *of.n_kv_heads), ranks, rank);
      };
      if (heads(*a).begin == heads(*first).begin && heads(*a).end == heads(*first).end) continue;
      problems.push_back({"tensor_parallel", written.path + ".mixer.n_kv_heads",
                          str(*a->n_kv_heads, " KV heads, where another layer with the same T5 table has ",
                              *first->n_kv_heads, ": ", ranks, " tensor-parallel ranks would divide the table twice"),
                          "give these layers as many KV heads, or position.shared=false"});
      break;
    }
  }
}

}  // namespace

std::vector<int64_t> Shard::shape() const {
  std::vector<int64_t> own = whole_shape;
  if (axis != 0) own[0] = lead_count;
  own[static_cast<size_t>(axis)] = count;
  return own;
}

UnitRange unit_range(const Division& division, int ranks, int rank) {
  const int64_t each = division.units / division.groups;
  if (division.groups >= ranks) {
    return {rank * division.groups / ranks * each, (rank + 1) * division.groups / ranks * each};
  }
  const int64_t sharing = ranks / division.groups;  // number of ranks that share a group
  const int64_t first = rank / sharing * each;
  const int64_t member = rank % sharing;
  if (each < sharing) return {first, first + each};
  return {first + member * each / sharing, first + (member + 1) * each / sharing};
}

ArchSpec sharded_spec(const ArchSpec& spec, int ranks, int rank) {
  ArchSpec own = spec;
  own.vocab_size = own_units(spec.vocab_size, 1, ranks, rank);
  const Divide divide{ranks, rank};
  for (LayerGroup& group : own.layers) {
    for (Block& block : group.pattern) {
      std::visit(divide, block.mixer);
      std::visit(divide, block.ffn);
    }
  }
  return own;
}

UnitRange expert_range(int64_t experts, int ranks, int rank) {
  return {rank * experts / ranks, (rank + 1) * experts / ranks};
}

UnitRange stage_layers(int64_t layers, int stages, int stage) {
  return {stage * layers / stages, (stage + 1) * layers / stages};
}

UnitRange chunk_layers(int64_t layers, const PipelineStage& stage, int chunk) {
  return stage_layers(layers, stage.count * stage.chunks, chunk * stage.count + stage.index);
}

Shards weight_shards(const ArchSpec& spec, const ModelGrid& grid, int rank) {
  Shards shards;
  using HeldBy = std::function<bool(const PipelineStage&)>;
  const auto add = [&](const std::string& prefix, const Weight& weight, const HeldBy& held_by) {
    std::vector<bool> stages;
    for (int stage = 0; stage < grid.stages; ++stage) stages.push_back(held_by({stage, grid.stages, grid.chunks}));
    shards.emplace(prefix + weight.name, shard_of(weight, grid, rank, stages));
  };
  for (const Weight& weight : outer_weights(spec)) {
    add("", weight, [&](const PipelineStage& stage) { return stage_holds(spec, weight.name, stage); });
  }
  const std::vector<const Block*> blocks = layer_blocks(spec);
  const auto layers = static_cast<int64_t>(blocks.size());
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (const Weight& weight : block_weights(spec, *blocks[static_cast<size_t>(layer)])) {
      add(str("layers.", layer, "."), weight, [&](const PipelineStage& stage) {
        bool holds = false;
        for (int chunk = 0; chunk < stage.chunks; ++chunk) {
          const UnitRange own = chunk_layers(layers, stage, chunk);
          holds = holds || (own.begin <= layer && layer < own.end);
        }
        return holds;
      });
    }
  }
  return shards;
}

std::vector<Problem> tensor_parallel_problems(const ArchSpec& spec, int64_t ranks) {
  std::vector<Problem> problems;
  if (ranks == 1) return problems;
  if (spec.vocab_size < ranks) {
    problems.push_back({"tensor_parallel", "vocab_size", str(spec.vocab_size, " tokens for ", ranks, " ranks"),
                        "use fewer tensor-parallel ranks"});
  }
  if (spec.encoder) {
    problems.push_back({"tensor_parallel", "encoder", "tensor-parallel ranks cannot divide an encoder–decoder yet",
                        "use layout.tp=1"});
    return problems;
  }
  if (spec.retrieval) {
    problems.push_back({"tensor_parallel", "retrieval", "tensor-parallel ranks cannot divide a neighbour encoder yet",
                        "use layout.tp=1"});
    return problems;
  }
  for (const WrittenBlock& written : written_blocks(spec)) {
    const Check check{ranks, written.path, problems};
    std::visit(check, written.block->mixer);
    std::visit(check, written.block->ffn);
  }
  if (problems.empty()) check_shared_table(spec, static_cast<int>(ranks), problems);
  return problems;
}

std::vector<Problem> expert_parallel_problems(const ArchSpec& spec, int64_t ranks) {
  std::vector<Problem> problems;
  if (ranks == 1) return problems;
  const auto note = [&](const std::string& path, const std::string& message, const std::string& hint) {
    problems.push_back({"expert_parallel", path, message, hint});
  };
  if (spec.encoder) {
    note("encoder", "expert-parallel ranks cannot divide an encoder–decoder yet", "use layout.ep=1");
    return problems;
  }
  bool any = false;
  for (const WrittenBlock& written : written_blocks(spec)) {
    const auto* moe = std::get_if<Moe>(&written.block->ffn);
    if (moe == nullptr) continue;
    any = true;
    if (moe->experts < ranks) {
      note(written.path + ".ffn.experts", str(moe->experts, " experts for ", ranks, " expert-parallel ranks"),
           str("use at most ", moe->experts, " ranks"));
    }
    if (moe->capacity) {
      note(written.path + ".ffn.capacity", "a capacity per sequence does not work with expert-parallel ranks yet",
           "use capacity_factor, or layout.ep=1");
    }
  }
  if (!any) note("layers", "no layer has experts to divide", "use layout.ep=1; dp and tp divide any model");
  return problems;
}

std::vector<Problem> pipeline_problems(const ArchSpec& spec, int64_t stages, int64_t chunks) {
  if (stages == 1) return {};
  if (spec.encoder) {
    return {{"pipeline", "encoder", "pipeline stages cannot divide an encoder–decoder yet", "use layout.pp=1"}};
  }
  if (spec.retrieval) {
    return {{"pipeline", "retrieval", "pipeline stages cannot divide a model with retrieval yet", "use layout.pp=1"}};
  }
  const auto layers = static_cast<int64_t>(layer_blocks(spec).size());
  if (layers >= stages * chunks) return {};
  const std::string of_chunks = chunks > 1 ? str(" of ", chunks, " chunks") : "";
  return {{"pipeline", "layers", str(layers, " layers for ", stages, " pipeline stages", of_chunks),
           chunks > 1 ? str("use at most ", layers, " chunks in all") : str("use at most ", layers, " stages")}};
}

}  // namespace lamina::arch
