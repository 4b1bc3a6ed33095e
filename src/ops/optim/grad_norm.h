#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lamina/ops/optim/slots.h"

namespace lamina::ops {

/// Where a number that is not finite was found.
struct BadElement {
  size_t tensor;  ///< index in the list
  int64_t index;  ///< row-major position in that tensor
  double value;
};

struct GradNorm {
  double norm = 0.0;  ///< sqrt(Σ g²) over all elements of all tensors
  /// The first element that is NaN or infinite; nothing when all are finite. (A finite list of f64 may still overflow
  /// the sum; then norm is infinite and this is empty.)
  std::optional<BadElement> bad;
};

/// The norm of all gradients as one vector. Squares are added in f64 per chunk and the chunks in order, so that the
/// bits do not depend on the number of threads. Undefined tensors are skipped; any floating type, any strides.
/// On `meta` the norm is 0.
GradNorm global_norm(const std::vector<Tensor>& grads);

struct ClipOptions {
  double max_norm = 1.0;
  /// Throw an Error that names the first bad tensor and position. Otherwise the gradients are left as they are and the
  /// caller finds out from the result.
  bool error_if_nonfinite = false;
  /// For messages, one per tensor; or empty.
  std::vector<std::string> names;
};

/// g ← g · min(1, max_norm / (norm + 1e-6)) in place, for contiguous tensors; returns the norm before clipping.
/// Pascanu et al. 2013, arXiv:1211.5063.
GradNorm clip_grad_norm_(const std::vector<Tensor>& grads, const ClipOptions& options);

/// t ← t · factor in place, for all tensors in one pass: to undo a loss scale, or to average micro-batches.
void scale_(const std::vector<Tensor>& tensors, double factor);

/// What clip_grad_norm_ would do, left on the device for kernels that follow: norm ← sqrt(Σ g²) and
/// factor ← min(1, max_norm / (norm + 1e-6)), or −1 where the norm is not finite. Nothing is waited for and the
/// gradients stay as they are; an infinite max_norm clips nothing.
///   norm, factor  one f32 each, on the gradients' device; slices of a larger tensor will do
void clip_factor(const std::vector<Tensor>& grads, double max_norm, const Tensor& norm, const Tensor& factor);

/// What the kernels of clip_factor are given.
struct ClipFactor {
  std::vector<Tensor> grads;
  double max_norm;
  Tensor norm;
  Tensor factor;
};

namespace cpu {
void clip_factor(const ClipFactor& args);
void sum_of_squares(const std::vector<Tensor>& tensors, GradNorm& result);
void scale_tensors(const std::vector<Tensor>& tensors, double factor);
}  // namespace cpu
namespace cuda {
void clip_factor(const ClipFactor& args);
void sum_of_squares(const std::vector<Tensor>& tensors, GradNorm& result);
void scale_tensors(const std::vector<Tensor>& tensors, double factor);
}  // namespace cuda

}  // namespace lamina::ops
