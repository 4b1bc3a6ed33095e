#include "lamina/ops/elementwise/count_on.h"

#include "lamina/ops/launch.h"

namespace lamina::ops {

void count_on(const Tensor& counters) {
  const char* op = "count_on";
  check_dtype(op, "counters", counters, DType::i64);
  LAMINA_CHECK(counters.is_contiguous(), op,
               ": counters are written in place and must be contiguous; pass a whole tensor");
  counters.mark_written(op);
  LAMINA_LAUNCH(counters.device(), (Work{counters.numel(), 2 * counters.nbytes()}), count_on, counters);
}

namespace cpu {

void count_on(const Tensor& counters) {
  auto* values = counters.data<int64_t>();
  for (int64_t i = 0; i < counters.numel(); ++i) ++values[i];
}

}  // namespace cpu
}  // namespace lamina::ops
