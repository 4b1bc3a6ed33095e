#include "lamina/arch/layers.h"
#include "lamina/arch/rules.h"

namespace lamina::arch {
namespace {

void retrieval_alone(const ArchSpec& spec, Findings& findings) {
  if (!spec.retrieval) return;
  if (spec.encoder) findings.note("encoder", "there is retrieval, too, and layers can attend to one of them only");
  if (!spec.causal) findings.note("causal", "false, but chunks attend to the neighbours of earlier ones");
}

void retrieval_attended(const ArchSpec& spec, Findings& findings) {
  if (!spec.retrieval) return;
  if (const std::optional<CrossLayers>& at = spec.retrieval->at) {
    findings.note("retrieval.at.first",
                  str(at->first, ", the decoder has ", layer_count({.layers = spec.layers}), " layers"));
    return;
  }
  for (const WrittenBlock& written : written_blocks(spec)) {
    if (!written.in_encoder && written.block->cross) return;
  }
  findings.note("retrieval", "no layer attends to the neighbours");
}

void retrieval_layers_present(const ArchSpec& spec, Findings& findings) {
  if (!spec.retrieval) return;
  for (size_t g = 0; g < spec.retrieval->layers.size(); ++g) {
    if (spec.retrieval->layers[g].pattern.empty()) findings.note(str("retrieval.layers[", g, "].pattern"), "no blocks");
  }
}

bool has_bias(const Norm& norm) {
  const auto* layer = std::get_if<LayerNorm>(&norm);
  return layer != nullptr && layer->bias;
}

/// Rule: tokens before the first complete chunk must pass the sublayer unchanged, so an output of 0 must add 0.
void retrieval_placement(const ArchSpec& spec, Findings& findings) {
  if (!spec.retrieval) return;
  for (const WrittenBlock& written : written_blocks(spec)) {
    const Block& block = *written.block;
    if (written.in_encoder || !block.cross || block.placement == Placement::pre) continue;
    const bool adds_zero = (block.placement == Placement::sandwich || block.placement == Placement::branch_post) &&
                           block.norm && !has_bias(*block.norm);
    if (adds_zero) continue;
    findings.note(written.path + ".placement", str(names_of(block.placement)[static_cast<size_t>(block.placement)],
                                                   " would change tokens that have no neighbours yet"));
  }
}

void retrieval_sources(const ArchSpec& spec, Findings& findings) {
  if (!spec.retrieval) return;
  for (const WrittenBlock& written : written_blocks(spec)) {
    if (!written.block->cross) continue;
    const CrossAttention& a = *written.block->cross;
    const int64_t width = written.in_encoder ? spec.d_model : spec.retrieval->d_model.value_or(spec.d_model);
    if (a.d_source && *a.d_source != width) {
      findings.note(written.path + ".cross.d_source", str(*a.d_source, ", the attended states have ", width));
    }
  }
}

void cross_position_known(const ArchSpec& spec, Findings& findings) {
  for (const WrittenBlock& written : written_blocks(spec)) {
    if (!written.block->cross || !written.block->cross->position) continue;
    const CrossAttention& a = *written.block->cross;
    const std::string path = written.path + ".cross.position";
    const auto* rope = std::get_if<Rope>(&*a.position);
    if (rope == nullptr && !std::holds_alternative<NoPosition>(*a.position)) {
      findings.note(path, str(kind_of(*a.position), " between two sequences"));
    }
    if (rope == nullptr) continue;
    if (!spec.retrieval) findings.note(path, "rope, but the positions of source and target are not aligned");
    if (rope->scaling.index() != 0) findings.note(path + ".scaling", "neighbours are never longer than in training");
    const int64_t turned = rope->rotary_dim.value_or(0);
    if (turned % 2 != 0 || turned > a.head_dim.value_or(turned)) {
      findings.note(path + ".rotary_dim", str(turned, ", expected an even number up to head_dim"));
    }
  }
}

void retrieval_tokens(const ArchSpec& spec, Findings& findings) {
  if (!spec.retrieval) return;
  const Retrieval& retrieval = *spec.retrieval;
  if (spec.vocab_size > 0 && retrieval.padding_token >= spec.vocab_size) {
    findings.note("retrieval.padding_token", str(retrieval.padding_token, ", the vocabulary has ", spec.vocab_size));
  }
  const auto* learned = retrieval.position ? std::get_if<LearnedPosition>(&*retrieval.position) : nullptr;
  if (learned != nullptr && learned->length && *learned->length < retrieval.length) {
    findings.note("retrieval.position.length", str(*learned->length, " is less than length ", retrieval.length));
  }
}

}  // namespace

std::vector<Rule> retrieval_rules() {
  return {
      {"retrieval_alone", "retrieval is an option of causal decoders without an encoder",
       "remove retrieval, or encoder and causal", retrieval_alone},
      {"retrieval_attended", "with retrieval some decoder layer has cross-attention",
       "set retrieval.at={\"first\":1,\"every\":3}, or cross in a block of layers", retrieval_attended},
      {"retrieval_layers_present", "no pattern of the neighbour encoder is empty",
       "write retrieval.layers as layers, or leave it out", retrieval_layers_present},
      {"retrieval_placement", "a decoder block with retrieval has placement pre, or output norms without a bias",
       "use placement pre, or norm rms", retrieval_placement},
      {"retrieval_sources", "d_source is the width of the attended states", "leave out cross.d_source",
       retrieval_sources},
      {"cross_position_known", "cross-attention has position none, or with retrieval rope without scaling",
       "use position none, or rope with an even rotary_dim", cross_position_known},
      {"retrieval_tokens", "the padding token is in the vocabulary, and learned positions hold a neighbour",
       "lower retrieval.padding_token, or raise retrieval.position.length", retrieval_tokens},
  };
}

}  // namespace lamina::arch
