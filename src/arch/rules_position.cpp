#include "lamina/arch/layers.h"
#include "lamina/arch/rules.h"

namespace lamina::arch {
namespace {

struct PlacedRope {
  const Rope* rope;
  std::string path;
  std::optional<int64_t> width;  ///< width of the part of a head that may be rotated
};

std::vector<PlacedRope> ropes(const ArchSpec& spec) {
  std::vector<PlacedRope> found;
  const auto add = [&found](const std::optional<LayerPosition>& position, const std::string& path,
                            std::optional<int64_t> width) {
    const auto* rope = position ? std::get_if<Rope>(&*position) : nullptr;
    if (rope != nullptr) found.push_back({rope, path + ".position", width});
  };
  for (const WrittenBlock& written : written_blocks(spec)) {
    const std::string path = written.path + "." + attention_key(written.block->mixer);
    if (const auto* a = attention_of(written.block->mixer)) add(a->position, path, a->head_dim);
    if (const auto* a = std::get_if<Mla>(&written.block->mixer)) add(a->position, path, a->qk_rope);
  }
  return found;
}

void rotary_dim_fits(const ArchSpec& spec, Findings& findings) {
  for (const PlacedRope& placed : ropes(spec)) {
    if (!placed.rope->rotary_dim || !placed.width) continue;
    const int64_t dim = *placed.rope->rotary_dim;
    if (dim < 2 || dim % 2 != 0 || dim > *placed.width) {
      findings.note(placed.path + ".rotary_dim", str(dim, " for a head of ", *placed.width,
                                                     "; expected an even number from 2 up to the head's width"));
    }
  }
}

void scaling_has_length(const ArchSpec& spec, Findings& findings) {
  for (const PlacedRope& placed : ropes(spec)) {
    std::visit(
        [&](const auto& scaling) {
          if constexpr (requires { scaling.original_length; }) {
            if (!scaling.original_length) {
              findings.note(placed.path + ".scaling.original_length",
                            str("missing, and ", kind_of(placed.rope->scaling), " depends on it"));
            }
          }
        },
        placed.rope->scaling);
  }
}

void scaling_bands_ordered(const ArchSpec& spec, Findings& findings) {
  for (const PlacedRope& placed : ropes(spec)) {
    const auto* yarn = std::get_if<YarnScaling>(&placed.rope->scaling);
    if (yarn != nullptr && yarn->beta_slow >= yarn->beta_fast) {
      findings.note(placed.path + ".scaling.beta_slow",
                    str(yarn->beta_slow, " is not below beta_fast ", yarn->beta_fast));
    }
    const auto* bands = std::get_if<Llama3Scaling>(&placed.rope->scaling);
    if (bands != nullptr && bands->low_freq_factor > bands->high_freq_factor) {
      findings.note(placed.path + ".scaling.low_freq_factor",
                    str(bands->low_freq_factor, " is above high_freq_factor ", bands->high_freq_factor));
    }
  }
}

void scaling_lists_fit(const ArchSpec& spec, Findings& findings) {
  for (const PlacedRope& placed : ropes(spec)) {
    const auto* scaling = std::get_if<LongRopeScaling>(&placed.rope->scaling);
    if (scaling == nullptr || !placed.rope->rotary_dim) continue;
    const int64_t pairs = *placed.rope->rotary_dim / 2;
    const auto check = [&](const std::vector<double>& factors, const char* key) {
      if (static_cast<int64_t>(factors.size()) == pairs) return;
      findings.note(placed.path + ".scaling." + key, str(factors.size(), " factors for ", pairs, " frequencies"));
    };
    check(scaling->short_factor, "short_factor");
    check(scaling->long_factor, "long_factor");
  }
}

void learned_length_covers(const ArchSpec& spec, Findings& findings) {
  const auto* learned = std::get_if<LearnedPosition>(&spec.position);
  if (learned != nullptr && learned->length && *learned->length < spec.context) {
    findings.note("position.length", str(*learned->length, " is less than context ", spec.context));
  }
}

void buckets_fit(const ArchSpec& spec, Findings& findings) {
  for (const WrittenBlock& written : written_blocks(spec)) {
    const auto* a = attention_of(written.block->mixer);
    const auto* t5 = a != nullptr && a->position ? std::get_if<T5Bias>(&*a->position) : nullptr;
    if (t5 == nullptr) continue;
    const std::string path = written.path + "." + attention_key(written.block->mixer) + ".position.buckets";
    const int64_t one_way = t5->bidirectional ? t5->buckets / 2 : t5->buckets;
    if (t5->buckets < 2 || (t5->bidirectional && (t5->buckets % 2 != 0 || t5->buckets < 4))) {
      findings.note(path, str(t5->buckets, ", expected at least 2, or an even number from 4 when bidirectional"));
    } else if (t5->max_distance <= one_way / 2) {
      findings.note(path, str(t5->buckets, " leave no logarithmic buckets below max_distance ", t5->max_distance));
    }
  }
}

/// Rule: a position table that layers share must have the same meaning in each of them.
void shared_tables_agree(const ArchSpec& spec, Findings& findings) {
  const Attention* firsts[2] = {};  // first users in the decoder and in the encoder, which has its own tables
  for (const WrittenBlock& written : written_blocks(spec)) {
    const Attention*& first = firsts[written.in_encoder ? 1 : 0];
    const auto* a = attention_of(written.block->mixer);
    if (a == nullptr || !a->position) continue;
    const auto* t5 = std::get_if<T5Bias>(&*a->position);
    const auto* xl = std::get_if<TransformerXl>(&*a->position);
    if (!(t5 != nullptr && t5->shared) && !(xl != nullptr && xl->shared_bias)) continue;
    if (first == nullptr) first = a;
    if (a->n_heads != first->n_heads || *a->position != *first->position || a->head_dim != first->head_dim) {
      findings.note(written.path + ".mixer",
                    "shares a position table with a layer that has different heads or settings");
    }
  }
}

/// Rule: rounded biases are part of the q·k product, which a soft cap would distort.
void rounded_bias_uncapped(const ArchSpec& spec, Findings& findings) {
  for (const WrittenBlock& written : written_blocks(spec)) {
    const auto* a = attention_of(written.block->mixer);
    if (a != nullptr && a->soft_cap && rounded_bias_width(*a) > 0) {
      findings.note(written.path + ".mixer.soft_cap", str(*a->soft_cap, ", with alibi rounded to bf16"));
    }
  }
}

}  // namespace

std::vector<Rule> position_rules() {
  return {
      {"rotary_dim_fits", "the rotated part is even and not wider than the head",
       "choose an even rotary_dim, or a fraction that gives one", rotary_dim_fits},
      {"scaling_has_length", "dynamic_ntk, yarn, llama3 and longrope have original_length set",
       "set scaling.original_length", scaling_has_length},
      {"scaling_bands_ordered", "the bands of yarn and llama3 are ordered from low to high", "swap the two values",
       scaling_bands_ordered},
      {"scaling_lists_fit", "longrope has a factor for each of the rotary_dim/2 frequencies",
       "give rotary_dim/2 factors", scaling_lists_fit},
      {"learned_length_covers", "the table of learned positions covers the context",
       "raise position.length or lower context", learned_length_covers},
      {"buckets_fit", "T5's buckets allow exact and logarithmic distances", "use 32 buckets with max_distance 128",
       buckets_fit},
      {"shared_tables_agree", "layers that share a position table have the same heads and settings",
       "set position.shared=false (shared_bias=false) or use equal settings", shared_tables_agree},
      {"rounded_bias_uncapped", "a mixer whose alibi biases are rounded has no soft cap",
       "set position.rounding=f32, or remove soft_cap", rounded_bias_uncapped},
  };
}

}  // namespace lamina::arch
