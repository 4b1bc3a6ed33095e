#pragma once

#include <cstdint>

#include "lamina/arch/attention.h"
#include "lamina/base/function_kinds.h"
#include "lamina/lab/draw/drawing.h"

namespace lamina::lab {

// Figures for teaching. Their numbers are computed by the library's own operators and tables.

/// Attention mask: which keys (columns) each query (row) attends to.
Drawing draw_mask(const arch::Pattern& pattern, bool causal, int64_t length);
/// The bias that ALiBi adds to the scores of one head. Heads are counted from 0.
Drawing draw_alibi(int64_t n_heads, int64_t head, int64_t length);
/// The score of equal query and key under RoPE as a function of their distance, relative to distance 0: the mean of
/// cos(distance · angle) over all pairs of dimensions. One curve per base.
Drawing draw_rope(int64_t head_dim, const std::vector<double>& thetas, int64_t distance);
/// Which key/value head (columns) each query head (row) uses.
Drawing draw_heads(int64_t n_heads, int64_t n_kv_heads);
/// Activations over [−4, 4].
Drawing draw_activations(const std::vector<Activation>& functions);
/// Soft-capping: c · tanh(z / c) over [−100, 100], for each cap c.
Drawing draw_soft_caps(const std::vector<double>& caps);
/// The tiles of a tiled attention: 2 if all pairs are visible, 1 if some are, empty if the tile is skipped.
Drawing draw_tiles(const arch::Pattern& pattern, bool causal, int64_t length, int64_t tile);
/// Where tiled attention keeps what, for one head of one sequence in bf16: bytes on chip and in device memory, what
/// moves between them, and the matrix of scores that is never stored.
Drawing draw_memory(bool causal, int64_t length, int64_t head_dim, int64_t tile);
/// Layer norm and RMS norm of the numbers 1 … count.
Drawing draw_norms(int64_t count);
/// The variance of the dot product of two random vectors as a function of their width, with and without the factor
/// 1/√d.
Drawing draw_score_variance(int64_t largest_width);

}  // namespace lamina::lab
