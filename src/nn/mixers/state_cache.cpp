#include "lamina/nn/mixers/state_cache.h"

#include "lamina/nn/row_batch.h"
#include "lamina/nn/sequence_cache.h"
#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/elementwise/scatter_rows.h"
#include "lamina/ops/elementwise/split.h"
#include "lamina/ops/embedding/embedding.h"

namespace lamina::nn {
namespace {

Tensor run_documents(const Tensor& x, const Tensor& starts_in, const Recurrence& recurrence) {
  const std::vector<int64_t> starts = starts_in.to_vector<int64_t>();
  std::vector<int64_t> lengths;
  for (size_t i = 1; i < starts.size(); ++i) {
    if (starts[i] > starts[i - 1]) lengths.push_back(starts[i] - starts[i - 1]);
  }
  if (lengths.size() < 2) return recurrence(x, nullptr);
  std::vector<Tensor> documents = ops::split(x, lengths, 1);
  for (Tensor& document : documents) document = recurrence(document, nullptr);
  return ops::concat(documents, 1);
}

/// Copies of the states in `slots`. Undefined if the layer has no such state.
Tensor gather_states(const Tensor& states, const Tensor& slots) {
  if (!states.defined()) return {};
  const int64_t width = states.numel() / states.dim(0);
  Shape shape = states.shape();
  shape[0] = slots.dim(0);
  return ops::embedding(states.reshape({states.dim(0), width}), slots).reshape(shape);
}

/// Runs the rows of a ragged step. Rows with one token run together as a batch of sequences of length 1; every other
/// row runs alone.
Tensor run_rows(const Tensor& x, const RowBatch& rows, const LayerMemory& memory, const Recurrence& recurrence) {
  const auto kind = [&](int64_t row) { return rows.host_counts[static_cast<size_t>(row)] == 1 ? -1 : row; };
  std::vector<Tensor> outputs;
  for (const RowRange& range : row_ranges(rows, kind)) {
    if (range.tokens == 0) continue;
    const Tensor slots = rows.slots.slice(0, range.first, range.count);
    const Tensor part = x.slice(1, range.token, range.tokens);
    StateCache states(gather_states(memory.conv, slots), gather_states(memory.scan, slots));
    const Tensor y = recurrence(part.reshape({range.count, range.tokens / range.count, x.dim(2)}), &states);
    if (memory.conv.defined()) ops::scatter_rows_(memory.conv, slots, states.conv(memory.conv.dtype()));
    if (memory.scan.defined()) ops::scatter_rows_(memory.scan, slots, states.scan(memory.scan.dtype()));
    outputs.push_back(y.reshape({1, range.tokens, y.dim(2)}));
  }
  return ops::concat(outputs, 1);
}

/// Runs one row whose first `count` tokens are real. Outputs of padding are zeros.
Tensor run_row(const Tensor& x, int64_t count, StateCache& cache, int64_t width, const Recurrence& recurrence) {
  if (count == x.dim(1)) return recurrence(x, &cache);
  const Tensor padding = Tensor::zeros({1, x.dim(1) - count, width}, x.dtype(), x.device());
  return count == 0 ? padding : ops::concat({recurrence(x.slice(1, 0, count), &cache), padding}, 1);
}

}  // namespace

int64_t StateCache::bytes() const {
  return (conv_.defined() ? conv_.nbytes() : 0) + (scan_.defined() ? scan_.nbytes() : 0);
}

void StateCache::reset(int64_t row) {
  if (conv_.defined()) conv_.slice(0, row, 1).fill_(0.0);
  if (scan_.defined()) scan_.slice(0, row, 1).fill_(0.0);
}

void StateCache::reorder(std::span<const int64_t> sources) {
  if (conv_.defined()) reorder_rows(conv_, sources);
  if (scan_.defined()) reorder_rows(scan_, sources);
}

std::unique_ptr<LayerCache> StateCache::rows(int64_t begin, int64_t count) const {
  const auto part = [&](const Tensor& state) { return state.defined() ? state.slice(0, begin, count) : Tensor(); };
  return std::make_unique<StateCache>(part(conv_), part(scan_));
}

Tensor StateCache::scan(DType dtype) const { return scan_.to(dtype == DType::f64 ? DType::f64 : DType::f32); }

void StateCache::keep(Tensor& own, const Tensor& state) {
  if (!own.shares_memory_with(state)) own.copy_(state.detach());
}

Tensor run_recurrence(const Tensor& x, const ForwardContext& pass, LayerCache* cache, int64_t width,
                      const Recurrence& recurrence) {
  if (pass.rows != nullptr) return run_rows(x, *pass.rows, *pass.memory, recurrence);
  if (cache == nullptr) {
    return pass.document_starts.defined() ? run_documents(x, pass.document_starts, recurrence) : recurrence(x, nullptr);
  }
  auto& states = dynamic_cast<StateCache&>(*cache);
  bool padded = false;
  for (int64_t row = 0; row < pass.batch; ++row) padded = padded || pass.count_of(row) < pass.seq;
  if (!padded) return recurrence(x, &states);
  std::vector<Tensor> rows;
  for (int64_t row = 0; row < pass.batch; ++row) {
    const std::unique_ptr<LayerCache> own = states.rows(row, 1);
    rows.push_back(run_row(x.slice(0, row, 1), pass.count_of(row), dynamic_cast<StateCache&>(*own), width, recurrence));
  }
  return ops::concat(rows, 0);
}

Tensor RecurrentMixer::forward(const Tensor& x, ForwardContext& pass, LayerCache* cache) {
  return project(run_recurrence(x, pass, cache, inner_width(), [&](const Tensor& part, StateCache* states) {
    return states != nullptr && part.dim(1) == 1 ? step(part, pass, *states) : scan(part, pass, states);
  }));
}

}  // namespace lamina::nn
