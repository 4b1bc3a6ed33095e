#include "lamina/ops/moe/expert_indices.h"

#include "lamina/ops/launch.h"

namespace lamina::ops {

Tensor checked_expert_indices(const char* op, const Tensor& indices, int64_t experts) {
  LAMINA_CHECK(indices.defined(), op, ": indices is undefined; pass the indices that route_top_k returns");
  LAMINA_CHECK(indices.dtype() == DType::i32 || indices.dtype() == DType::i64, op, ": indices is ", indices.dtype(),
               "; expected i32 or i64");
  LAMINA_CHECK(indices.rank() == 2 && indices.dim(1) > 0, op, ": indices is ", indices.shape(),
               "; expected [tokens, k] with k >= 1");
  Tensor dense = indices.to(DType::i64).contiguous();
  int64_t bad = -1;
  LAMINA_LAUNCH(dense.device(), (Work{}), find_bad_index, dense, experts, bad);
  LAMINA_CHECK(bad < 0, op, ": choice ", bad % dense.dim(1), " of token ", bad / dense.dim(1), " is expert ",
               dense.data<int64_t>()[bad], "; there are experts 0 to ", experts - 1);
  return dense;
}

void cpu::find_bad_index(const Tensor& indices, int64_t experts, int64_t& position) {
  const int64_t* first = indices.data<int64_t>();
  for (int64_t i = 0; i < indices.numel(); ++i) {
    if (first[i] < 0 || first[i] >= experts) {
      position = i;
      return;
    }
  }
}

}  // namespace lamina::ops
