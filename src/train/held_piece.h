#pragma once

#include <string>
#include <vector>

#include "lamina/tensor/named_tensor.h"

namespace lamina::train {

/// A box of a whole tensor that this rank holds. Checkpoints need nothing else of a form of parallelism: a rank saves
/// the pieces that it `writes` and loads all of its pieces, from pieces of any other layout.
struct HeldPiece {
  std::string tensor;  ///< name in checkpoints
  Shape whole;         ///< shape of the tensor on one device
  Shape offset;        ///< of `part` in it; one number per dimension
  Tensor part;         ///< the rank's elements, a view
  bool writes = true;  ///< exactly one of the ranks that hold an element writes it
};
using HeldPieces = std::vector<HeldPiece>;

/// A piece that is the whole tensor.
HeldPiece whole_piece(const NamedTensor& tensor);

/// A box of a tensor.
struct TensorBox {
  Shape offset;
  Tensor part;  ///< a view
};
/// Cuts elements [begin, begin + flat.numel()) of a row-major tensor of shape `shape` into boxes, at most
/// 2 · dimensions − 1: ZeRO divides flattened parameters, checkpoints hold boxes.
std::vector<TensorBox> boxes_of_range(const Shape& shape, int64_t begin, const Tensor& flat);

/// Deals tensors that all of `ranks` ranks hold to writers: each to the rank with the fewest elements so far.
std::vector<int> deal_tensors(const NamedTensors& tensors, int ranks);

}  // namespace lamina::train
