#include "lamina/ops/optim/grad_norm.h"

#include <algorithm>
#include <cmath>

#include "lamina/ops/launch.h"
#include "lamina/ops/optim/grad_norm_kernel.h"

namespace lamina::ops {
namespace {

/// The defined tensors of a list, and their indices in it.
struct Defined {
  std::vector<Tensor> tensors;
  std::vector<size_t> places;
  int64_t elements = 0;
  int64_t bytes = 0;
};

Defined checked(const char* op, const std::vector<Tensor>& list, bool in_place) {
  Defined result;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].defined()) continue;
    LAMINA_CHECK(is_floating(list[i].dtype()), op, ": tensor ", i, " is ", list[i].dtype(),
                 "; expected f32, f64, bf16 or f16");
    LAMINA_CHECK(!in_place || list[i].is_contiguous(), op, ": tensor ", i, " ", list[i].shape(),
                 " is a strided view; it is written in place and must be contiguous");
    result.tensors.push_back(in_place ? list[i] : list[i].detach().contiguous());
    check_same_device(op, {result.tensors[0], list[i]});
    result.places.push_back(i);
    result.elements += list[i].numel();
    result.bytes += list[i].nbytes();
  }
  return result;
}

GradNorm norm_of(const char* op, const std::vector<Tensor>& grads) {
  const Defined defined = checked(op, grads, false);
  GradNorm result;
  if (defined.tensors.empty()) return result;
  LAMINA_LAUNCH(defined.tensors[0].device(), (Work{2 * defined.elements, defined.bytes}), sum_of_squares,
                defined.tensors, result);
  if (result.bad) result.bad->tensor = defined.places[result.bad->tensor];
  return result;
}

}  // namespace

GradNorm global_norm(const std::vector<Tensor>& grads) { return norm_of("global_norm", grads); }

std::vector<double> chunk_squares(const std::vector<Tensor>& tensors, int64_t chunk) {
  const char* op = "chunk_squares";
  LAMINA_CHECK(chunk > 0 && chunk <= (int64_t{1} << 30), op, ": chunk is ", chunk, "; expected 1 to 2^30");
  const Defined defined = checked(op, tensors, false);
  ChunkSquares args{defined.tensors, chunk, {}};
  int64_t count = 0;
  for (const Tensor& tensor : defined.tensors) count += (tensor.numel() + chunk - 1) / chunk;
  args.sums.resize(static_cast<size_t>(count));
  if (count == 0) return {};
  LAMINA_LAUNCH(defined.tensors[0].device(), (Work{2 * defined.elements, defined.bytes}), chunk_squares, args);
  return std::move(args.sums);
}

GradNorm clip_grad_norm_(const std::vector<Tensor>& grads, const ClipOptions& options) {
  const char* op = "clip_grad_norm_";
  LAMINA_CHECK(options.max_norm > 0 && std::isfinite(options.max_norm), op, ": max_norm is ", options.max_norm,
               "; expected a finite number > 0");
  LAMINA_CHECK(options.names.empty() || options.names.size() == grads.size(), op, ": ", grads.size(), " gradients and ",
               options.names.size(), " names; give one for each, or none");
  checked(op, grads, true);
  const GradNorm result = norm_of(op, grads);
  if (!std::isfinite(result.norm)) {
    LAMINA_CHECK(!options.error_if_nonfinite || !result.bad, op, ": gradient ", result.bad->tensor,
                 options.names.empty() ? "" : " (" + options.names[result.bad->tensor] + ")", " holds ",
                 result.bad->value, " at position ", result.bad->index,
                 "; lower the learning rate or the loss scale, or skip this step");
    LAMINA_CHECK(!options.error_if_nonfinite, op,
                 ": the norm overflows although every gradient is finite; scale the "
                 "gradients down first");
    return result;
  }
  const double factor = options.max_norm / (result.norm + 1e-6);
  if (factor < 1) scale_(grads, factor);
  return result;
}

void clip_factor(const std::vector<Tensor>& grads, double max_norm, const Tensor& norm, const Tensor& factor) {
  const char* op = "clip_factor";
  LAMINA_CHECK(max_norm > 0, op, ": max_norm is ", max_norm, "; expected a number > 0, infinity for no clipping");
  const Defined defined = checked(op, grads, false);
  LAMINA_CHECK(!defined.tensors.empty(), op, ": no gradients were given; expected at least one");
  for (const Tensor& result : {norm, factor}) {
    check_dtype(op, "a result", result, DType::f32);
    LAMINA_CHECK(result.numel() == 1, op, ": a result is ", result.shape(), "; expected one number");
    check_same_device(op, {defined.tensors[0], result});
    result.mark_written(op);
  }
  const ClipFactor args{defined.tensors, max_norm, norm, factor};
  LAMINA_LAUNCH(defined.tensors[0].device(), (Work{2 * defined.elements, defined.bytes}), clip_factor, args);
}

namespace cpu {
void clip_factor(const ClipFactor& args) {
  GradNorm result;
  sum_of_squares(args.grads, result);
  const double factor = std::min(1.0, args.max_norm / (result.norm + 1e-6));
  args.norm.data<float>()[0] = static_cast<float>(result.norm);
  args.factor.data<float>()[0] = std::isfinite(result.norm) ? static_cast<float>(factor) : -1.0F;
}
}  // namespace cpu

void scale_(const std::vector<Tensor>& tensors, double factor) {
  check_finite("scale_", "factor", factor);
  const Defined defined = checked("scale_", tensors, true);
  if (defined.tensors.empty()) return;
  for (const Tensor& tensor : defined.tensors) tensor.mark_written("scale_");
  LAMINA_LAUNCH(defined.tensors[0].device(), (Work{defined.elements, 2 * defined.bytes}), scale_tensors,
                defined.tensors, factor);
}

}  // namespace lamina::ops
