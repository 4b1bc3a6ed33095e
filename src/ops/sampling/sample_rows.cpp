#include "lamina/ops/sampling/sample_rows_kernel.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

constexpr const char* kRowsOp = "sample_rows";
constexpr const char* kCountOp = "count_tokens";
constexpr int64_t kMostTopLogprobs = 64;

/// The option tensor in the form that kernels take: checked, contiguous, or undefined.
Tensor checked_option(const char* name, const Tensor& option, DType dtype, const Shape& shape, const Tensor& logits) {
  if (!option.defined()) return option;
  check_dtype(kRowsOp, name, option, dtype);
  check_shape(kRowsOp, name, option, shape);
  check_same_device(kRowsOp, {logits, option});
  return option.contiguous();
}

RowSampling checked_options(const RowSampling& o, const Tensor& logits) {
  const Shape rows{logits.dim(0)};
  const Shape tokens = logits.shape();
  const auto number = [&](const char* name, const Tensor& option) {
    return checked_option(name, option, DType::f32, rows, logits);
  };
  RowSampling result;
  result.temperature = number("temperature", o.temperature);
  result.top_k = checked_option("top_k", o.top_k, DType::i32, rows, logits);
  result.top_p = number("top_p", o.top_p);
  result.min_p = number("min_p", o.min_p);
  result.typical_p = number("typical_p", o.typical_p);
  result.repetition = number("repetition", o.repetition);
  result.presence = number("presence", o.presence);
  result.frequency = number("frequency", o.frequency);
  result.seed = checked_option("seed", o.seed, DType::i64, rows, logits);
  result.drawn = checked_option("drawn", o.drawn, DType::i64, rows, logits);
  result.counts = checked_option("counts", o.counts, DType::i32, tokens, logits);
  result.bias = checked_option("bias", o.bias, DType::f32, tokens, logits);
  result.mask = checked_option("mask", o.mask, DType::i32, {logits.dim(0), (logits.dim(1) + 31) / 32}, logits);
  const bool penalises = o.repetition.defined() || o.presence.defined() || o.frequency.defined();
  LAMINA_CHECK(!o.counts.defined() || penalises, kRowsOp,
               ": counts without penalties; give repetition, presence or frequency, or leave counts undefined");
  return result;
}

void check_output(const char* op, const char* name, const Tensor& tensor, DType dtype, const Shape& shape) {
  LAMINA_CHECK(tensor.defined(), op, ": ", name, " is undefined; give ", dtype, " ", shape);
  check_dtype(op, name, tensor, dtype);
  check_shape(op, name, tensor, shape);
  LAMINA_CHECK(tensor.is_contiguous(), op, ": ", name,
               " is written in place and must be contiguous; pass a whole tensor");
  tensor.mark_written(op);
}

}  // namespace

void sample_rows(const Tensor& logits, const RowSampling& options, int64_t vocab_size, int64_t top_logprobs, Tensor ids,
                 Tensor logprobs, Tensor top_ids) {
  check_floating(kRowsOp, "logits", logits);
  LAMINA_CHECK(logits.rank() == 2 && (logits.dim(1) > 0 || logits.dim(0) == 0), kRowsOp, ": logits is ", logits.shape(),
               "; expected [rows, vocab] with a vocabulary that is not empty");
  LAMINA_CHECK(vocab_size >= 0 && vocab_size <= logits.dim(1), kRowsOp, ": vocab_size is ", vocab_size,
               "; expected 0 (all ids) to ", logits.dim(1), ", the number of logits");
  const int64_t vocab = vocab_size == 0 ? logits.dim(1) : vocab_size;
  LAMINA_CHECK(top_logprobs >= 0 && top_logprobs <= kMostTopLogprobs && (top_logprobs <= vocab || logits.dim(0) == 0),
               kRowsOp, ": top_logprobs is ", top_logprobs, "; expected 0 to ", std::min(kMostTopLogprobs, vocab));
  LAMINA_CHECK(!is_tracked({logits}), kRowsOp, ": has no gradient; wrap the call in NoGrad");
  const RowSampling checked = checked_options(options, logits);
  check_output(kRowsOp, "ids", ids, DType::i64, {logits.dim(0)});
  LAMINA_CHECK(logprobs.defined() || top_logprobs == 0, kRowsOp, ": ", top_logprobs,
               " top_logprobs without logprobs; give f32 [rows, 1 + top_logprobs]");
  if (logprobs.defined()) check_output(kRowsOp, "logprobs", logprobs, DType::f32, {logits.dim(0), 1 + top_logprobs});
  if (top_logprobs > 0) check_output(kRowsOp, "top_ids", top_ids, DType::i64, {logits.dim(0), top_logprobs});
  check_same_device(kRowsOp, {logits, ids, logprobs, top_logprobs > 0 ? top_ids : Tensor()});
  if (logits.dim(0) == 0) return;
  const SampleRows args{logits.detach().contiguous(), checked, vocab, top_logprobs, ids, logprobs, top_ids};
  LAMINA_LAUNCH(logits.device(), (Work{4 * logits.numel(), logits.nbytes()}), sample_rows, args);
}

void count_tokens(Tensor counts, const Tensor& rows, const Tensor& ids) {
  LAMINA_CHECK(counts.defined() && counts.rank() == 2, kCountOp, ": counts is ",
               counts.defined() ? str(counts.shape()) : "undefined", "; expected i32 [slots, vocab]");
  LAMINA_CHECK(ids.defined() && rows.defined(), kCountOp, ": rows or ids is undefined; give i32 [n] and i64 [n]");
  check_output(kCountOp, "counts", counts, DType::i32, counts.shape());
  check_dtype(kCountOp, "ids", ids, DType::i64);
  check_shape(kCountOp, "ids", ids, {ids.numel()});
  check_dtype(kCountOp, "rows", rows, DType::i32);
  check_shape(kCountOp, "rows", rows, {ids.numel()});
  check_same_device(kCountOp, {counts, rows, ids});
  if (ids.numel() == 0) return;
  const CountTokens args{counts, rows.contiguous(), ids.contiguous()};
  LAMINA_LAUNCH(counts.device(), (Work{ids.numel(), 8 * ids.numel()}), count_tokens, args);
}

}  // namespace lamina::ops
