#include "lamina/train/held_piece.h"

#include <algorithm>

namespace lamina::train {

HeldPiece whole_piece(const NamedTensor& tensor) {
  Shape first;
  for (int axis = 0; axis < tensor.tensor.rank(); ++axis) first.push_back(0);
  return {tensor.name, tensor.tensor.shape(), first, tensor.tensor.detach()};
}

std::vector<TensorBox> boxes_of_range(const Shape& shape, int64_t begin, const Tensor& flat) {
  if (shape.rank() == 0) return {{shape, flat.reshape(shape)}};
  std::vector<TensorBox> boxes;
  const Shape strides = contiguous_strides(shape);
  const int64_t end = begin + flat.numel();
  for (int64_t at = begin; at < end;) {
    // The largest box that begins at `at`: whole slices of the outermost dimension whose inner indices are all 0.
    int axis = 0;
    while (axis + 1 < shape.rank() && (at % strides[axis] != 0 || at + strides[axis] > end)) ++axis;
    const int64_t index = at / strides[axis] % shape[axis];
    const int64_t count = std::min((end - at) / strides[axis], shape[axis] - index);
    Shape offset;
    Shape extents;
    for (int i = 0; i < shape.rank(); ++i) {
      offset.push_back(i <= axis ? at / strides[i] % shape[i] : 0);
      extents.push_back(i < axis ? 1 : i == axis ? count : shape[i]);
    }
    boxes.push_back({offset, flat.slice(0, at - begin, extents.numel()).reshape(extents)});
    at += extents.numel();
  }
  return boxes;
}

std::vector<int> deal_tensors(const NamedTensors& tensors, int ranks) {
  std::vector<int64_t> load(static_cast<size_t>(ranks));
  std::vector<int> owners;
  for (const NamedTensor& entry : tensors) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += entry.tensor.numel();
    owners.push_back(static_cast<int>(least - load.begin()));
  }
  return owners;
}

}  // namespace lamina::train
