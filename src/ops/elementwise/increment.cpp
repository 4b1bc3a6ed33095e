#include "lamina/ops/elementwise/increment.h"

#include "lamina/ops/elementwise/increment_kernel.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {

void increment_(const Tensor& counters) {
  const char* op = "increment_";
  check_dtype(op, "counters", counters, DType::i64);
  LAMINA_CHECK(counters.is_contiguous(), op,
               ": counters are written in place and must be contiguous; pass a whole tensor");
  counters.mark_written(op);
  LAMINA_LAUNCH(counters.device(), (Work{counters.numel(), 2 * counters.nbytes()}), increment_, counters);
}

namespace cpu {

void increment_(const Tensor& counters) {
  auto* values = counters.data<int64_t>();
  for (int64_t i = 0; i < counters.numel(); ++i) ++values[i];
}

}  // namespace cpu
}  // namespace lamina::ops
