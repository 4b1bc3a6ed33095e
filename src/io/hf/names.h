#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lamina/io/checkpoint.h"

namespace lamina::io::hf {

/// How a stored tensor interleaves the rows of several Lamina weights a, b, …. With g groups it holds the first 1/g of
/// a's rows, the first 1/g of b's, …, then the second 1/g of a's, and so on.
enum class Rows : uint8_t {
  whole,     ///< one group: a, then b, …
  kv_heads,  ///< one group per KV head, or per head of linear attention: its queries, its key, its value
  heads,     ///< one group per query head: its query, its gate
  four,      ///< four groups; the model was trained on four devices
  single,    ///< one group per row: rows of a, b, … alternate
};
/// Memory layout of the stored tensor.
enum class Form : uint8_t {
  same,
  transposed,  ///< matrices are [in, out]
  conv,        ///< [channels, taps] as [channels, 1, taps]
  per_head,    ///< [heads · head_dim] as [heads, head_dim]
  row,         ///< [n] as [1, n]
  plane,       ///< [n] as [1, 1, n]
};
/// For which layers an entry of the name map applies.
enum class When : uint8_t {
  always,
  serial,
  parallel,
  plain_ffn,
  gated_ffn,
  no_attention,
  first_of_pair,
  second_of_pair
};

/// One tensor in a family's files and the Lamina weights it holds.
/// - `hf`: the name in the file. "{l}" is the layer, "{p}" the pair of layers (for families with two of Lamina's layers
/// in one), "{e}" the expert or the head of a per-head norm. "*" matches weight and bias.
/// - `ours`: one Lamina name, or several separated by spaces, without the layer prefix.
struct NameEntry {
  std::string_view hf;
  std::string_view ours;
  Rows rows = Rows::whole;
  Form form = Form::same;
  When when = When::always;
};
using NameMap = std::vector<NameEntry>;

/// One tensor of a family's file for a given architecture.
struct Stored {
  std::string name;
  Shape shape;                      ///< shape in the file
  std::vector<WeightSlot> weights;  ///< the Lamina weights that the tensor holds, in their full shapes
  int64_t groups = 1;
  Form form = Form::same;
  int64_t piece = -1;    ///< index of the expert or head; -1: all of them
  int64_t pieces = 1;    ///< number of pieces that make up the weight
  bool batched = false;  ///< the first dimension of the stored tensor is the expert
};

/// All tensors of a checkpoint of this architecture. If the family cannot store a weight, the Error names the first
/// one.
std::vector<Stored> stored_tensors(const NameMap& names, const arch::ArchSpec& resolved);

/// Whether each weight is a (possibly transposed) view of the stored tensor, so that no copy is needed.
bool is_view(const Stored& stored);
/// The weights as views of the stored tensor. Requires is_view().
std::vector<Tensor> views_of(const Stored& stored, const Tensor& tensor);
/// Copies a stored tensor into its part of the weights, which have their full shapes.
void unpack(const Stored& stored, const Tensor& tensor, std::vector<Tensor>& weights);
/// The inverse of unpack(): builds the stored tensor from whole weights; a view if possible.
Tensor pack(const Stored& stored, const std::vector<Tensor>& weights);

}  // namespace lamina::io::hf
