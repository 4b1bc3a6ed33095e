#pragma once

#include "lamina/ops/attention/attention_kernel.h"

namespace lamina::ops {

// Checks shared by attention and decoding. Each throws an Error that names the operator.

void check_attention_options(const char* op, const AttentionOptions& options, const AttentionSizes& sizes);
void check_attention_extras(const char* op, const AttentionOptions& options, const AttentionExtras& extras,
                            const AttentionSizes& sizes);
/// Both checks, for attention over a KV cache. Also rejects dropout and document_starts.
void check_cached_attention(const char* op, const AttentionOptions& options, const AttentionExtras& extras,
                            const AttentionSizes& sizes);

/// The options with a scale of 0 replaced by 1/sqrt(d_qk).
AttentionOptions resolved(const AttentionOptions& options, int64_t d_qk);
/// The extras in the form that kernels take: contiguous, in the accumulation type of `like`; document_starts in i64.
AttentionExtras prepared(const AttentionExtras& extras, DType like);

}  // namespace lamina::ops
