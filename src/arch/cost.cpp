#include "lamina/arch/cost.h"

#include <algorithm>

#include "lamina/arch/layers.h"
#include "lamina/arch/mixing.h"
#include "lamina/arch/weights.h"

namespace lamina::arch {
namespace {

double keys_of(const FullPattern& /*pattern*/, int64_t length) { return (static_cast<double>(length) + 1) / 2; }

/// The first `window` queries see 1, 2, … keys, the others `window` each.
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

/// An upper bound: random blocks may coincide with blocks that are visible anyway.
double keys_of(const BigBirdPattern& pattern, int64_t length) {
  const int64_t blocks = pattern.window_blocks + 1 + pattern.global_blocks + pattern.random_blocks;
  return window_keys(std::min<int64_t>(blocks * pattern.block, length), length);
}

/// Σ_{i<n} floor(i / stride).
double sum_of_quotients(int64_t n, int64_t stride) {
  const int64_t quotient = n / stride;
  const auto whole = static_cast<double>(quotient);
  return static_cast<double>(stride) * whole * (whole - 1) / 2 + whole * static_cast<double>(n % stride);
}

/// Beyond the window, query i sees the multiples of stride in [window, i].
double keys_of(const StridedPattern& pattern, int64_t length) {
  const int64_t near = std::min(pattern.window, length);
  const int64_t below_window = (pattern.window - 1) / pattern.stride;
  const double multiples = sum_of_quotients(length, pattern.stride) - sum_of_quotients(near, pattern.stride) -
                           static_cast<double>((length - near) * below_window);
  return window_keys(pattern.window, length) + multiples / static_cast<double>(length);
}

/// Without a causal mask a query sees as many keys after itself as before, over the average position.
double both_directions(double causal_keys, int64_t length) {
  return std::min(2 * causal_keys - 1, static_cast<double>(length));
}

/// Keys of a global token or block, averaged over all queries, in addition to those of its window.
double global_queries(const Pattern& pattern) {
  if (const auto* p = std::get_if<LongformerPattern>(&pattern)) return static_cast<double>(p->global_tokens);
  if (const auto* p = std::get_if<BigBirdPattern>(&pattern)) return static_cast<double>(p->global_blocks * p->block);
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

/// As for Mamba, with one decay per head.
double mixing(const Mamba2& m, int64_t /*length*/, int64_t /*d_model*/) {
  const auto inner = static_cast<double>(*m.d_inner);
  const double joined = inner + 2 * static_cast<double>(m.groups * m.state);
  return inner * (6 * static_cast<double>(m.state) + 2) + 2 * joined * static_cast<double>(m.conv);
}

/// FLOPs per complex mode: multiplication 6, addition 2, real output 4.
double mixing(const S4d& m, int64_t /*length*/, int64_t d_model) {
  return static_cast<double>(d_model) * (6 * static_cast<double>(m.state) + 2);
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

Flops flops_per_token(const ArchSpec& spec, int64_t length) {
  Flops flops;
  flops.products = product_flops(outer_weights(spec));
  if (spec.head.tied)
    flops.products += 2 * static_cast<double>(spec.vocab_size) * static_cast<double>(*spec.embedding.d_embed);
  for (const WrittenBlock& written : written_blocks(spec)) {
    const auto times = static_cast<double>(written.times);
    flops.products += times * product_flops(block_weights(spec, *written.block));
    flops.mixing += times * mixing_flops(spec, *written.block, length);
  }
  return flops;
}

}  // namespace lamina::arch
