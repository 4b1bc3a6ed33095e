#pragma once

#include "lamina/ops/attention/attention.h"
#include "lamina/ops/attention/tile_scratch.h"

namespace lamina::ops {

// Checks shared by attention and its decode form; each throws Error naming the operator.

void check_attention_options(const char* op, const AttentionOptions& options, const AttentionSizes& sizes);
void check_attention_extras(const char* op, const AttentionOptions& options, const AttentionExtras& extras,
                            const AttentionSizes& sizes);
/// Both, for attention over a cache, which drops nothing and knows no documents.
void check_cached_attention(const char* op, const AttentionOptions& options, const AttentionExtras& extras,
                            const AttentionSizes& sizes);

/// The options with the scale that 0 stands for.
AttentionOptions resolved(const AttentionOptions& options, int64_t d_qk);
/// The extras as kernels take them: dense, in the type that `like` is computed in, documents in i64.
AttentionExtras prepared(const AttentionExtras& extras, DType like);

}  // namespace lamina::ops
