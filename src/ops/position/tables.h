#pragma once

#include <cstdint>
#include <vector>

#include "lamina/tensor/tensor.h"

// Tables for position encodings: RoPE, sinusoidal, ALiBi and T5 buckets.

namespace lamina::ops {

/// The angle by which each pair rotates per position, without RoPE scaling: theta^(−2i / rotary_dim) for i in [0,
/// rotary_dim/2).
std::vector<double> rotary_frequencies(int64_t rotary_dim, double theta);

/// Options of rotary_tables().
struct RotaryTableOptions {
  double theta = 10000.0;  ///< base of the frequencies
  /// The angle by which each pair rotates per position, [rotary_dim/2]; empty: rotary_frequencies(rotary_dim, theta).
  /// RoPE scaling methods (interpolation, NTK-aware, YaRN, frequency bands) choose these.
  std::vector<double> frequencies;
  /// Factor on cos and sin, as in YaRN.
  double attention_factor = 1.0;
  /// Position of the first row.
  int64_t first_position = 0;
};

/// Result of rotary_tables().
struct RotaryTables {
  Tensor cos;  ///< [length, rotary_dim/2] f32
  Tensor sin;  ///< like cos
};

/// Tables of cos and sin of position · frequency. Angles are computed in f64. On meta only shapes.
RotaryTables rotary_tables(int64_t length, int64_t rotary_dim, const RotaryTableOptions& options, const Device& device);

/// Sinusoidal position encoding: PE[pos, 2i] = sin(pos / theta^(2i/d)), PE[pos, 2i+1] = cos(pos / theta^(2i/d));
/// [length, d_model] f32.
/// Vaswani et al. 2017, arXiv:1706.03762.
Tensor sinusoidal_table(int64_t length, int64_t d_model, const Device& device, double theta = 10000.0);

/// ALiBi slope of each head, [n_heads]. If n_heads = n is a power of two: 2^(−8/n), 2^(−16/n), …. Otherwise the slopes
/// of the next lower power of two, followed by every second slope of the next higher one. Press et al. 2021,
/// arXiv:2108.12409.
std::vector<double> alibi_slopes(int64_t n_heads);
/// alibi_slopes() as an f32 tensor for attention.
Tensor alibi_slopes(int64_t n_heads, const Device& device);

/// Options of t5_bucket().
struct T5Buckets {
  bool bidirectional = true;   ///< later keys have buckets of their own
  int64_t buckets = 32;        ///< number of buckets
  int64_t max_distance = 128;  ///< larger distances share the last bucket
};

/// T5 bucket of the distance (key − query). Half of the buckets are for exact small distances. The others grow
/// logarithmically up to max_distance; the last one includes everything beyond. Bidirectional: later keys have buckets
/// of their own; otherwise they share bucket 0. Rounds in f32 like the published code. Raffel et al. 2019,
/// arXiv:1910.10683.
int64_t t5_bucket(int64_t distance, const T5Buckets& options = {});
/// Buckets of the distances −(length − 1) … length − 1: [2·length − 1] i64.
Tensor t5_bucket_table(int64_t length, const T5Buckets& options, const Device& device);

}  // namespace lamina::ops
