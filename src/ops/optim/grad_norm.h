#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lamina/ops/optim/slots.h"

namespace lamina::ops {

/// Location of a NaN or infinity.
struct BadElement {
  size_t tensor;  ///< index in the list
  int64_t index;  ///< row-major position in that tensor
  double value;   ///< NaN or ±infinity
};

/// Result of global_norm() and clip_grad_norm_().
struct GradNorm {
  double norm = 0.0;  ///< sqrt(Σ g²) over all elements of all tensors
  /// The first NaN or infinite element; empty if all are finite. (The squares of finite f64 tensors may still overflow:
  /// then norm is infinite and this is empty.)
  std::optional<BadElement> bad;
};

/// L2 norm of all gradients taken as one vector. Squares are summed in f64 per chunk, and the chunks in order, so the
/// result does not depend on the number of threads. Undefined tensors are skipped; any floating type and any strides
/// are allowed. Returns 0 on `meta`.
GradNorm global_norm(const std::vector<Tensor>& grads);

/// Σ x² in f64 of every `chunk` elements of each tensor, in order. A tensor starts a new chunk; its last one may be
/// smaller. The ranks that divide a gradient at multiples of `chunk` compute the same sums as one that holds all of it.
/// Undefined tensors are skipped. Returns zeros on `meta`.
std::vector<double> chunk_squares(const std::vector<Tensor>& tensors, int64_t chunk);

/// Options of clip_grad_norm_().
struct ClipOptions {
  double max_norm = 1.0;  ///< largest norm after clipping
  /// True: a NaN or infinity throws an Error that names the tensor and the position. False: the gradients stay
  /// unchanged, and the result says where the NaN or infinity is.
  bool error_if_nonfinite = false;
  /// Names of the tensors for error messages, one per tensor; or empty.
  std::vector<std::string> names;
};

/// g ← g · min(1, max_norm / (norm + 1e-6)) in place, for contiguous tensors; returns the norm before clipping.
/// Pascanu et al. 2013, arXiv:1211.5063.
GradNorm clip_grad_norm_(const std::vector<Tensor>& grads, const ClipOptions& options);

/// t ← t · factor in place, for all tensors in one pass. Used to undo a loss scale or to average micro-batches.
void scale_(const std::vector<Tensor>& tensors, double factor);

/// clip_grad_norm_() for captured steps: leaves its result on the device for later kernels. norm ← sqrt(Σ g²) and
/// factor ← min(1, max_norm / (norm + 1e-6)), or −1 if the norm is not finite. Does not synchronize and does not change
/// the gradients. An infinite max_norm clips nothing.
///   norm, factor  one f32 each, on the gradients' device; may be slices of a larger tensor
void clip_factor(const std::vector<Tensor>& grads, double max_norm, const Tensor& norm, const Tensor& factor);

}  // namespace lamina::ops
