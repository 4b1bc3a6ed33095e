#pragma once

#include <string>

#include "lamina/io/checkpoint.h"

namespace lamina::io {

/// Reads a model in llama2.c's first format (https://github.com/karpathy/llama2.c): seven int32 (dim, hidden_dim,
/// n_layers, n_heads, n_kv_heads, vocab_size, seq_len), then f32 weights; each kind of weight is stored for all layers
/// together. A negative vocab_size means that the head is not tied.
///
/// The format's RoPE rotates adjacent pairs. The rows of q and k are reordered here to rotate halves instead, which is
/// the same function in the layout of most families. The other weights are views of the mapped file.
Checkpoint read_llama2c(const std::string& path, const Device& device);

}  // namespace lamina::io
