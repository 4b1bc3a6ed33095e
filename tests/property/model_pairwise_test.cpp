// Pairwise coverage: every allowed pair of options occurs in some small model. For each model, gradients match finite
// differences, cached decoding and ragged steps match the full forward, and dense models match plain loops.
#include <gtest/gtest.h>

#include <set>

#include "nn/model_oracle_support.h"
#include "nn/row_driver.h"

namespace lamina::testing {
namespace {

using Settings = std::vector<std::string>;

/// One choice of the architecture, and the settings of each option.
struct Factor {
  std::string name;
  std::vector<std::pair<std::string, Settings>> options;
};

const std::string kBlock = "layers[0].pattern[0].";
const std::string kMixer = kBlock + "mixer.";
const std::string kFfn = kBlock + "ffn.";

Factor norms() {
  return {"norm",
          {{"rms", {}},
           {"rms offset", {"norm.offset=1"}},
           {"rms groups", {"norm.group_size=4"}},
           {"rms_no_params", {"norm.kind=rms_no_params"}},
           {"layer", {"norm.kind=layer"}},
           {"layer without bias", {"norm.kind=layer", "norm.bias=false", "norm.offset=1"}},
           {"layer_no_params", {"norm.kind=layer_no_params"}}}};
}

Factor positions() {
  const auto scaled = [](const std::string& scaling) { return Settings{"position.scaling={" + scaling + "}"}; };
  return {"position",
          {{"none", {"position.kind=none"}},
           {"learned", {"position.kind=learned"}},
           {"sinusoidal", {"position.kind=sinusoidal"}},
           {"rope", {}},
           {"rope interleaved", {"position.pairing=interleaved", "position.fraction=0.5"}},
           {"linear", scaled(R"("kind":"linear","factor":3)")},
           {"ntk", scaled(R"("kind":"ntk","factor":3)")},
           {"dynamic_ntk", scaled(R"("kind":"dynamic_ntk","factor":2,"original_length":6)")},
           {"yarn", scaled(R"("kind":"yarn","factor":4,"original_length":8)")},
           {"llama3", scaled(R"("kind":"llama3","original_length":8)")},
           {"longrope", scaled(R"("kind":"longrope","original_length":6,"short_factor":[1,1.1,1.2,1.3],)"
                               R"("long_factor":[1.5,2,3,4])")},
           {"alibi", {"position.kind=alibi"}},
           {"alibi rounded", {"position.kind=alibi", "position.rounding=bf16", "position.slope_scale=0.3"}},
           {"t5", {"position.kind=t5", "position.buckets=6", "position.max_distance=10"}},
           {"transformer_xl", {"position.kind=transformer_xl"}},
           {"t5 per layer",
            {"position.kind=t5", "position.buckets=8", "position.max_distance=10", "position.shared=false"}}}};
}

/// Must be the first factor: the others change parts of what it sets.
Factor mixers() {
  const std::string mixer = kBlock + "mixer=";
  return {"mixer",
          {{"attention", {}},
           {"mla",
            {mixer + R"({"kind":"mla","n_heads":4,"q_lora_rank":12,"kv_lora_rank":8,"qk_nope":8,"qk_rope":4,)"
                     R"("v_head_dim":8})"}},
           {"mamba", {mixer + R"({"kind":"mamba","state":4,"dt_rank":2})"}},
           {"mamba2", {mixer + R"({"kind":"mamba2","state":6,"head_dim":8,"groups":2,"chunk":4})"}},
           {"s4d", {mixer + R"({"kind":"s4d","state":6})"}},
           {"short conv", {mixer + R"({"kind":"short_conv","conv":3})"}},
           {"lru", {mixer + R"({"kind":"rg_lru","blocks":4})"}},
           {"lightning", {mixer + R"({"kind":"lightning","n_heads":4,"chunk":4})"}},
           {"wkv", {mixer + R"({"kind":"wkv"})"}},
           {"channel mix", {mixer + R"({"kind":"channel_mix","d_ff":24})"}},
           {"gated delta", {mixer + R"({"kind":"gated_delta","n_heads":4,"n_key_heads":2,"key_dim":6,"value_dim":5})"}},
           {"attention beside mamba2",
            {mixer +
             R"({"kind":"attention_mamba2","attention":{"n_heads":4,"n_kv_heads":2},)"
             R"("mamba2":{"state":6,"head_dim":8,"chunk":4,"norm":"none"},"attention_in":0.9,"mamba2_out":0.5})"}}}};
}

Factor feed_forwards() {
  const std::string ffn = kBlock + "ffn=";
  return {"ffn",
          {{"swiglu", {}},
           {"geglu", {kFfn + "gate=geglu_tanh", kFfn + "bias=true"}},
           {"limited", {kFfn + "alpha=1.7", kFfn + "limit=0.5", kFfn + "up_offset=1"}},
           {"scaled", {kFfn + "gate_scale=0.7", kFfn + "out_scale=1.3"}},
           {"plain", {kFfn + "kind=plain", kFfn + "bias=true"}},
           {"relu2", {kFfn + "kind=plain", kFfn + "activation=relu2"}},
           {"xielu", {kFfn + "kind=plain", kFfn + "xielu={}"}},
           {"weighed inputs",
            {ffn + R"({"kind":"moe","experts":4,"top_k":2,"score":"sigmoid","weigh_inputs":true,"shared_experts":1,)"
                   R"("shared_gate":true,"expert":{"kind":"gated","d_ff":24}})"}},
           {"near experts",
            {ffn + R"({"kind":"moe","experts":4,"top_k":2,"score":"softmax_of_near","near":0.5,)"
                   R"("expert":{"kind":"gated","d_ff":24}})"}},
           {"experts", {ffn + R"({"kind":"moe","experts":4,"top_k":2,"expert":{"kind":"gated","d_ff":24}})"}},
           {"switch", {ffn + R"({"kind":"moe","experts":4,"top_k":1,"expert":{"kind":"plain","d_ff":24}})"}},
           {"shared experts",
            {ffn + R"({"kind":"moe","experts":6,"top_k":2,"score":"sigmoid","renormalise":true,"weight_scale":1.5,)"
                   R"("selection_bias":true,"groups":3,"top_groups":2,"shared_experts":1,)"
                   R"("expert":{"kind":"gated","d_ff":16}})"}},
           {"none", {kFfn + "kind=none"}}}};
}

std::vector<Factor> factors() {
  const std::string wiring = kBlock + "wiring.";
  const std::string pattern = kMixer + "pattern.";
  const std::string qk = kMixer + "qk_norm.";
  Factor placement{"placement", {}};
  for (const char* place : {"pre", "post", "sandwich", "branch_post", "residual_after_norm"}) {
    placement.options.push_back({place, {kBlock + "placement=" + place}});
  }
  return {
      mixers(),
      norms(),
      positions(),
      placement,
      {"wiring",
       {{"serial", {}},
        {"parallel", {wiring + "kind=parallel"}},
        {"parallel, two norms", {wiring + "kind=parallel", wiring + "shared_norm=false"}}}},
      {"heads", {{"gqa", {}}, {"mha", {kMixer + "n_kv_heads=4"}}, {"mqa", {kMixer + "n_kv_heads=1"}}}},
      {"values", {{"same", {}}, {"wider", {kMixer + "v_head_dim=12"}}}},
      {"bias",
       {{"none", {}}, {"all", {kMixer + "bias=true"}}, {"some", {kMixer + "bias.q=true", kMixer + "bias.o=true"}}}},
      {"qk norm",
       {{"none", {}},
        {"per head", {qk + "kind=per_head"}},
        {"per head, own", {qk + "kind=per_head", qk + "own_weights=true"}},
        {"after rope", {qk + "kind=per_head", qk + "after_rope=true"}},
        {"whole", {qk + "kind=whole"}}}},
      {"temperature", {{"none", {}}, {"grows", {kMixer + "temperature={\"scale\":0.5,\"interval\":3}"}}}},
      {"scores", {{"plain", {}}, {"capped", {kMixer + "scale=0.6", kMixer + "soft_cap=1.5"}}}},
      {"clip", {{"none", {}}, {"clipped", {kMixer + "clip_qkv=0.45"}}}},
      {"pattern",
       {{"full", {}},
        {"window", {pattern + "kind=window", pattern + "size=4"}},
        {"longformer", {pattern + "kind=longformer", pattern + "window=3"}},
        {"strided", {pattern + "kind=strided", pattern + "window=2", pattern + "stride=3"}},
        {"chunks", {pattern + "kind=chunks", pattern + "size=5"}},
        {"bigbird", {pattern + "kind=bigbird", pattern + "block=2", pattern + "random_blocks=0"}}}},
      {"sinks", {{"none", {}}, {"sinks", {kMixer + "sinks=true"}}}},
      {"gate", {{"none", {}}, {"gated", {kMixer + "gate=true"}}}},
      feed_forwards(),
      {"embedding",
       {{"plain", {}},
        {"scaled", {"embedding.scale.kind=sqrt_d_model"}},
        {"normed", {R"(embedding.norm={"kind":"layer"})"}},
        {"narrow", {"embedding.d_embed=16"}}}},
      {"head",
       {{"own", {}},
        {"tied", {"head.tied=true"}},
        {"capped", {"head.bias=true", "head.scale={\"kind\":\"constant\",\"value\":0.6}", "head.soft_cap=2"}}}},
      {"residual", {{"plain", {}}, {"scaled", {kBlock + "residual_scale=0.7", kBlock + "skip_scale=1.2"}}}},
      {"end", {{"default", {}}, {"no norm", {"final_norm=false"}}}},
  };
}

constexpr size_t kUnset = ~size_t{0};
using Row = std::vector<size_t>;  ///< one option per factor, or kUnset

/// Greedy covering array: every allowed pair of options is in at least one row.
class Pairs {
 public:
  explicit Pairs(std::vector<Factor> factors) : factors_(std::move(factors)) {
    for (size_t f = 0; f < factors_.size(); ++f) {
      for (size_t g = f + 1; g < factors_.size(); ++g) {
        for (size_t i = 0; i < factors_[f].options.size(); ++i) {
          for (size_t j = 0; j < factors_[g].options.size(); ++j) {
            Row row(factors_.size(), kUnset);
            row[f] = i;
            row[g] = j;
            if (allowed(row)) open_.insert({f, i, g, j});
          }
        }
      }
    }
  }

  std::vector<Row> cover() {
    std::vector<Row> rows;
    while (!open_.empty()) {
      const Pair first = *open_.begin();
      Row row(factors_.size(), kUnset);
      row[first[0]] = first[1];
      row[first[2]] = first[3];
      for (size_t f = 0; f < row.size(); ++f) {
        if (row[f] == kUnset) row[f] = best(row, f);
      }
      for (size_t f = 0; f < row.size(); ++f) {
        for (size_t g = f + 1; g < row.size(); ++g) open_.erase({f, row[f], g, row[g]});
      }
      rows.push_back(row);
    }
    return rows;
  }

  NamedSpec spec_of(const Row& row) const {
    Settings all;
    for (size_t f = 0; f < row.size(); ++f) {
      const Settings& sets = factors_[f].options[row[f]].second;
      all.insert(all.end(), sets.begin(), sets.end());
    }
    return changed("llama-tiny", all);
  }

 private:
  using Pair = std::array<size_t, 4>;

  const std::string& option(const Row& row, const std::string& factor) const {
    static const std::string kNothing;
    for (size_t f = 0; f < factors_.size(); ++f) {
      if (factors_[f].name == factor) return row[f] == kUnset ? kNothing : factors_[f].options[row[f]].first;
    }
    throw Error("no factor is called " + factor);
  }

  bool is_default(const Row& row, const std::string& factor) const {
    const std::string& chosen = option(row, factor);
    return chosen.empty() || chosen == first_option(factor);
  }

  const std::string& first_option(const std::string& factor) const {
    for (const Factor& one : factors_) {
      if (one.name == factor) return one.options.front().first;
    }
    throw Error("no factor is called " + factor);
  }

  /// Mixers other than attention support few of its options and only some positions.
  bool fits_mixer(const Row& row, const std::string& mixer, const std::string& position) const {
    for (const char* factor : {"heads", "values", "bias", "qk norm", "temperature", "clip", "sinks", "gate"}) {
      if (!is_default(row, factor)) return false;
    }
    const auto among = [&](const std::set<std::string>& names) {
      return position.empty() || names.count(position) > 0;
    };
    if (mixer == "mla") return among({"none", "rope", "linear", "ntk", "dynamic_ntk", "yarn", "llama3"});
    return is_default(row, "scores") && is_default(row, "pattern") && among({"none", "learned", "sinusoidal"});
  }

  /// Whether the architecture rules allow the row.
  bool allowed(const Row& row) const {
    const std::string& wiring = option(row, "wiring");
    const std::string& placement = option(row, "placement");
    const bool parallel = wiring.starts_with("parallel");
    if (parallel && option(row, "ffn") == "none") return false;
    const std::string& position = option(row, "position");
    if (position == "alibi rounded" && option(row, "scores") == "capped") return false;
    const bool relative = position == "transformer_xl";
    for (const char* factor : {"pattern", "sinks", "temperature", "gate"}) {
      if (relative && !is_default(row, factor)) return false;
    }
    const std::string& mixer = option(row, "mixer");
    if (!mixer.empty() && mixer != "attention" && !fits_mixer(row, mixer, position)) return false;
    return !(wiring == "parallel, two norms" && (placement == "post" || placement == "residual_after_norm"));
  }

  /// The option of factor f that covers the most open pairs with the options chosen so far.
  size_t best(Row row, size_t f) const {
    size_t found = 0;
    int most = -1;
    for (size_t i = 0; i < factors_[f].options.size(); ++i) {
      row[f] = i;
      if (!allowed(row)) continue;
      int covered = 0;
      for (size_t g = 0; g < row.size(); ++g) {
        if (g == f || row[g] == kUnset) continue;
        covered += static_cast<int>(open_.count(g < f ? Pair{g, row[g], f, i} : Pair{f, i, g, row[g]}));
      }
      if (covered > most) {
        most = covered;
        found = i;
      }
    }
    return found;
  }

  std::vector<Factor> factors_;
  std::set<Pair> open_;
};

/// After each piece, the last token's logits equal those of a full forward over the tokens so far.
void expect_cached(const NamedSpec& named, nn::Model& model, nn::Model& wide, const Device& device) {
  const Tensor ids = ids_tensor(random_ids(22, named.spec.vocab_size), 2, device);
  // Among hundreds of models, a few have an unusually small naive error by chance; the factor 2 and further prompts
  // allow for that.
  double naive = 2 * naive_error(model, wide, ids);
  for (const uint64_t seed : {4, 5}) {
    const Tensor other = ids_tensor(random_ids(22, named.spec.vocab_size, seed), 2, device);
    naive = std::max(naive, 2 * naive_error(model, wide, other));
  }
  nn::ModelCache cache = model.make_cache(2, 11);
  int64_t at = 0;
  for (const int64_t size : {4, 1, 3, 1, 1, 1}) {
    const Tensor ours = model.cached_logits(ids.slice(1, at, size).contiguous(), cache, {.last_only = true});
    at += size;
    const Tensor truth = wide.logits(ids.slice(1, 0, at).contiguous()).slice(1, at - 1, 1);
    expect_within(ours.to_vector<double>(), truth.to_vector<double>(), naive, str(named.name, " at ", at));
  }
}

TEST(ModelPairs, EveryPairOfOptions) {
  const Device device = Device::cpu(2);
  Pairs pairs(factors());
  const std::vector<Row> rows = pairs.cover();
  EXPECT_GE(rows.size(), 112U);  // 16 positions × 7 norms
  int compared = 0;
  for (const Row& row : rows) {
    const NamedSpec named = pairs.spec_of(row);
    if (oracle_knows(named.spec)) {
      expect_oracle(named);
      ++compared;
    }
    nn::Model model(named.spec, device);
    scramble(model);
    const auto wide = in_double(model, device);
    expect_cached(named, model, *wide, device);
    expect_rows(model, *wide, 24, static_cast<uint64_t>(&row - rows.data()), named.name);
    expect_slope(*wide, device, named.name);
  }
  EXPECT_GE(compared, 50);
}

}  // namespace
}  // namespace lamina::testing
