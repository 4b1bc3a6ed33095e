#include "lamina/ops/embedding/embedding.h"

#include <algorithm>

#include "lamina/autograd/tape.h"
#include "lamina/ops/embedding/embedding_kernel.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

/// The gradient that the table already has, if the kernel can add to it; else undefined.
Tensor usable_accumulator(const Backward& b, DType dtype) {
  const Tensor grad = b.accumulator(0);
  const bool usable =
      grad.defined() && grad.is_contiguous() && (grad.dtype() == dtype || grad.dtype() == accumulation_type(dtype));
  return usable ? grad : Tensor();
}

void run_backward(Backward& b, const Shape& shape, DType dtype, const EmbeddingOptions& options) {
  EmbeddingBackward back;
  back.ids = b.saved(0);
  back.first_row = options.first_row;
  back.padding = options.padding;
  back.dy = b.grad();
  back.dtable = usable_accumulator(b, dtype);
  back.accumulate = back.dtable.defined();
  const Device& device = back.dy.device();
  if (!back.accumulate) back.dtable = Tensor::empty(shape, accumulation_type(dtype), device);
  // Rows that receive gradients are read and written. There are at most as many as table rows.
  const int64_t added =
      std::min(back.dy.numel(), back.dtable.numel()) * static_cast<int64_t>(size_of(back.dtable.dtype()));
  const Work work{back.dy.numel(), back.dy.nbytes() + (back.accumulate ? 2 * added : back.dtable.nbytes())};
  LAMINA_LAUNCH(device, work, embedding_backward, back);
  if (!back.accumulate) b.add(0, std::move(back.dtable));
}

}  // namespace

Tensor embedding(const Tensor& table, const Tensor& ids, const EmbeddingOptions& options) {
  const char* op = "embedding";
  check_floating(op, "table", table);
  LAMINA_CHECK(table.rank() == 2, op, ": table is ", table.shape(), "; expected [vocab, width]");
  LAMINA_CHECK(ids.defined(), op, ": ids is undefined; give a tensor of token ids");
  LAMINA_CHECK(ids.dtype() == DType::i64 || ids.dtype() == DType::i32, op, ": ids is ", ids.dtype(),
               "; expected i64 or i32; convert with to(dtype)");
  check_same_device(op, {table, ids});
  const int64_t rows = table.dim(0);
  const int64_t vocab = options.vocab == 0 ? rows : options.vocab;
  LAMINA_CHECK(options.first_row >= 0 && rows <= vocab && options.first_row <= vocab - rows, op, ": the table's ", rows,
               " rows from first_row ", options.first_row, " do not lie within the vocabulary of ", vocab,
               "; fix first_row or vocab");
  LAMINA_CHECK(options.padding < vocab, op, ": padding is row ", options.padding, " of a vocabulary of ", vocab,
               "; give a row of it, or -1 for none");

  EmbeddingForward args;
  args.table = table.contiguous();
  args.ids = ids.to(DType::i64).contiguous();
  args.first_row = options.first_row;
  args.vocab = vocab;
  Shape shape = ids.shape();
  shape.push_back(table.dim(1));
  args.y = Tensor::empty(shape, table.dtype(), table.device());
  const int64_t read = std::min(args.y.nbytes(), args.table.nbytes());  // repeated rows are read from cache
  LAMINA_LAUNCH(table.device(), (Work{0, read + args.y.nbytes() + args.ids.nbytes()}), embedding_forward, args);

  record(op, {table}, {args.y}, {args.ids}, [table_shape = table.shape(), dtype = table.dtype(), options](Backward& b) {
    run_backward(b, table_shape, dtype, options);
  });
  return args.y;
}

}  // namespace lamina::ops
