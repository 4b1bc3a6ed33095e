#include "lamina/ops/sampling/sample_kernel.h"

#include <cmath>

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

constexpr const char* kOp = "sample";

void check_written(const char* op, const char* name, const Tensor& tensor) {
  check_dtype(op, name, tensor, DType::i64);
  LAMINA_CHECK(tensor.is_contiguous(), op, ": ", name,
               " is written in place and must be contiguous; pass a whole tensor");
}

void check_sample_options(const SampleOptions& o) {
  LAMINA_CHECK(o.temperature >= 0 && std::isfinite(o.temperature), kOp, ": temperature ", o.temperature,
               "; expected 0 (the likeliest token) or a positive number");
  LAMINA_CHECK(o.top_k >= 0, kOp, ": top_k ", o.top_k, "; expected a positive number, or 0 for no limit");
  LAMINA_CHECK(o.top_p > 0 && o.top_p <= 1, kOp, ": top_p ", o.top_p,
               "; expected a probability above 0, 1 for no limit");
  LAMINA_CHECK(o.min_p >= 0 && o.min_p <= 1, kOp, ": min_p ", o.min_p, "; expected a number from 0 (no limit) to 1");
}

}  // namespace

void sample(const Tensor& logits, const Tensor& streams, Tensor drawn, Tensor ids, const SampleOptions& options,
            Tensor clock) {
  check_floating(kOp, "logits", logits);
  LAMINA_CHECK(logits.rank() == 2 && (logits.dim(1) > 0 || logits.dim(0) == 0), kOp, ": logits is ", logits.shape(),
               "; expected [rows, vocab] with a vocabulary that is not empty");
  check_dtype(kOp, "streams", streams, DType::i64);
  check_shape(kOp, "streams", streams, {logits.dim(0)});
  check_written(kOp, "drawn", drawn);
  check_shape(kOp, "drawn", drawn, {logits.dim(0)});
  check_written(kOp, "ids", ids);
  check_shape(kOp, "ids", ids, {logits.dim(0)});
  check_same_device(kOp, {logits, streams, drawn, ids});
  check_sample_options(options);
  LAMINA_CHECK(!is_tracked({logits}), kOp, ": has no gradient; wrap the call in NoGrad");
  drawn.mark_written(kOp);
  ids.mark_written(kOp);
  if (clock.defined()) {
    check_written(kOp, "clock", clock);
    check_same_device(kOp, {logits, clock});
    clock.mark_written(kOp);
  }
  const SampleArgs args{logits.contiguous(), streams.contiguous(), std::move(drawn), options,
                        std::move(ids),      std::move(clock)};
  LAMINA_LAUNCH(logits.device(), (Work{4 * logits.numel(), logits.nbytes()}), sample, args);
}

}  // namespace lamina::ops
