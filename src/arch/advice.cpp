#include "lamina/arch/advice.h"

#include <algorithm>
#include <cstdio>

#include "lamina/arch/count.h"
#include "lamina/arch/layers.h"
#include "lamina/base/error.h"

namespace lamina::arch {
namespace {

using Verdict = Advice::Verdict;

std::string rounded(double value, int digits = 2) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

Verdict within(double value, double low, double high) {
  return value >= low && value <= high ? Verdict::usual : Verdict::look;
}

/// The first block whose mixer (or feed-forward) is a T. The other blocks of a pattern mostly have the same sizes.
template <class T, class V>
const T* first_of(const ArchSpec& spec, V Block::*part) {
  for (const WrittenBlock& written : written_blocks(spec)) {
    if (const T* option = std::get_if<T>(&(written.block->*part))) return option;
  }
  return nullptr;
}

void feed_forward(const ArchSpec& spec, std::vector<Advice>& list) {
  const auto width = static_cast<double>(spec.d_model);
  const std::string reason =
      "4 is usual, 8/3 if gated (three matrices instead of two); anything from 1 to 10 trains "
      "about as well, T5 once used 64";
  if (const auto* f = first_of<PlainFfn>(spec, &Block::ffn)) {
    const double ratio = static_cast<double>(*f->d_ff) / width;
    list.push_back({within(ratio, 1, 10), "feed-forward ratio", str("d_ff/d_model = ", rounded(ratio)), reason});
  }
  if (const auto* f = first_of<GatedFfn>(spec, &Block::ffn)) {
    const double ratio = static_cast<double>(*f->d_ff) / width;
    list.push_back({within(ratio, 1, 10), "feed-forward ratio", str("gated d_ff/d_model = ", rounded(ratio)), reason});
  }
  if (const auto* f = first_of<Moe>(spec, &Block::ffn)) {
    const auto d_ff = static_cast<double>(std::visit([](const auto& e) { return *e.d_ff; }, f->expert));
    const double met = static_cast<double>(f->top_k) * d_ff + static_cast<double>(f->shared_d_ff.value_or(0));
    list.push_back({within(met / width, 1, 10), "feed-forward ratio",
                    str("a token uses ", rounded(met / width), " · d_model"), reason + "; experts count if chosen"});
  }
}

void aspect(const ArchSpec& spec, std::vector<Advice>& list) {
  const double ratio = static_cast<double>(spec.d_model) / static_cast<double>(layer_count(spec));
  list.push_back({within(ratio, 50, 200), "aspect ratio", str("d_model/layers = ", rounded(ratio, 1)),
                  "near 100 to 200 is good, small models go down to 50: deeper models are harder to parallelize and "
                  "train, wider ones learn less per parameter"});
}

void heads(const ArchSpec& spec, std::vector<Advice>& list) {
  const auto* a = first_of<Attention>(spec, &Block::mixer);
  if (a == nullptr) return;
  const double share = static_cast<double>(a->n_heads * *a->head_dim) / static_cast<double>(spec.d_model);
  list.push_back({share == 1.0 ? Verdict::usual : Verdict::look, "heads against width",
                  str("n_heads·head_dim/d_model = ", rounded(share)),
                  "1 is usual but not required: more heads of the same size trade parameters for quality"});
  const bool good = *a->head_dim >= 32 && *a->head_dim <= 256 && *a->head_dim % 8 == 0;
  list.push_back({good ? Verdict::usual : Verdict::look, "head size", str("head_dim = ", *a->head_dim),
                  "64 to 128 is usual; small heads have low-rank scores, and kernels need a multiple of 8"});
  const bool shares = *a->n_kv_heads < a->n_heads;
  list.push_back({shares || spec.context <= 2048 ? Verdict::usual : Verdict::look, "key-value heads",
                  str(*a->n_kv_heads, " of ", a->n_heads),
                  "sharing key-value heads shrinks the KV cache by that factor; 8 queries per head lose little quality "
                  "(Ainslie et "
                  "al. 2023), 2 none that we could measure (docs/studies/attention-kinds)"});
}

void vocabulary(const ArchSpec& spec, const ParameterCount& count, std::vector<Advice>& list) {
  const Verdict size = within(static_cast<double>(spec.vocab_size), 30000, 265000);
  list.push_back(
      {size, "vocabulary", str(spec.vocab_size, " tokens"), "30k to 50k for one language, 100k to 250k for many"});
  list.push_back({spec.vocab_size % 64 == 0 ? Verdict::usual : Verdict::look, "vocabulary rounding",
                  str(spec.vocab_size, " mod 64 = ", spec.vocab_size % 64),
                  "a multiple of 64 keeps the output GEMM in whole tiles; padding rows cost nothing else"});
  const double share =
      static_cast<double>(count.embedding) * (spec.head.tied ? 1 : 2) / static_cast<double>(count.total);
  list.push_back({share <= 0.35 ? Verdict::usual : Verdict::look, "vocabulary's share",
                  str(rounded(100 * share, 1), " % of the parameters", spec.head.tied ? ", tied" : ""),
                  "a large table takes most of a small model's parameters: tie the head, or use a smaller vocabulary"});
}

void choices(const ArchSpec& spec, std::vector<Advice>& list) {
  const Block& block = *written_blocks(spec).front().block;
  const bool post = block.placement == Placement::post;
  list.push_back({post ? Verdict::look : Verdict::usual, "norm placement",
                  std::string(names_of(block.placement)[static_cast<size_t>(block.placement)]),
                  "pre-norm allows larger learning rates than post-norm (docs/studies/headline: 0.004 against 0.001)"});
  if (const auto* learned = std::get_if<LearnedPosition>(&spec.position)) {
    list.push_back(
        {Verdict::look, "position", str("learned, ", *learned->length, " rows"),
         "sequences cannot exceed its table; rope extrapolates a little and can be scaled, alibi extrapolates best"});
  }
  if (std::holds_alternative<PlainFfn>(block.ffn)) {
    list.push_back({Verdict::look, "activation", "plain feed-forward",
                    "a gated unit of 2/3 the width has the same size and is mostly a little better"});
  }
}

void guide(const ArchSpec& spec, std::vector<Advice>& list) {
  const auto* a = first_of<Attention>(spec, &Block::mixer);
  const auto* gated = first_of<GatedFfn>(spec, &Block::ffn);
  const auto* moe = first_of<Moe>(spec, &Block::ffn);
  const bool rope = a != nullptr && std::holds_alternative<Rope>(*a->position);
  const bool rms = std::holds_alternative<RmsNorm>(spec.norm);
  const bool unit = gated != nullptr || (moe != nullptr && std::holds_alternative<GatedFfn>(moe->expert));
  const bool grouped = a != nullptr && *a->n_kv_heads < a->n_heads;
  const std::string has = str(rope ? ", rope" : "", rms ? ", RMS norm" : "", unit ? ", a gated unit" : "",
                              grouped ? ", shared key-value heads" : "");
  list.push_back(
      {Verdict::usual, "decision guide", has.empty() ? "none of the four for quality" : "has " + has.substr(2),
       "best quality: rope, RMS norm, SwiGLU, grouped queries; best speed: alibi, RMS norm, GELU, multi-query; "
       "simplest: alibi, pre-norm, GELU, multi-head; extrapolation first: alibi. Adopt in the order pre-norm, "
       "position, RMS norm, gated unit, grouped queries"});
  list.push_back({Verdict::usual, "regularisation", "belongs to the training recipe",
                  "dropout is rare today; weight decay stays, because it acts through the learning-rate schedule"});
}

}  // namespace

std::vector<Advice> advise(const ArchSpec& spec) {
  std::vector<Advice> list;
  feed_forward(spec, list);
  aspect(spec, list);
  heads(spec, list);
  vocabulary(spec, count_parameters(spec), list);
  choices(spec, list);
  guide(spec, list);
  return list;
}

}  // namespace lamina::arch
