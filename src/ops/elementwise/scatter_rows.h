#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Writes rows into a table in place: table[indices[i]] = rows[i]. Used to store the recurrent states of sequences in
/// their slots.
///   table    [slots, ...]   any type, contiguous
///   indices  [n] i32 or i64 in [0, slots); if one occurs twice, either row may be kept
///   rows     [n, ...]       the table's type and row shape
/// No gradient.
void scatter_rows_(const Tensor& table, const Tensor& indices, const Tensor& rows);

}  // namespace lamina::ops
