#include "lamina/arch/layers.h"
#include "lamina/arch/rules.h"

namespace lamina::arch {
namespace {

void cross_has_encoder(const ArchSpec& spec, Findings& findings) {
  bool any = false;
  for (const WrittenBlock& written : written_blocks(spec)) {
    if (!written.block->cross) continue;
    any = any || !written.in_encoder;
    if (spec.retrieval) continue;
    if (written.in_encoder) findings.note(written.path + ".cross", "a layer of the encoder has no source to attend to");
    if (!spec.encoder) findings.note(written.path + ".cross", "there is no encoder to attend to");
  }
  if (spec.encoder && !any) findings.note("layers", "no layer attends to the encoder");
}

void cross_heads_fit(const ArchSpec& spec, Findings& findings) {
  for (const WrittenBlock& written : written_blocks(spec)) {
    if (!written.block->cross) continue;
    const CrossAttention& a = *written.block->cross;
    const std::string path = written.path + ".cross";
    if (!a.head_dim && a.n_heads > 0) {
      findings.note(path + ".n_heads", str(a.n_heads, " heads do not divide d_model ", written.d_model));
    }
    if (a.n_kv_heads && *a.n_kv_heads > 0 && a.n_heads % *a.n_kv_heads != 0) {
      findings.note(path + ".n_kv_heads", str(*a.n_kv_heads, " does not divide n_heads ", a.n_heads));
    }
  }
}

void cross_is_serial(const ArchSpec& spec, Findings& findings) {
  for (const WrittenBlock& written : written_blocks(spec)) {
    if (!spec.retrieval && written.block->cross && std::holds_alternative<ParallelWiring>(written.block->wiring)) {
      findings.note(written.path + ".wiring", "parallel, with cross-attention");
    }
  }
}

void encoder_present(const ArchSpec& spec, Findings& findings) {
  if (!spec.encoder) return;
  if (spec.encoder->layers.empty()) findings.note("encoder.layers", "no layers");
  for (size_t g = 0; g < spec.encoder->layers.size(); ++g) {
    if (spec.encoder->layers[g].pattern.empty()) findings.note(str("encoder.layers[", g, "].pattern"), "no blocks");
  }
  if (!spec.causal) findings.note("causal", "false, but the layers that attend to an encoder decode");
  const auto* learned = spec.encoder->position ? std::get_if<LearnedPosition>(&*spec.encoder->position) : nullptr;
  if (learned != nullptr && learned->length && *learned->length < spec.context) {
    findings.note("encoder.position.length", str(*learned->length, " is less than context ", spec.context));
  }
}

void start_token_known(const ArchSpec& spec, Findings& findings) {
  if (!spec.encoder || spec.vocab_size <= 0 || spec.encoder->start_token < spec.vocab_size) return;
  findings.note("encoder.start_token", str(spec.encoder->start_token, ", the vocabulary has ", spec.vocab_size));
}

/// Rule: mixers that read tokens in one direction cannot be part of a stack that is not causal.
void direction_fits(const ArchSpec& spec, Findings& findings) {
  for (const WrittenBlock& written : written_blocks(spec)) {
    const bool causal = spec.causal && !written.in_encoder;
    const auto* a = attention_of(written.block->mixer);
    const bool recurrent = has_mixer(*written.block) && !std::holds_alternative<Attention>(written.block->mixer);
    if (recurrent && !causal) {
      findings.note(written.path + ".mixer", str(kind_of(written.block->mixer), " in a stack that is not causal"));
    }
    if (a == nullptr || a->causal.value_or(causal) || !a->position) continue;
    const std::string path = written.path + "." + attention_key(written.block->mixer) + ".position";
    if (std::holds_alternative<TransformerXl>(*a->position) || rounded_bias_width(*a) > 0) {
      findings.note(path, str(kind_of(*a->position), " without a causal mask"));
    }
    const auto* t5 = std::get_if<T5Bias>(&*a->position);
    if (t5 != nullptr && !t5->bidirectional) {
      findings.note(path + ".bidirectional", "false, but keys may follow their query");
    }
  }
}

void global_projections_plain(const ArchSpec& spec, Findings& findings) {
  for (const WrittenBlock& written : written_blocks(spec)) {
    const auto* a = attention_of(written.block->mixer);
    const auto* pattern = a == nullptr ? nullptr : std::get_if<LongformerPattern>(&a->pattern);
    if (pattern == nullptr || !pattern->global_projections) continue;
    const bool plain = !a->causal.value_or(true) && a->position && std::holds_alternative<NoPosition>(*a->position) &&
                       std::holds_alternative<NoQkNorm>(a->qk_norm) && !a->clip_qkv && !a->sinks &&
                       pattern->global_tokens > 0;
    if (!plain) findings.note(written.path + ".mixer.pattern.global_projections", "true");
  }
}

void mixer_norm_placed(const ArchSpec& spec, Findings& findings) {
  for (const WrittenBlock& written : written_blocks(spec)) {
    const Block& block = *written.block;
    if (block.mixer_norm) continue;
    if (block.placement != Placement::pre || !std::holds_alternative<SerialWiring>(block.wiring)) {
      findings.note(written.path + ".mixer_norm", "false, but this placement or wiring needs the norm");
    }
  }
}

void classifier_pools(const ArchSpec& spec, Findings& findings) {
  if (spec.classifier && !spec.pooling) findings.note("classifier", "there is no pooled vector to classify");
  if (spec.pooling && spec.encoder) findings.note("pooling", "of an encoder–decoder");
}

}  // namespace

std::vector<Rule> encoder_rules() {
  return {
      {"cross_has_encoder", "cross-attention is in the layers of a decoder with an encoder",
       "set encoder.layers, and cross in a block of layers", cross_has_encoder},
      {"cross_heads_fit", "heads of cross-attention divide d_model, and its KV heads divide them",
       "set cross.head_dim, or use divisors", cross_heads_fit},
      {"cross_is_serial", "a block with cross-attention to an encoder is serial", "use wiring serial", cross_is_serial},
      {"encoder_present", "an encoder has layers and positions for the context, and its decoder is causal",
       "write encoder.layers as layers, and remove causal", encoder_present},
      {"start_token_known", "the decoder's start token is in the vocabulary",
       "set encoder.start_token to the id of a special token", start_token_known},
      {"direction_fits", "without a causal mask a mixer is attention whose position looks in both directions",
       "use attention with position none, learned, rope, alibi, or t5 with bidirectional=true", direction_fits},
      {"global_projections_plain", "global projections need attention that is not causal, without rope, sinks or clips",
       "set causal=false and position learned, or global_projections=false", global_projections_plain},
      {"mixer_norm_placed", "only a serial block with placement pre may leave out its mixer's norm",
       "set mixer_norm=true", mixer_norm_placed},
      {"classifier_pools", "a classifier has a pooled vector, of a model with one stack",
       "set pooling, or remove classifier and pooling", classifier_pools},
  };
}

}  // namespace lamina::arch
