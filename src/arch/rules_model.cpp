#include "lamina/arch/layers.h"
#include "lamina/arch/rules.h"
#include "lamina/arch/value_range.h"

namespace lamina::arch {
namespace {

constexpr int64_t kMaxLayers = 10000;

void range(const ArchSpec& spec, Findings& findings) {
  RangeCheck([&](const std::string& path, const std::string& message) {
    findings.note(path, message);
  }).check(spec, kAnyNumber, "");
}

void layers_present(const ArchSpec& spec, Findings& findings) {
  if (spec.layers.empty()) findings.note("layers", "no layers");
  for (size_t g = 0; g < spec.layers.size(); ++g) {
    if (spec.layers[g].pattern.empty()) findings.note(str("layers[", g, "].pattern"), "no blocks");
  }
}

void layers_bounded(const ArchSpec& spec, Findings& findings) {
  const int64_t count = layer_count(spec);
  if (count > kMaxLayers) findings.note("layers", str(count, " layers or more, expected at most ", kMaxLayers));
}

void block_has_part(const ArchSpec& spec, Findings& findings) {
  for (const WrittenBlock& written : written_blocks(spec)) {
    if (!has_mixer(*written.block) && !has_ffn(*written.block)) findings.note(written.path, "neither mixer nor ffn");
  }
}

void parallel_needs_both(const ArchSpec& spec, Findings& findings) {
  for (const WrittenBlock& written : written_blocks(spec)) {
    const bool parallel = std::holds_alternative<ParallelWiring>(written.block->wiring);
    if (parallel && (!has_mixer(*written.block) || !has_ffn(*written.block))) {
      findings.note(written.path + ".wiring", str("parallel, with mixer ", kind_of(written.block->mixer), " and ffn ",
                                                  kind_of(written.block->ffn)));
    }
  }
}

void parallel_norms(const ArchSpec& spec, Findings& findings) {
  for (const WrittenBlock& written : written_blocks(spec)) {
    const auto* parallel = std::get_if<ParallelWiring>(&written.block->wiring);
    const Placement placement = written.block->placement;
    const bool joint = placement == Placement::post || placement == Placement::residual_after_norm;
    if (parallel != nullptr && !parallel->shared_norm && joint) {
      findings.note(written.path + ".wiring.shared_norm",
                    str("false, but placement ", names_of(placement)[static_cast<size_t>(placement)], " has one norm"));
    }
  }
}

void check_groups(const Norm& norm, int64_t width, const std::string& path, Findings& findings) {
  const auto* rms = std::get_if<RmsNorm>(&norm);
  if (rms == nullptr || !rms->group_size || *rms->group_size <= 0) return;
  if (width % *rms->group_size != 0) {
    findings.note(path + ".group_size", str(*rms->group_size, " does not divide the width ", width));
  }
}

void norm_groups_divide(const ArchSpec& spec, Findings& findings) {
  check_groups(spec.norm, spec.d_model, "norm", findings);
  if (spec.head.transform && spec.head.transform->norm) {
    check_groups(*spec.head.transform->norm, spec.d_model, "head.transform.norm", findings);
  }
  if (spec.embedding.norm) check_groups(*spec.embedding.norm, spec.d_model, "embedding.norm", findings);
  for (const WrittenBlock& written : written_blocks(spec)) {
    if (written.block->norm) check_groups(*written.block->norm, written.d_model, written.path + ".norm", findings);
    if (const auto* m = std::get_if<Mamba>(&written.block->mixer); m != nullptr && m->norm && m->dt_rank) {
      for (const int64_t width : {m->state, *m->dt_rank}) {
        check_groups(*m->norm, width, written.path + ".mixer.norm", findings);
      }
    }
    const auto* a = attention_of(written.block->mixer);
    if (a == nullptr || !a->head_dim) continue;
    const std::string path = written.path + "." + attention_key(written.block->mixer) + ".qk_norm.norm";
    const auto* per_head = std::get_if<PerHeadQkNorm>(&a->qk_norm);
    const auto* whole = std::get_if<WholeQkNorm>(&a->qk_norm);
    if (per_head != nullptr && per_head->norm) check_groups(*per_head->norm, *a->head_dim, path, findings);
    const auto fits = [](int64_t size) { return size > 0 && static_cast<double>(size) <= kSize.max; };
    if (whole != nullptr && whole->norm && a->n_kv_heads && fits(*a->n_kv_heads) && fits(*a->head_dim)) {
      check_groups(*whole->norm, *a->n_kv_heads * *a->head_dim, path, findings);
    }
  }
}

void padding_token_known(const ArchSpec& spec, Findings& findings) {
  const std::optional<int64_t>& token = spec.embedding.padding_token;
  if (token && *token >= spec.vocab_size) {
    findings.note("embedding.padding_token", str(*token, ", the vocabulary has ", spec.vocab_size, " tokens"));
  }
}

}  // namespace

std::vector<Rule> model_rules() {
  return {
      {"range", "every number lies within its limits", "give a number in that range", range},
      {"layers_present", "there is a layer, and no pattern is empty",
       "write layers: [{\"repeat\": 12, \"pattern\": [{...}]}]", layers_present},
      {"layers_bounded", "at most 10000 layers", "lower a repeat", layers_bounded},
      {"block_has_part", "a block has a mixer or a feed-forward", "add a mixer or a feed-forward", block_has_part},
      {"parallel_needs_both", "parallel wiring needs a mixer and a feed-forward", "use wiring serial",
       parallel_needs_both},
      {"parallel_norms", "two norms in a parallel block need a placement with a norm per branch",
       "set wiring.shared_norm=true or placement pre, sandwich or branch_post", parallel_norms},
      {"norm_groups_divide", "group_size divides the normalized width", "use a divisor, or remove group_size",
       norm_groups_divide},
      {"padding_token_known", "the padding token is in the vocabulary", "use a token below vocab_size, or remove it",
       padding_token_known},
  };
}

}  // namespace lamina::arch
