#include "lamina/ops/parallel/collectives.h"

#include <numeric>

#include "lamina/autograd/tape.h"
#include "lamina/ops/elementwise/elementwise.h"

namespace lamina::ops {
namespace {

/// A contiguous copy in the accumulation type, in which communicators sum.
Tensor wide_copy(const Tensor& x) {
  const Tensor wide = x.detach().to(accumulation_type(x.dtype()));
  return wide.shares_memory_with(x) ? wide.clone() : wide.contiguous();
}

Tensor reduced(const Tensor& x, comm::Communicator& ranks, std::string_view label) {
  const Tensor sum = wide_copy(x);
  ranks.all_reduce(sum.reshape({sum.numel()}), {.label = label});
  return sum.to(x.dtype());
}

std::vector<int64_t> in_elements(const std::vector<int64_t>& counts, int64_t each) {
  std::vector<int64_t> elements;
  for (const int64_t count : counts) elements.push_back(count * each);
  return elements;
}

/// Number of elements per index of dimension 0.
int64_t width_of(const Tensor& x) {
  int64_t width = 1;
  for (int axis = 1; axis < x.rank(); ++axis) width *= x.dim(axis);
  return width;
}

int64_t first_of(const std::vector<int64_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
}

void check_part(const char* op, const Tensor& x, int axis, int64_t expected) {
  LAMINA_CHECK(x.dim(axis) == expected, op, ": x is ", x.shape(), "; expected ", expected, " in dimension ", axis);
}

Tensor gathered(const Tensor& x, comm::Communicator& ranks, const std::vector<int64_t>& counts,
                std::string_view label) {
  Shape shape = x.shape();
  shape[0] = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const Tensor own = x.detach().contiguous();
  const Tensor all = Tensor::empty(shape, x.dtype(), x.device());
  ranks.all_gather(own.reshape({own.numel()}), all.reshape({all.numel()}), in_elements(counts, width_of(x)),
                   {.label = label});
  return all;
}

Tensor scattered(const Tensor& x, comm::Communicator& ranks, const std::vector<int64_t>& counts,
                 std::string_view label) {
  const Tensor wide = wide_copy(x);
  Shape shape = x.shape();
  shape[0] = counts[static_cast<size_t>(ranks.rank())];
  const Tensor own = Tensor::empty(shape, wide.dtype(), x.device());
  ranks.reduce_scatter(wide.reshape({wide.numel()}), own.reshape({own.numel()}), in_elements(counts, width_of(x)),
                       {.label = label});
  return own.to(x.dtype());
}

Tensor exchanged(const Tensor& x, comm::Communicator& ranks, const std::vector<int64_t>& send_counts,
                 const std::vector<int64_t>& receive_counts, std::string_view label) {
  Shape shape = x.shape();
  shape[0] = std::accumulate(receive_counts.begin(), receive_counts.end(), int64_t{0});
  const Tensor own = x.detach().contiguous();
  const Tensor result = Tensor::empty(shape, x.dtype(), x.device());
  const int64_t width = width_of(x);
  ranks.all_to_all(own.reshape({own.numel()}), result.reshape({result.numel()}), in_elements(send_counts, width),
                   in_elements(receive_counts, width), {.label = label});
  return result;
}

}  // namespace

Tensor sum_over_ranks(const Tensor& x, comm::Communicator& ranks, std::string_view label) {
  Tensor result = reduced(x, ranks, label);
  record("sum_over_ranks", {x}, {result}, {}, [](Backward& b) { b.add(0, b.grad(0)); });
  return result;
}

Tensor share_with_ranks(const Tensor& x, comm::Communicator& ranks, std::string_view label) {
  if (!is_tracked({x})) return x;
  Tensor result = x.detach();
  record("share_with_ranks", {x}, {result}, {},
         [&ranks, text = std::string(label)](Backward& b) { b.add(0, reduced(b.grad(0), ranks, text)); });
  return result;
}

Tensor gather_for_ranks(const Tensor& x, comm::Communicator& ranks, const std::vector<int64_t>& counts,
                        std::string_view label) {
  check_part("gather_for_ranks", x, 0, counts[static_cast<size_t>(ranks.rank())]);
  Tensor result = gathered(x, ranks, counts, label);
  record("gather_for_ranks", {x}, {result}, {}, [&ranks, counts, text = std::string(label)](Backward& b) {
    b.add(0, scattered(b.grad(0), ranks, counts, text));
  });
  return result;
}

Tensor scatter_sum(const Tensor& x, comm::Communicator& ranks, const std::vector<int64_t>& counts,
                   std::string_view label) {
  check_part("scatter_sum", x, 0, std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  Tensor result = scattered(x, ranks, counts, label);
  record("scatter_sum", {x}, {result}, {}, [&ranks, counts, text = std::string(label)](Backward& b) {
    b.add(0, gathered(b.grad(0), ranks, counts, text));
  });
  return result;
}

Tensor gather_copies(const Tensor& x, comm::Communicator& ranks, const std::vector<int64_t>& counts, int axis,
                     std::string_view label) {
  const int at = axis < 0 ? axis + x.rank() : axis;
  const int64_t own = counts[static_cast<size_t>(ranks.rank())];
  check_part("gather_copies", x, at, own);
  const Tensor front = x.detach().transpose(0, at).contiguous();
  Tensor result = gathered(front, ranks, counts, label).transpose(0, at).contiguous();
  record("gather_copies", {x}, {result}, {}, [at, own, first = first_of(counts, ranks.rank())](Backward& b) {
    b.add(0, b.grad(0).slice(at, first, own).contiguous());
  });
  return result;
}

Tensor exchange_rows(const Tensor& x, comm::Communicator& ranks, const std::vector<int64_t>& send_counts,
                     const std::vector<int64_t>& receive_counts, std::string_view label) {
  check_part("exchange_rows", x, 0, std::accumulate(send_counts.begin(), send_counts.end(), int64_t{0}));
  Tensor result = exchanged(x, ranks, send_counts, receive_counts, label);
  record("exchange_rows", {x}, {result}, {},
         [&ranks, send_counts, receive_counts, text = str(label, " gradients")](Backward& b) {
           b.add(0, exchanged(b.grad(0), ranks, receive_counts, send_counts, text));
         });
  return result;
}

Tensor computed_by_all(const Tensor& x, int ranks) {
  if (!is_tracked({x})) return x;
  Tensor result = x.detach();
  record("computed_by_all", {x}, {result}, {}, [ranks](Backward& b) { b.add(0, scale(b.grad(0), 1.0 / ranks)); });
  return result;
}

}  // namespace lamina::ops
