#include "lamina/ops/attention/attention_checks.h"

#include <cmath>

#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

constexpr int64_t kMostPositions = int64_t{1} << 31;
constexpr int64_t kMostRandomBlocks = 1024;  // some kernels loop over them for every (query, key) pair

void check_within(const char* op, const char* name, int64_t value, int64_t least, int64_t most = kMostPositions) {
  LAMINA_CHECK(value >= least && value <= most, op, ": ", name, " is ", value, "; expected from ", least, " up to ",
               most);
}

void check_table(const char* op, const AttentionPattern& pattern, const AttentionSizes& sizes) {
  LAMINA_CHECK(sizes.seq_q == sizes.seq_k, op, ": pattern.table with ", sizes.seq_q, " queries and ", sizes.seq_k,
               " keys; expected as many queries as keys");
  const int64_t blocks = (sizes.seq_k + pattern.block - 1) / pattern.block;
  const auto entries = static_cast<int64_t>(pattern.table->size());
  LAMINA_CHECK(entries == blocks * pattern.random_blocks, op, ": pattern.table has ", entries, " entries; expected ",
               blocks, " blocks of ", pattern.random_blocks);
  for (const int32_t block : *pattern.table) {
    LAMINA_CHECK(block >= 0 && block < blocks, op, ": pattern.table names block ", block, " of ", blocks);
  }
}

void check_pattern(const char* op, const AttentionPattern& pattern, const AttentionSizes& sizes, bool causal) {
  using Kind = AttentionPattern::Kind;
  if (pattern.kind == Kind::full) return;
  LAMINA_CHECK(sizes.seq_q <= sizes.seq_k, op, ": ", sizes.seq_q, " queries and ", sizes.seq_k,
               " keys; expected seq_q <= seq_k for a sparse pattern; use Kind::full for cross-attention");
  if (pattern.kind == Kind::blocks) {
    check_within(op, "pattern.block", pattern.block, 1);
    check_within(op, "pattern.window_blocks", pattern.window_blocks, 0);
    check_within(op, "pattern.global_blocks", pattern.global_blocks, 0);
    check_within(op, "pattern.last_blocks", pattern.last_blocks, 0);
    LAMINA_CHECK(pattern.last_blocks == 0 || !causal, op, ": pattern.last_blocks is ", pattern.last_blocks,
                 " in causal attention, which cannot see them; expected 0");
    check_within(op, "pattern.random_blocks", pattern.random_blocks, 0, kMostRandomBlocks);
    if (pattern.table != nullptr) check_table(op, pattern, sizes);
    return;
  }
  check_within(op, "pattern.window", pattern.window, 1);
  check_within(op, "pattern.global_tokens", pattern.global_tokens, 0);
  if (pattern.kind == Kind::strided) check_within(op, "pattern.stride", pattern.stride, 1);
}

void check_t5(const char* op, const AttentionOptions& options, const Tensor& table, int64_t n_heads) {
  check_floating(op, "t5_bias", table);
  LAMINA_CHECK(table.rank() == 2 && table.dim(1) == n_heads, op, ": t5_bias is ", table.shape(),
               "; expected [buckets, n_heads] with n_heads ", n_heads);
  const int64_t least = options.causal ? 2 : 4;
  LAMINA_CHECK(table.dim(0) >= least && table.dim(0) % (least / 2) == 0, op, ": t5_bias has ", table.dim(0),
               " buckets; expected at least ", least, options.causal ? "" : ", and an even number for two directions");
  const int64_t exact = table.dim(0) / least;
  LAMINA_CHECK(options.t5_max_distance > exact, op, ": t5_max_distance is ", options.t5_max_distance, "; ",
               table.dim(0), " buckets need more than ", exact);
}

void check_documents(const char* op, const Tensor& starts, const AttentionSizes& sizes) {
  LAMINA_CHECK(starts.dtype() == DType::i32 || starts.dtype() == DType::i64, op, ": document_starts is ",
               starts.dtype(), "; expected i32 or i64");
  LAMINA_CHECK(starts.rank() == 1 && starts.dim(0) >= 2, op, ": document_starts is ", starts.shape(),
               "; expected [documents + 1]");
  LAMINA_CHECK(sizes.seq_q == sizes.seq_k, op, ": document_starts with ", sizes.seq_q, " queries and ", sizes.seq_k,
               " keys; packed documents need seq_q == seq_k");
  if (starts.device().kind() != DeviceKind::cpu) return;  // the CUDA kernel checks the values
  const std::vector<int64_t> values = starts.to_vector<int64_t>();
  LAMINA_CHECK(values.front() == 0 && values.back() == sizes.seq_k, op, ": document_starts runs from ", values.front(),
               " to ", values.back(), "; expected 0 to seq = ", sizes.seq_k);
  for (size_t i = 1; i < values.size(); ++i) {
    LAMINA_CHECK(values[i] >= values[i - 1], op, ": document_starts falls from ", values[i - 1], " to ", values[i],
                 " at index ", i, "; sort it");
  }
}

}  // namespace

void check_attention_options(const char* op, const AttentionOptions& options, const AttentionSizes& sizes) {
  check_within(op, "the number of queries", sizes.seq_q, 0);
  check_within(op, "the number of keys", sizes.seq_k, 0);
  check_finite(op, "scale", options.scale);
  check_finite(op, "soft_cap", options.soft_cap);
  LAMINA_CHECK(options.soft_cap >= 0, op, ": soft_cap is ", options.soft_cap, "; expected 0 (none) or more");
  LAMINA_CHECK(options.dropout >= 0 && options.dropout < 1, op, ": dropout is ", options.dropout,
               "; expected a probability in [0, 1)");
  check_pattern(op, options.pattern, sizes, options.causal);
}

void check_attention_extras(const char* op, const AttentionOptions& options, const AttentionExtras& extras,
                            const AttentionSizes& sizes) {
  const Shape per_head{sizes.n_heads};
  if (extras.alibi_slopes.defined()) {
    check_floating(op, "alibi_slopes", extras.alibi_slopes);
    check_shape(op, "alibi_slopes", extras.alibi_slopes, per_head);
  }
  if (extras.sinks.defined()) {
    check_floating(op, "sinks", extras.sinks);
    check_shape(op, "sinks", extras.sinks, per_head);
  }
  if (extras.t5_bias.defined()) check_t5(op, options, extras.t5_bias, sizes.n_heads);
  if (extras.document_starts.defined()) check_documents(op, extras.document_starts, sizes);
  LAMINA_CHECK(options.pattern.table == nullptr || !extras.document_starts.defined(), op,
               ": pattern.table with document_starts; a table is for one document: call it for each");
}

void check_cached_attention(const char* op, const AttentionOptions& options, const AttentionExtras& extras,
                            const AttentionSizes& sizes) {
  check_attention_options(op, options, sizes);
  LAMINA_CHECK(options.dropout == 0, op, ": dropout is ", options.dropout,
               "; expected 0: decoding does not support dropout");
  LAMINA_CHECK(!extras.document_starts.defined(), op,
               ": document_starts is not supported with a KV cache; give each document its own batch row");
  LAMINA_CHECK(options.pattern.table == nullptr, op,
               ": pattern.table is not supported with a KV cache; let the blocks be drawn");
  check_attention_extras(op, options, extras, sizes);
}

AttentionOptions resolved(const AttentionOptions& options, int64_t d_qk) {
  AttentionOptions result = options;
  if (result.scale == 0) result.scale = d_qk == 0 ? 1.0 : 1.0 / std::sqrt(static_cast<double>(d_qk));
  return result;
}

AttentionExtras prepared(const AttentionExtras& extras, DType like) {
  const auto parameter = [&](const Tensor& t) { return t.defined() ? as_accumulation(t, like) : Tensor(); };
  AttentionExtras result;
  result.alibi_slopes = parameter(extras.alibi_slopes);
  result.t5_bias = parameter(extras.t5_bias);
  result.sinks = parameter(extras.sinks);
  if (extras.document_starts.defined()) {
    result.document_starts = extras.document_starts.detach().to(DType::i64).contiguous();
  }
  return result;
}

}  // namespace lamina::ops
