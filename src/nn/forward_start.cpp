#include "lamina/nn/forward_start.h"

#include <algorithm>

#include "lamina/ops/elementwise/concat.h"

namespace lamina::nn {
namespace {

/// Sets the positions of packed documents. They restart at 0 in each document.
void set_document_positions(const std::vector<int64_t>& starts, const Device& device, ForwardContext& pass) {
  std::vector<int64_t> positions;
  for (size_t d = 1; d < starts.size(); ++d) {
    const int64_t length = starts[d] - starts[d - 1];
    pass.longest_document = std::max(pass.longest_document, length);
    for (int64_t p = 0; p < length; ++p) positions.push_back(p);
  }
  pass.positions = Tensor::from(positions, {pass.seq}, device);
}

void use_document_starts(const Tensor& given, const Device& device, ForwardContext& pass) {
  LAMINA_CHECK(given.rank() == 1 && (given.dtype() == DType::i64 || given.dtype() == DType::i32),
               "model: document_starts is ", given.dtype(), " ", given.shape(),
               "; expected [documents + 1] of i64 or i32");
  const std::vector<int64_t> starts = given.to_vector<int64_t>();
  LAMINA_CHECK(starts.size() >= 2 && starts.front() == 0 && starts.back() == pass.seq &&
                   std::is_sorted(starts.begin(), starts.end()),
               "model: document_starts must ascend from 0 to seq = ", pass.seq, "; check the packing of the batch");
  pass.document_starts = given;
  set_document_positions(starts, device, pass);
}

/// Sets the positions of this rank's share of the sequences (context parallelism).
void set_shared_positions(const RunOptions& options, const ForwardStart& start, ForwardContext& pass) {
  const ops::ContextShare& share = *options.context;
  LAMINA_CHECK(!options.document_starts.defined() && options.lengths.empty() && !options.segments.defined() &&
                   !options.source.defined() && !options.neighbours.defined() && options.observer == nullptr,
               "model: ranks that share sequences support plain rows and packed documents only; give the documents in "
               "context, and leave out lengths, segments, source, neighbours and observer");
  LAMINA_CHECK(start.seq == share.tokens(), "model: a rank has ", start.seq, " tokens of a sequence of ", share.seq,
               "; expected its share of ", share.tokens());
  pass.context = options.context;
  pass.positions = Tensor::from(share.positions(), {start.seq}, start.ids.device());
  pass.longest_document = share.longest_document();
}

void check_lengths(const std::vector<int64_t>& lengths, const ForwardStart& start) {
  LAMINA_CHECK(static_cast<int64_t>(lengths.size()) == start.batch, "model: ", lengths.size(), " lengths for ",
               start.batch, " rows; give one for each row, or none");
  for (const int64_t length : lengths) {
    LAMINA_CHECK(length >= 1 && length <= start.seq, "model: a row of ", length, " tokens among ", start.seq,
                 "; expected a length in [1, ", start.seq, "]");
  }
}

/// Removes padding: the rows become packed documents of a single row.
void remove_padding(const std::vector<int64_t>& lengths, ForwardStart& start) {
  ForwardContext& pass = start.pass;
  pass.row_starts = {0};
  for (const int64_t length : lengths) pass.row_starts.push_back(pass.row_starts.back() + length);
  const Device device = start.ids.device();
  start.ids = start.without_padding(start.ids);
  if (pass.segments.defined()) pass.segments = start.without_padding(pass.segments);
  pass.batch = 1;
  pass.seq = start.ids.dim(1);
  pass.document_starts = Tensor::from(pass.row_starts, {static_cast<int64_t>(pass.row_starts.size())}, device);
  set_document_positions(pass.row_starts, device, pass);
}

}  // namespace

Tensor with_padding(const Tensor& x, const std::vector<int64_t>& starts, int64_t seq) {
  if (starts.empty()) return x;
  std::vector<Tensor> rows;
  for (size_t row = 0; row + 1 < starts.size(); ++row) {
    const int64_t length = starts[row + 1] - starts[row];
    const Tensor tokens = x.slice(1, starts[row], length);
    Shape shape = tokens.shape();
    shape[1] = seq - length;
    rows.push_back(shape[1] == 0 ? tokens : ops::concat({tokens, Tensor::full(shape, 0.0, x.dtype(), x.device())}, 1));
  }
  return ops::concat(rows, 0);
}

Tensor ForwardStart::without_padding(const Tensor& values) const {
  const std::vector<int64_t>& starts = pass.row_starts;
  if (starts.empty()) return values;
  Tensor packed = Tensor::empty({1, starts.back()}, values.dtype(), values.device());
  for (size_t row = 0; row + 1 < starts.size(); ++row) {
    const int64_t length = starts[row + 1] - starts[row];
    packed.slice(1, starts[row], length).copy_(values.slice(0, static_cast<int64_t>(row), 1).slice(1, 0, length));
  }
  return packed;
}

void check_ids(const Tensor& ids) {
  LAMINA_CHECK(ids.defined() && ids.rank() == 2 && (ids.dtype() == DType::i64 || ids.dtype() == DType::i32),
               "model: ids must be a tensor [batch, seq] of i64 or i32",
               ids.defined() ? str("; given is ", ids.dtype(), " ", ids.shape()) : "; the given tensor is undefined");
}

ForwardStart start_forward(const Tensor& ids, const RunOptions& options) {
  check_ids(ids);
  ForwardStart start{ids, {}, ids.dim(0), ids.dim(1)};
  ForwardContext& pass = start.pass;
  pass.batch = start.batch;
  pass.seq = start.seq;
  pass.training = options.training;
  pass.dropout = options.dropout;
  pass.seed = options.seed;
  pass.step = options.step;
  pass.first_row = options.first_row;
  if (options.checkpoint == nullptr) pass.recompute = options.recompute;
  LAMINA_CHECK(options.observer == nullptr || options.checkpoint == nullptr,
               "model: an observer and activation checkpointing, which runs layers twice; leave one out");
  pass.observer = options.observer;
  if (options.segments.defined()) {
    LAMINA_CHECK(options.segments.shape() == ids.shape(), "model: segments are ", options.segments.shape(), ", ids ",
                 ids.shape(), "; give the segment of each token");
    pass.segments = options.segments;
  }
  LAMINA_CHECK(options.lengths.empty() || !options.document_starts.defined(),
               "model: lengths and document_starts are both given; rows with padding cannot hold packed documents");
  if (options.context) set_shared_positions(options, start, pass);
  if (options.document_starts.defined()) use_document_starts(options.document_starts, ids.device(), pass);
  if (options.lengths.empty()) return start;
  check_lengths(options.lengths, start);
  const bool even =
      std::all_of(options.lengths.begin(), options.lengths.end(), [&](int64_t length) { return length == start.seq; });
  if (!even) remove_padding(options.lengths, start);
  return start;
}

}  // namespace lamina::nn
