#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "lamina/ops/attention/attention.h"
#include "support/op_case.h"

namespace lamina::testing {

/// One attention call: sizes, options and optional inputs.
struct AttentionParams {
  int64_t batch = 1;
  int64_t seq_q = 5;
  int64_t seq_k = 5;
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t d_qk = 4;
  int64_t d_v = 4;
  ops::AttentionOptions options = {};
  bool alibi = false;
  int64_t t5_buckets = 0;
  bool sinks = false;
  std::vector<double> documents = {};
};

inline std::string describe_attention(const AttentionParams& p) {
  const auto& o = p.options;
  static const char* const kinds[] = {"", " window", " blocks", " strided"};
  return str("[", p.batch, ",", p.seq_q, "x", p.seq_k, ",", p.heads, "/", p.kv_heads, ",", p.d_qk, "/", p.d_v, "]",
             o.causal ? " causal" : "", kinds[static_cast<int>(o.pattern.kind)],
             o.pattern.window > 0 ? str(" ", o.pattern.window) : "",
             o.pattern.global_tokens > 0 ? str(" global ", o.pattern.global_tokens) : "",
             o.scale != 0 ? str(" scale ", o.scale) : "", o.soft_cap > 0 ? str(" cap ", o.soft_cap) : "",
             o.dropout > 0 ? str(" dropout ", o.dropout) : "", p.alibi ? " alibi" : "",
             p.t5_buckets > 0 ? str(" t5 ", p.t5_buckets) : "", p.sinks ? " sinks" : "",
             p.documents.empty() ? "" : str(" ", p.documents.size() - 1, " documents"));
}

/// Whether the query at position i sees key j, by the definition of the patterns. Both positions count from the start
/// of a document of n tokens.
inline bool oracle_sees(const ops::AttentionOptions& o, int64_t i, int64_t j, int64_t n) {
  if (o.causal && j > i) return false;
  const ops::AttentionPattern& p = o.pattern;
  const int64_t apart = i > j ? i - j : j - i;
  switch (p.kind) {
    case ops::AttentionPattern::Kind::full: return true;
    case ops::AttentionPattern::Kind::window:
      return apart <= p.window - 1 || i + 1 <= p.global_tokens || j + 1 <= p.global_tokens;
    case ops::AttentionPattern::Kind::strided: return apart <= p.window - 1 || apart % p.stride == 0;
    case ops::AttentionPattern::Kind::blocks: break;
  }
  const int64_t query_block = i / p.block;
  const int64_t key_block = j / p.block;
  if (query_block < p.global_blocks || key_block < p.global_blocks) return true;
  if (key_block >= query_block - p.window_blocks && key_block <= query_block + p.window_blocks) return true;
  const int64_t last = (n - 1) / p.block;
  if (query_block > last - p.last_blocks || key_block > last - p.last_blocks) return true;
  if (p.table != nullptr) {
    const auto row = p.table->begin() + query_block * p.random_blocks;
    return std::count(row, row + p.random_blocks, static_cast<int32_t>(key_block)) > 0;
  }
  const int64_t choices = o.causal ? query_block + 1 : (n + p.block - 1) / p.block;
  for (int64_t r = 0; r < p.random_blocks; ++r) {
    const auto draw = static_cast<uint64_t>(query_block * p.random_blocks + r);
    if (static_cast<int64_t>(philox_word({p.seed, 0}, draw) % static_cast<uint64_t>(choices)) == key_block) return true;
  }
  return false;
}

/// T5 bucket from the bucket boundaries: logarithmic bucket b begins at exact · (max / exact)^(b / half).
inline int64_t oracle_bucket(int64_t key_minus_query, bool causal, int64_t buckets, int64_t max_distance) {
  const int64_t per_side = causal ? buckets : buckets / 2;
  const int64_t side = !causal && key_minus_query > 0 ? per_side : 0;
  int64_t apart = key_minus_query < 0 ? -key_minus_query : key_minus_query;
  if (causal && key_minus_query > 0) apart = 0;
  const int64_t exact = per_side / 2;
  if (apart < exact) return side + apart;
  int64_t bucket = exact;
  while (bucket + 1 < per_side) {
    const double share = static_cast<double>(bucket + 1 - exact) / static_cast<double>(per_side - exact);
    const double begins =
        static_cast<double>(exact) * std::pow(static_cast<double>(max_distance) / static_cast<double>(exact), share);
    if (static_cast<double>(apart) < begins - 1e-9) break;
    ++bucket;
  }
  return side + bucket;
}

/// Dropout's factor for one weight, computed per element as AttentionOptions defines it.
inline double oracle_dropout(const AttentionParams& p, int64_t b, int64_t head, int64_t query, int64_t key) {
  if (p.options.dropout == 0) return 1;
  const double below = std::min(std::floor(p.options.dropout * 65536 + 0.5), 65535.0);
  const int64_t rows = (p.seq_q + 15) / 16 * 4;
  const int64_t row = (b * p.heads + head) * rows + 4 * (query / 16) + query % 8 / 2;
  const int64_t column = 4 * (key / 16) + key % 8 / 2;
  const auto second_half = [](int64_t position) { return position % 16 >= 8; };
  const int64_t bit = (query % 2 != 0 ? 8 : 0) + (second_half(key) ? 4 : 0) + (second_half(query) ? 2 : 0) + key % 2;
  const uint64_t counter = (static_cast<uint64_t>(row) << 32) + static_cast<uint64_t>(column);
  const auto keys = philox_keys(p.options.dropout_key.seed);
  const auto low = philox<9>(keys, p.options.dropout_key.stream, counter);
  const auto high = philox<7>(keys, p.options.dropout_key.stream, counter);
  double number = 0;
  for (size_t i = 0; i < 4; ++i) {
    const auto add = [&](uint32_t word, int64_t at, size_t power) {
      if ((word >> at & 1) != 0) number += std::exp2(power);
    };
    add(low[i], bit, i);
    add(low[i], bit + 16, i + 4);
    add(high[i], bit + 16, i + 8);
    add(high[i], bit, i + 12);
  }
  return number < below ? 0 : 1 / (1 - below / 65536);
}

/// Softmax over the visible scores of a query. `sink`, if given, is one more logit.
template <class S>
std::vector<S> oracle_weights(const std::vector<S>& scores, const S* sink) {
  using std::exp;
  double most = sink != nullptr ? value_of(*sink) : -1e300;
  for (const S& score : scores) most = std::max(most, value_of(score));
  S sum = sink != nullptr ? exp(*sink - S(most)) : S(0);
  std::vector<S> weights;
  for (const S& score : scores) {
    weights.push_back(exp(score - S(most)));
    sum += weights.back();
  }
  for (S& weight : weights) weight = weight / sum;
  return weights;
}

/// The optional inputs after q, k, v: ALiBi slopes, T5 table, sinks.
template <class S>
struct OracleExtras {
  const Array<S>& alibi;
  const Array<S>& t5;
  const Array<S>& sinks;
};

/// Score of the query at position i and the key at j, before the softmax.
template <class S>
S oracle_score(const AttentionParams& p, const OracleExtras<S>& extras, S dot, int64_t head, int64_t i, int64_t j) {
  using std::tanh;
  // With d_qk = 0 every q·k is an empty sum, 0, and the scale does not matter.
  const double default_scale = p.d_qk == 0 ? 1 : 1 / std::sqrt(static_cast<double>(p.d_qk));
  const double scale = p.options.scale == 0 ? default_scale : p.options.scale;
  S score = dot * S(scale);
  if (p.options.soft_cap > 0) score = S(p.options.soft_cap) * tanh(score / S(p.options.soft_cap));
  if (p.alibi) score = score - extras.alibi[head] * S(std::abs(i - j));
  if (p.t5_buckets > 0) {
    const int64_t bucket = oracle_bucket(j - i, p.options.causal, p.t5_buckets, p.options.t5_max_distance);
    score = score + extras.t5[bucket * p.heads + head];
  }
  return score;
}

}  // namespace lamina::testing
