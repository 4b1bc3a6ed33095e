#include <algorithm>

#include "lamina/arch/cost.h"
#include "lamina/arch/layers.h"
#include "lamina/base/error.h"

namespace lamina::arch {
namespace {

/// Maximum number of tokens whose keys and values a pattern needs; 0 if it needs all of them.
double reach(const Pattern& pattern) {
  if (const auto* window = std::get_if<WindowPattern>(&pattern)) return static_cast<double>(window->size);
  if (const auto* p = std::get_if<LongformerPattern>(&pattern))
    return static_cast<double>(p->window + p->global_tokens);
  return 0;
}

std::string heads_kind(const Attention& a) {
  if (*a.n_kv_heads == a.n_heads) return "multi-head";
  if (*a.n_kv_heads == 1) return "multi-query";
  return str("grouped-query ", a.n_heads / *a.n_kv_heads, ":1");
}

void describe(const Attention& a, int64_t /*d_model*/, CacheRow& row) {
  row.kind = heads_kind(a);
  row.per_token =
      static_cast<double>(*a.n_kv_heads) * static_cast<double>(*a.head_dim + rounded_bias_width(a) + *a.v_head_dim);
  row.max_tokens = reach(a.pattern);
  if (const auto* xl = std::get_if<TransformerXl>(&*a.position)) {
    row.max_tokens = static_cast<double>(*xl->memory);
    row.kind += ", segments";
  }
  if (!std::holds_alternative<FullPattern>(a.pattern)) row.kind += str(", ", kind_of(a.pattern));
}

void describe(const Mla& a, int64_t /*d_model*/, CacheRow& row) {
  row.kind = "latent";
  row.per_token = static_cast<double>(a.kv_lora_rank + a.qk_rope);
  row.max_tokens = reach(a.pattern);
}

void describe(const Mamba& m, int64_t /*d_model*/, CacheRow& row) {
  row.kind = "state";
  row.constant = static_cast<double>(*m.d_inner) * static_cast<double>(m.state + m.conv - 1);
}

void describe(const Mamba2& m, int64_t /*d_model*/, CacheRow& row) {
  row.kind = "state";
  const auto joined = static_cast<double>(*m.d_inner + 2 * m.groups * m.state);
  row.constant =
      static_cast<double>(*m.d_inner) * static_cast<double>(m.state) + joined * static_cast<double>(m.conv - 1);
}

void describe(const S4d& m, int64_t d_model, CacheRow& row) {
  row.kind = "state";
  row.constant = static_cast<double>(d_model) * static_cast<double>(m.state);
}

void describe(const ShortConv& m, int64_t d_model, CacheRow& row) {
  row.kind = "state";
  row.constant = static_cast<double>(d_model) * static_cast<double>(m.conv - 1);
}

/// The state has one more element than channels: a flag for whether the sequence has begun.
void describe(const RgLru& m, int64_t /*d_model*/, CacheRow& row) {
  row.kind = "state";
  row.constant = static_cast<double>(*m.width) * static_cast<double>(m.conv) + 1;
}

void describe(const Lightning& m, int64_t /*d_model*/, CacheRow& row) {
  row.kind = "state";
  row.constant = static_cast<double>(m.n_heads) * static_cast<double>(*m.head_dim) * static_cast<double>(*m.head_dim);
}

void describe(const Wkv& m, int64_t d_model, CacheRow& row) {
  row.kind = "state";
  row.constant = 3 * static_cast<double>(*m.width) + static_cast<double>(d_model);
}

void describe(const ChannelMix& /*m*/, int64_t d_model, CacheRow& row) {
  row.kind = "state";
  row.constant = static_cast<double>(d_model);
}

void describe(const GatedDelta& m, int64_t /*d_model*/, CacheRow& row) {
  row.kind = "state";
  const double values = static_cast<double>(m.n_heads) * static_cast<double>(m.value_dim);
  const double joined = 2 * static_cast<double>(*m.n_key_heads) * static_cast<double>(m.key_dim) + values;
  row.constant = values * static_cast<double>(m.key_dim) + joined * static_cast<double>(m.conv - 1);
}

void describe(const AttentionMamba2& m, int64_t d_model, CacheRow& row) {
  describe(m.mamba2, d_model, row);
  describe(m.attention, d_model, row);
  row.kind += " and state";
}

void describe(const NoMixer& /*m*/, int64_t /*d_model*/, CacheRow& row) { row.kind = "nothing"; }

}  // namespace

double CacheRow::at(int64_t length) const {
  auto tokens = static_cast<double>(length);
  if (max_tokens > 0) tokens = std::min(tokens, max_tokens);
  return static_cast<double>(layers) * (constant + per_token * tokens);
}

std::vector<CacheRow> cache_rows(const ArchSpec& spec) {
  std::vector<CacheRow> rows;
  if (!is_causal(spec)) return rows;
  for (const WrittenBlock& written : written_blocks(spec)) {
    if (written.in_encoder) continue;
    CacheRow row{written.path, "", written.times};
    std::visit([&](const auto& mixer) { describe(mixer, spec.d_model, row); }, written.block->mixer);
    rows.push_back(std::move(row));
    if (!written.block->cross) continue;
    const CrossAttention& cross = *written.block->cross;
    const auto per_token = 2 * static_cast<double>(*cross.n_kv_heads) * static_cast<double>(*cross.head_dim);
    if (spec.retrieval) {
      CacheRow neighbours{written.path, "cross, of the neighbours", written.times};
      neighbours.constant = per_token * static_cast<double>(spec.retrieval->neighbours * spec.retrieval->length);
      rows.push_back(std::move(neighbours));
      continue;
    }
    CacheRow source{written.path, "cross, of the source", written.times};
    source.per_token = per_token;
    rows.push_back(std::move(source));
  }
  return rows;
}

}  // namespace lamina::arch
