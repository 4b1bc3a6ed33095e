#include "lamina/comm/checks.h"

#include <numeric>

namespace lamina::comm {

void check_tensor(Operation operation, const Tensor& x, bool meta) {
  LAMINA_CHECK(x.defined(), name_of(operation), ": a tensor is undefined; give one on every rank");
  const DeviceKind expected = meta ? DeviceKind::meta : DeviceKind::cpu;
  LAMINA_CHECK(x.device().kind() == expected, name_of(operation), ": the tensor ", x.shape(), " is on ", x.device(),
               "; this communicator takes ", meta ? "meta tensors" : "tensors in host memory, copy it with to(cpu)");
  LAMINA_CHECK(x.is_contiguous(), name_of(operation), ": the tensor ", x.shape(),
               " is a strided view; give a contiguous one");
}

void check_sum(Operation operation, const Tensor& x) {
  const DType dtype = x.dtype();
  LAMINA_CHECK(dtype == DType::f32 || dtype == DType::f64 || dtype == DType::bf16 || dtype == DType::i64,
               name_of(operation), ": ", dtype,
               " elements; sums over ranks are of f32, f64, bf16 or i64, convert first");
}

void check_counts(Operation operation, const std::vector<int64_t>& counts, int rank, int size, const Tensor& whole,
                  const Tensor& part) {
  LAMINA_CHECK(counts.size() == static_cast<size_t>(size), name_of(operation), ": ", counts.size(), " counts for ",
               size, " ranks; give one for each");
  for (const int64_t count : counts) {
    LAMINA_CHECK(count >= 0, name_of(operation), ": a count is ", count, "; expected at least 0");
  }
  const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const int64_t own = counts[static_cast<size_t>(rank)];
  LAMINA_CHECK(whole.numel() == all && part.numel() == own, name_of(operation), ": the whole has ", whole.numel(),
               " elements and this rank's part ", part.numel(), "; the counts say ", all, " and ", own);
  LAMINA_CHECK(whole.dtype() == part.dtype(), name_of(operation), ": the whole is ", whole.dtype(), " and the part ",
               part.dtype(), "; expected one dtype");
}

void check_peer(Operation operation, int peer, int size) {
  LAMINA_CHECK(peer >= 0 && peer < size, name_of(operation), ": rank ", peer, " of ", size,
               "; ranks count from 0 to size - 1");
}

void check_colors(const std::vector<int>& colors, int size) {
  LAMINA_CHECK(colors.size() == static_cast<size_t>(size), "split: ", colors.size(), " colors for ", size,
               " ranks; give one for each");
}

}  // namespace lamina::comm
