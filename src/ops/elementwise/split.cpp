#include "lamina/ops/elementwise/split.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

/// If the pieces' gradients are adjacent in memory, the tensor that they form, without a copy; otherwise undefined.
Tensor joined_gradient(const Backward& b, size_t pieces, int axis) {
  std::vector<Tensor> grads;
  for (size_t i = 0; i < pieces; ++i) {
    if (!b.has_grad(static_cast<int>(i))) return {};
    grads.push_back(b.strided_grad(static_cast<int>(i)));
  }
  const Tensor joined = Tensor::adjacent_view(grads, axis);
  return joined.defined() && joined.is_contiguous() ? joined : Tensor();
}

}  // namespace

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& extents, int axis_in) {
  check_rank_at_least("split", "x", x, 1);
  const int axis = x.shape().normalize(axis_in);
  std::vector<Tensor> pieces;
  int64_t begin = 0;
  for (const int64_t extent : extents) {
    LAMINA_CHECK(extent >= 0 && extent <= x.dim(axis) - begin, "split: a piece of ", extent,
                 " does not fit after the first ", begin, " of the ", x.dim(axis), " along axis ", axis, " of ",
                 x.shape());
    pieces.push_back(x.detach().slice(axis, begin, extent));
    begin += extent;
  }
  LAMINA_CHECK(begin == x.dim(axis), "split: the pieces cover ", begin, " of the ", x.dim(axis), " along axis ", axis,
               " of ", x.shape(), "; give extents that add up to it");
  record("split", {x}, pieces, {},
         [shape = x.shape(), dtype = x.dtype(), device = x.device(), extents, axis](Backward& b) {
           if (Tensor made = joined_gradient(b, extents.size(), axis); made.defined()) return b.add(0, std::move(made));
           Tensor whole = Tensor::empty(shape, dtype, device);
           device.add_work({0, 2 * whole.nbytes()});
           int64_t first = 0;
           for (size_t i = 0; i < extents.size(); ++i) {
             Tensor piece = whole.slice(axis, first, extents[i]);
             if (b.has_grad(static_cast<int>(i))) {
               piece.copy_(b.grad(static_cast<int>(i)));
             } else {
               piece.fill_(0.0);
             }
             first += extents[i];
           }
           b.add(0, std::move(whole));
         });
  return pieces;
}

}  // namespace lamina::ops
