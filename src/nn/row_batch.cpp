#include "lamina/nn/row_batch.h"

#include <algorithm>

namespace lamina::nn {

bool RowBatch::is_decode() const {
  return std::all_of(host_counts.begin(), host_counts.end(), [](int32_t count) { return count == 1; });
}

ops::PagedRows slice_rows(const ops::PagedRows& all, const RowRange& range) {
  if (range.first == 0 && range.count == all.tables.dim(0)) return all;
  ops::PagedRows part;
  part.tables = all.tables.slice(0, range.first, range.count);
  part.lengths = all.lengths.slice(0, range.first, range.count);
  const auto first = all.host_starts.begin() + range.first;
  for (int64_t i = 0; i <= range.count; ++i) part.host_starts.push_back(first[i] - *first);
  part.starts = Tensor::from(part.host_starts, {range.count + 1}, all.starts.device());
  part.host_lengths.assign(all.host_lengths.begin() + range.first,
                           all.host_lengths.begin() + range.first + range.count);
  return part;
}

ForwardContext sequence_of(const ForwardContext& pass, int64_t row) {
  ForwardContext one;
  one.batch = 1;
  one.seq = pass.rows->host_counts[static_cast<size_t>(row)];
  one.offset = pass.rows->host_offsets[static_cast<size_t>(row)];
  return one;
}

}  // namespace lamina::nn
