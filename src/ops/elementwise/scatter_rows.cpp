#include "lamina/ops/elementwise/scatter_rows_kernel.h"

#include <cstring>

#include "lamina/ops/launch.h"

namespace lamina::ops {

void scatter_rows_(const Tensor& table, const Tensor& indices, const Tensor& rows) {
  const char* op = "scatter_rows_";
  LAMINA_CHECK(table.defined() && table.rank() >= 1 && table.is_contiguous(), op, ": table is ",
               table.defined() ? str(table.shape()) : "undefined",
               "; expected a contiguous tensor [slots, ...], since it is written in place");
  LAMINA_CHECK(
      indices.defined() && indices.rank() == 1 && (indices.dtype() == DType::i64 || indices.dtype() == DType::i32), op,
      ": indices is ", indices.defined() ? str(indices.dtype(), " ", indices.shape()) : "undefined",
      "; expected [rows] of i64 or i32");
  Shape expected = table.shape();
  expected[0] = indices.dim(0);
  check_shape(op, "rows", rows, expected);
  check_dtype(op, "rows", rows, table.dtype());
  check_same_device(op, {table, indices, rows});
  table.mark_written(op);
  const ScatterRows args{table, indices.to(DType::i64).contiguous(), rows.detach().contiguous()};
  LAMINA_LAUNCH(table.device(), (Work{0, 2 * rows.nbytes() + args.indices.nbytes()}), scatter_rows_, args);
}

namespace cpu {

void scatter_rows_(const ScatterRows& args) {
  const int64_t slots = args.table.dim(0);
  const int64_t count = args.indices.dim(0);
  const int64_t* indices = args.indices.data<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    LAMINA_CHECK(indices[i] >= 0 && indices[i] < slots, "scatter_rows_: index ", indices[i], " of row ", i,
                 " is outside the table of ", slots, " rows; give an index in [0, ", slots, ")");
  }
  if (args.rows.numel() == 0) return;
  const auto width = static_cast<size_t>(args.rows.nbytes() / count);
  auto* table = static_cast<char*>(args.table.raw());
  const auto* rows = static_cast<const char*>(args.rows.raw());
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(table + static_cast<size_t>(indices[i]) * width, rows + static_cast<size_t>(i) * width, width);
  }
}

}  // namespace cpu
}  // namespace lamina::ops
