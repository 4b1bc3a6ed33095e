#pragma once

#include <string>
#include <vector>

#include "lamina/tensor/named_tensor.h"

namespace lamina::train {

/// A box of a whole tensor that this rank holds. This is all that checkpoints need to know about any form of
/// parallelism: a rank saves the pieces with `writes`, and loads all of its pieces, from pieces of any other layout.
struct HeldPiece {
  std::string tensor;  ///< name in checkpoints
  Shape whole;         ///< shape of the tensor on one device
  Shape offset;        ///< position of `part` in the whole tensor, one number per dimension
  Tensor part;         ///< the rank's elements, as a view
  bool writes = true;  ///< true on exactly one of the ranks that hold these elements
};
using HeldPieces = std::vector<HeldPiece>;

/// A piece that consists of a whole tensor.
HeldPiece whole_piece(const NamedTensor& tensor);

/// A box of a tensor.
struct TensorBox {
  Shape offset;
  Tensor part;  ///< a view
};
/// Divides elements [begin, begin + flat.numel()) of a row-major tensor of shape `shape` into at most 2 · dimensions −
/// 1 boxes. Needed because ZeRO divides flattened parameters, but checkpoints hold boxes.
std::vector<TensorBox> boxes_of_range(const Shape& shape, int64_t begin, const Tensor& flat);

/// Chooses one writer for each of the tensors that all of `ranks` ranks hold: the rank with the fewest elements so far.
std::vector<int> deal_tensors(const NamedTensors& tensors, int ranks);

}  // namespace lamina::train
