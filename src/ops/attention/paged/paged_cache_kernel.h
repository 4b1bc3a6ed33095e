#pragma once

#include "lamina/ops/attention/paged/paged_cache.h"

namespace lamina::ops {

/// Kernel arguments as in paged_store(); k and v have a contiguous last dimension.
struct PagedStore {
  PagedCache cache;
  PagedRows rows;
  Tensor k;
  Tensor v;
};
namespace cuda {
void paged_store(const PagedStore& args);
}  // namespace cuda

/// Throws an Error that names `op`, unless the tensors of cache and rows fit together and fit `tokens` new tokens.
void check_paged(const char* op, const PagedCache& cache, const PagedRows& rows, int64_t tokens);

/// Lengths and starts as far as the host knows them: the host copies, or the tensors themselves on a CPU. Empty on
/// `meta`, and on a GPU during CUDA graph capture.
struct HostRows {
  std::vector<int32_t> lengths;
  std::vector<int32_t> starts;

  bool known() const { return !starts.empty(); }
  int64_t rows() const { return static_cast<int64_t>(lengths.size()); }
  int64_t length(int64_t row) const { return lengths[static_cast<size_t>(row)]; }
  int64_t start(int64_t row) const { return starts[static_cast<size_t>(row)]; }
  /// Number of new tokens of a row; 0 for an unused row.
  int64_t count(int64_t row) const { return length(row) == 0 ? 0 : start(row + 1) - start(row); }
};
/// The host's lengths and starts. Throws an Error if they contradict each other, the tables or `tokens`.
HostRows host_rows(const char* op, const PagedCache& cache, const PagedRows& rows, int64_t tokens);

}  // namespace lamina::ops
