#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lamina/io/checkpoint.h"

namespace lamina::io::hf {

/// How a stored tensor's rows are made of ours. With g groups and parts a, b, …: a's first 1/g of rows, b's first 1/g,
/// …, a's second, and so on.
enum class Rows : uint8_t {
  whole,     ///< one group: a, then b, …
  kv_heads,  ///< a group for each key head: its queries, its key, its value
  four,      ///< four groups, as four devices once trained them
  single,    ///< row by row in turn
};
/// How the stored numbers lie.
enum class Form : uint8_t {
  same,
  transposed,  ///< matrices are [in, out]
  conv,        ///< [channels, taps] as [channels, 1, taps]
  per_head,    ///< [heads · head_dim] as [heads, head_dim]
};
enum class When : uint8_t { always, serial, parallel };

/// One tensor of a family's files and the weights of ours it holds.
///   hf    "{l}" is the layer; "{e}" the expert, or the head of a norm with own weights; "*" weight and bias alike
///   ours  one name or several with a space between; without the layer
struct NameEntry {
  std::string_view hf;
  std::string_view ours;
  Rows rows = Rows::whole;
  Form form = Form::same;
  When when = When::always;
};
using NameMap = std::vector<NameEntry>;

/// One tensor that a file of the family has for a given architecture.
struct Stored {
  std::string name;
  Shape shape;                      ///< as stored
  std::vector<WeightSlot> weights;  ///< ours that it holds, whole
  int64_t groups = 1;
  Form form = Form::same;
  int64_t piece = -1;    ///< of an expert or a head: which; of all where -1
  int64_t pieces = 1;    ///< how many of them make up the weight
  bool batched = false;  ///< experts are the first dimension of the stored tensor
};

/// Every tensor of a checkpoint of this architecture. An Error names the first weight that has no place in the family's
/// files.
std::vector<Stored> stored_tensors(const NameMap& names, const arch::ArchSpec& resolved);

/// Stored as a plain copy of ours, or of rows of ours that lie together: can be shown as it is.
bool is_view(const Stored& stored);
/// The stored tensor seen as the weights it holds. Only where is_view().
std::vector<Tensor> views_of(const Stored& stored, const Tensor& tensor);
/// Copies a stored tensor into the weights it holds a part of, which have their whole shapes.
void unpack(const Stored& stored, const Tensor& tensor, std::vector<Tensor>& weights);
/// The other way: the tensor as it is stored, made of whole weights; a view where it can be one.
Tensor pack(const Stored& stored, const std::vector<Tensor>& weights);

}  // namespace lamina::io::hf
