#include "lamina/arch/cost.h"

#include <algorithm>

#include "lamina/arch/layers.h"
#include "lamina/arch/mixing.h"
#include "lamina/arch/weights.h"

namespace lamina::arch {
namespace {

double keys_of(const FullPattern& /*pattern*/, int64_t length) { return (static_cast<double>(length) + 1) / 2; }

/// Average number of visible keys with a window: the first `window` queries see 1, 2, … keys, all later ones see
/// `window`.
double window_keys(int64_t window, int64_t length) {
  const auto n = static_cast<double>(length);
  const auto w = static_cast<double>(std::min(window, length));
  return (w * (w + 1) / 2 + (n - w) * w) / n;
}
double keys_of(const WindowPattern& pattern, int64_t length) { return window_keys(pattern.size, length); }

double keys_of(const LongformerPattern& pattern, int64_t length) {
  // Query i sees min(i + 1, window + global) keys.
  return window_keys(std::min<int64_t>(pattern.window + pattern.global_tokens, length), length);
}

/// An upper bound, because random blocks may coincide with blocks that are visible anyway.
double keys_of(const BigBirdPattern& pattern, int64_t length) {
  const int64_t blocks =
      pattern.window_blocks + 1 + pattern.global_blocks + pattern.last_blocks + pattern.random_blocks;
  return window_keys(std::min<int64_t>(blocks * pattern.block, length), length);
}

/// Query i sees i mod size + 1 keys.
double keys_of(const ChunkPattern& pattern, int64_t length) {
  const auto n = static_cast<double>(length);
  const auto size = static_cast<double>(pattern.size);
  const auto chunks = static_cast<double>(length / pattern.size);
  const auto rest = static_cast<double>(length % pattern.size);
  return (chunks * size * (size + 1) / 2 + rest * (rest + 1) / 2) / n;
}

/// Σ_{i<n} floor(i / stride).
double sum_of_quotients(int64_t n, int64_t stride) {
  const int64_t quotient = n / stride;
  const auto whole = static_cast<double>(quotient);
  return static_cast<double>(stride) * whole * (whole - 1) / 2 + whole * static_cast<double>(n % stride);
}

/// Query i sees the window and, beyond it, the multiples of stride in [window, i].
double keys_of(const StridedPattern& pattern, int64_t length) {
  const int64_t near = std::min(pattern.window, length);
  const int64_t below_window = (pattern.window - 1) / pattern.stride;
  const double multiples = sum_of_quotients(length, pattern.stride) - sum_of_quotients(near, pattern.stride) -
                           static_cast<double>((length - near) * below_window);
  return window_keys(pattern.window, length) + multiples / static_cast<double>(length);
}

/// Without a causal mask, an average query sees as many keys after itself as before.
double both_directions(double causal_keys, int64_t length) {
  return std::min(2 * causal_keys - 1, static_cast<double>(length));
}

/// Additional keys because global tokens or blocks attend to everything, averaged over all queries.
double global_queries(const Pattern& pattern) {
  if (const auto* p = std::get_if<LongformerPattern>(&pattern)) return static_cast<double>(p->global_tokens);
  if (const auto* p = std::get_if<BigBirdPattern>(&pattern))
    return static_cast<double>((p->global_blocks + p->last_blocks) * p->block);
  return 0;
}

double mixing(const Attention& a, int64_t length, int64_t /*d_model*/) {
  const auto heads = static_cast<double>(a.n_heads);
  const bool relative = std::holds_alternative<TransformerXl>(*a.position);
  const auto score = static_cast<double>(*a.head_dim + rounded_bias_width(a)) * (relative ? 2 : 1);
  return 2 * heads * (score + static_cast<double>(*a.v_head_dim)) * average_keys(a.pattern, length, *a.causal);
}

double cross_mixing(const CrossAttention& a, int64_t length) {
  return 4 * static_cast<double>(a.n_heads) * static_cast<double>(*a.head_dim) * static_cast<double>(length);
}

double mixing(const Mla& a, int64_t length, int64_t /*d_model*/) {
  const auto width = static_cast<double>(a.qk_nope + a.qk_rope + a.v_head_dim);
  return 2 * static_cast<double>(a.n_heads) * width * average_keys(a.pattern, length);
}

/// FLOPs per state element: decay exp(dt·A) 2, input dt·B·x 2, update 2, output 2.
double mixing(const Mamba& m, int64_t /*length*/, int64_t /*d_model*/) {
  return static_cast<double>(*m.d_inner) * (8 * static_cast<double>(m.state) + 2 * static_cast<double>(m.conv) + 2);
}

/// FLOPs per state element: as for Mamba, but with one decay per head.
double mixing(const Mamba2& m, int64_t /*length*/, int64_t /*d_model*/) {
  const auto inner = static_cast<double>(*m.d_inner);
  const double joined = inner + 2 * static_cast<double>(m.groups * m.state);
  return inner * (6 * static_cast<double>(m.state) + 2) + 2 * joined * static_cast<double>(m.conv);
}

/// FLOPs per complex mode: multiplication 6, addition 2, real output 4.
double mixing(const S4d& m, int64_t /*length*/, int64_t d_model) {
  return static_cast<double>(d_model) * (6 * static_cast<double>(m.state) + 2);
}

/// FLOPs per channel: two gates, and one multiply-add per tap.
double mixing(const ShortConv& m, int64_t /*length*/, int64_t d_model) {
  return static_cast<double>(d_model) * (2 * static_cast<double>(m.conv) + 2);
}
/// FLOPs per channel: decay 2, scaling of the input 4, update 2, output gate 2, and the convolution.
double mixing(const RgLru& m, int64_t /*length*/, int64_t /*d_model*/) {
  return static_cast<double>(*m.width) * (2 * static_cast<double>(m.conv) + 10);
}
/// FLOPs per state element: decay 1, update 2, output 2.
double mixing(const Lightning& m, int64_t /*length*/, int64_t /*d_model*/) {
  const auto width = static_cast<double>(*m.head_dim);
  return static_cast<double>(m.n_heads) * width * (5 * width + 2);
}
/// FLOPs per channel: three token shifts (3 each), two sums of 3 for the output, two sums for the state, and the gate.
double mixing(const Wkv& m, int64_t /*length*/, int64_t d_model) {
  return 9 * static_cast<double>(d_model) + 14 * static_cast<double>(*m.width);
}
double mixing(const ChannelMix& m, int64_t /*length*/, int64_t d_model) {
  return 7 * static_cast<double>(d_model) + 2 * static_cast<double>(*m.d_ff);
}
/// FLOPs per state element: decay 1, reading the old value 2, update 2, output 2. Plus the convolution.
double mixing(const GatedDelta& m, int64_t /*length*/, int64_t /*d_model*/) {
  const double values = static_cast<double>(m.n_heads) * static_cast<double>(m.value_dim);
  const double joined = 2 * static_cast<double>(*m.n_key_heads) * static_cast<double>(m.key_dim) + values;
  return values * (7 * static_cast<double>(m.key_dim) + 4) + 2 * joined * static_cast<double>(m.conv);
}
double mixing(const AttentionMamba2& m, int64_t length, int64_t d_model) {
  return mixing(m.attention, length, d_model) + mixing(m.mamba2, length, d_model);
}
double mixing(const NoMixer& /*m*/, int64_t /*length*/, int64_t /*d_model*/) { return 0; }

double product_flops(const std::vector<Weight>& weights) {
  double flops = 0;
  for (const Weight& weight : weights) flops += weight.product ? 2 * static_cast<double>(weight.active) : 0;
  return flops;
}

}  // namespace

double average_keys(const Pattern& pattern, int64_t length, bool causal) {
  const double keys = std::visit([length](const auto& option) { return keys_of(option, length); }, pattern);
  if (causal) return keys;
  return std::min(both_directions(keys, length) + global_queries(pattern), static_cast<double>(length));
}

double mixing_flops(const ArchSpec& spec, const Block& block, int64_t length) {
  const double own = std::visit([&](const auto& mixer) { return mixing(mixer, length, spec.d_model); }, block.mixer);
  return block.cross ? own + cross_mixing(*block.cross, length) : own;
}

namespace {

/// For a model with retrieval: FLOPs of the neighbour encoder and of the decoder's layers, per decoder token. Each
/// decoder token comes with neighbours · length / chunk neighbour tokens.
void add_retrieval_flops(const ArchSpec& spec, int64_t length, Flops& flops) {
  const Retrieval& retrieval = *spec.retrieval;
  const int64_t seen = retrieval.neighbours * retrieval.length;  // retrieved tokens that each decoder token attends to
  const double ratio = static_cast<double>(seen) / static_cast<double>(retrieval.chunk);
  for (const WrittenBlock& written : written_blocks(spec)) {
    const Block& block = *written.block;
    const auto times = static_cast<double>(written.times);
    const double tokens = written.in_encoder ? ratio : 1;
    const double source = written.in_encoder ? 1 : ratio;
    const int64_t own_length = written.in_encoder ? retrieval.length : length;
    for (const Weight& weight : block_weights(written.d_model, block)) {
      const bool reads_source = weight.name.starts_with("cross.k") || weight.name.starts_with("cross.v");
      flops.products += times * product_flops({weight}) * (reads_source ? source : tokens);
    }
    flops.mixing +=
        times * tokens * std::visit([&](const auto& m) { return mixing(m, own_length, written.d_model); }, block.mixer);
    if (block.cross) {
      flops.mixing += times * tokens * cross_mixing(*block.cross, written.in_encoder ? retrieval.chunk : seen);
    }
  }
  flops.products += ratio * product_flops(neighbour_outer_weights(spec));
}

}  // namespace

Flops flops_per_token(const ArchSpec& spec, int64_t length) {
  Flops flops;
  flops.products = product_flops(outer_weights(spec));
  if (spec.head.tied)
    flops.products += 2 * static_cast<double>(spec.vocab_size) * static_cast<double>(*spec.embedding.d_embed);
  if (spec.retrieval) {
    add_retrieval_flops(spec, length, flops);
    return flops;
  }
  for (const WrittenBlock& written : written_blocks(spec)) {
    const auto times = static_cast<double>(written.times);
    flops.products += times * product_flops(block_weights(spec, *written.block));
    flops.mixing += times * mixing_flops(spec, *written.block, length);
  }
  return flops;
}

double source_and_target_flops(const ArchSpec& spec, int64_t source_length, int64_t length) {
  const auto source = static_cast<double>(source_length);
  const auto target = static_cast<double>(length);
  double head = product_flops(outer_weights(spec));
  if (spec.head.tied) head += 2 * static_cast<double>(spec.vocab_size) * static_cast<double>(*spec.embedding.d_embed);
  double flops = target * head;
  for (const WrittenBlock& written : written_blocks(spec)) {
    const Block& block = *written.block;
    const double tokens = written.in_encoder ? source : target;
    const int64_t own_length = written.in_encoder ? source_length : length;
    double own = std::visit([&](const auto& m) { return mixing(m, own_length, spec.d_model); }, block.mixer) * tokens;
    if (block.cross) own += cross_mixing(*block.cross, source_length) * tokens;
    for (const Weight& weight : block_weights(spec, block)) {
      const bool reads_source = weight.name.starts_with("cross.k") || weight.name.starts_with("cross.v");
      own += product_flops({weight}) * (reads_source ? source : tokens);
    }
    flops += static_cast<double>(written.times) * own;
  }
  return flops;
}

}  // namespace lamina::arch
