#include "lamina/ops/attention/paged/paged_cache_kernel.h"

#include <bit>

#include "lamina/ops/attention/cache_store_kernel.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

constexpr const char* kPagedStoreOp = "paged_store";
constexpr int64_t kLeastPage = 16;

void check_pages(const char* op, const char* name, const Tensor& pages, const Tensor& scales) {
  LAMINA_CHECK(pages.rank() == 4, op, ": cache.", name, " is ", pages.shape(),
               "; expected [pages, n_kv_heads, page_size, width]");
  LAMINA_CHECK(pages.is_contiguous(), op, ": cache.", name, " is not contiguous; pass a whole tensor of pages");
  check_cache_scales(op, name, pages, scales);
  LAMINA_CHECK(!scales.defined() || scales.is_contiguous(), op, ": cache.scales.", name,
               " is not contiguous; pass a whole tensor");
}

void check_row_tensor(const char* op, const char* name, const Tensor& tensor, const Shape& shape) {
  LAMINA_CHECK(tensor.defined(), op, ": rows.", name, " is undefined; give i32 ", shape);
  check_dtype(op, name, tensor, DType::i32);
  check_shape(op, name, tensor, shape);
  LAMINA_CHECK(tensor.numel() == 0 || tensor.dim(-1) == 1 || tensor.strides()[tensor.rank() - 1] == 1, op, ": rows.",
               name, " has gaps between its elements; kernels read it in place; pass it contiguous");
}

void check_host_row(const char* op, const HostRows& host, int64_t row, int64_t capacity) {
  const int64_t length = host.length(row);
  const int64_t count = host.start(row + 1) - host.start(row);
  LAMINA_CHECK(count >= 0, op, ": rows.starts falls from ", host.start(row), " to ", host.start(row + 1), " at row ",
               row, "; expected an ascending list");
  LAMINA_CHECK(length == 0 || (length >= count && length <= capacity), op, ": row ", row, " has length ", length,
               " and ", count, " new tokens; expected a length from ", count, " to ", capacity,
               ", the tokens that its page table holds; count the new tokens and widen rows.tables");
}

/// Checks that the pages for the new tokens are held. Attention checks the pages that it reads.
void check_new_pages(const PagedStore& args, const HostRows& host) {
  const int64_t page_size = args.cache.page_size();
  const auto* tables = args.rows.tables.data<int32_t>();
  const int64_t width = args.rows.table_stride();
  for (int64_t row = 0; row < host.rows(); ++row) {
    if (host.count(row) == 0) continue;
    for (int64_t p = (host.length(row) - host.count(row)) / page_size; p * page_size < host.length(row); ++p) {
      const int32_t page = tables[row * width + p];
      LAMINA_CHECK(page >= 0 && page < args.cache.k.dim(0), kPagedStoreOp, ": row ", row, " stores tokens to entry ", p,
                   " of its page table, which is ", page, "; expected a page from 0 to ", args.cache.k.dim(0) - 1,
                   "; allocate the page first");
    }
  }
}

/// Stores with one cache_store() for every page that gets tokens.
void store_on_cpu(const PagedStore& args, const HostRows& host) {
  check_new_pages(args, host);
  const PagedCache& cache = args.cache;
  const int64_t page_size = cache.page_size();
  const auto page_of = [](const Tensor& pages, int64_t page) {
    return pages.defined() ? pages.slice(0, page, 1) : Tensor();
  };
  for (int64_t row = 0; row < host.rows(); ++row) {
    const int64_t first = host.length(row) - host.count(row);
    for (int64_t at = first; at < host.length(row);) {
      const int64_t slot = at % page_size;
      const int64_t count = std::min(page_size - slot, host.length(row) - at);
      const int64_t page = args.rows.tables.data<int32_t>()[row * args.rows.table_stride() + at / page_size];
      const auto tokens_of = [&](const Tensor& fresh) {
        if (!fresh.defined()) return Tensor();
        return fresh.slice(0, host.start(row) + at - first, count).reshape({1, count, fresh.dim(1), fresh.dim(2)});
      };
      cpu::cache_store({page_of(cache.k, page),
                        page_of(cache.v, page),
                        tokens_of(args.k),
                        tokens_of(args.v),
                        Tensor::full({1}, static_cast<double>(slot), DType::i64, args.k.device()),
                        {page_of(cache.scales.k, page), page_of(cache.scales.v, page)}});
      at += count;
    }
  }
}

void check_fresh(const char* name, const Tensor& fresh, const Tensor& pages) {
  check_floating(kPagedStoreOp, name, fresh);
  LAMINA_CHECK(fresh.rank() == 3, kPagedStoreOp, ": ", name, " is ", fresh.shape(),
               "; expected [tokens, n_kv_heads, width]");
  check_shape(kPagedStoreOp, name, fresh, {fresh.dim(0), pages.dim(1), pages.dim(3)});
}

Tensor with_dense_heads(const Tensor& fresh) {
  if (!fresh.defined()) return fresh;
  return fresh.dim(2) <= 1 || fresh.strides()[2] == 1 ? fresh.detach() : fresh.detach().contiguous();
}

}  // namespace

void check_paged(const char* op, const PagedCache& cache, const PagedRows& rows, int64_t tokens) {
  LAMINA_CHECK(cache.k.defined(), op, ": cache.k is undefined; give [pages, n_kv_heads, page_size, d_qk]");
  check_pages(op, "k", cache.k, cache.scales.k);
  const int64_t page_size = cache.page_size();
  LAMINA_CHECK(page_size >= kLeastPage && std::has_single_bit(static_cast<uint64_t>(page_size)), op, ": a page has ",
               page_size, " tokens; expected a power of two, at least ", kLeastPage);
  if (cache.v.defined()) {
    check_dtype(op, "cache.v", cache.v, cache.k.dtype());
    check_pages(op, "v", cache.v, cache.scales.v);
    check_shape(op, "cache.v", cache.v, {cache.k.dim(0), cache.k.dim(1), page_size, cache.v.dim(3)});
  } else {
    LAMINA_CHECK(!cache.scales.v.defined(), op, ": cache.scales.v is given without cache.v; leave it undefined");
  }
  LAMINA_CHECK(rows.tables.defined() && rows.tables.rank() == 2, op, ": rows.tables is ",
               rows.tables.defined() ? str(rows.tables.shape()) : "undefined", "; expected i32 [rows, width]");
  check_row_tensor(op, "tables", rows.tables, rows.tables.shape());
  check_row_tensor(op, "lengths", rows.lengths, {rows.rows()});
  check_row_tensor(op, "starts", rows.starts, {rows.rows() + 1});
  check_same_device(op, {cache.k, cache.v, cache.scales.k, cache.scales.v, rows.tables, rows.lengths, rows.starts});
  LAMINA_CHECK(rows.tables.dim(1) <= (int64_t{1} << 30) / page_size, op, ": page tables of ", rows.tables.dim(1),
               " entries; expected at most 2^30 tokens per row");
  LAMINA_CHECK(rows.host_lengths.empty() == rows.host_starts.empty() || rows.rows() == 0, op,
               ": only one of rows.host_lengths and rows.host_starts is given; give both or neither");
  if (!rows.host_starts.empty() || cache.k.device().kind() != DeviceKind::cuda) return;
  LAMINA_CHECK(tokens == rows.rows(), op, ": ", tokens, " tokens of ", rows.rows(),
               " rows without host copies of lengths and starts; expected one token per row; fill rows.host_lengths "
               "and rows.host_starts");
}

HostRows host_rows(const char* op, const PagedCache& cache, const PagedRows& rows, int64_t tokens) {
  HostRows host{rows.host_lengths, rows.host_starts};
  if (rows.tables.device().kind() == DeviceKind::cpu) {
    host = {rows.lengths.to_vector<int32_t>(), rows.starts.to_vector<int32_t>()};
  }
  if (!host.known()) return {};
  LAMINA_CHECK(host.rows() == rows.rows() && static_cast<int64_t>(host.starts.size()) == rows.rows() + 1, op, ": ",
               host.rows(), " host lengths and ", host.starts.size(), " host starts of ", rows.rows(),
               " rows; expected a length per row and one start more");
  LAMINA_CHECK(host.starts.front() >= 0 && host.starts.back() <= tokens, op, ": rows.starts runs from ",
               host.starts.front(), " to ", host.starts.back(), "; expected 0 to at most the ", tokens, " tokens");
  for (int64_t row = 0; row < rows.rows(); ++row) check_host_row(op, host, row, rows.capacity(cache.page_size()));
  return host;
}

void paged_store(const PagedCache& cache, const PagedRows& rows, const Tensor& k, const Tensor& v) {
  LAMINA_CHECK(k.defined(), kPagedStoreOp, ": k is undefined; give [tokens, n_kv_heads, d_qk]");
  LAMINA_CHECK(k.rank() == 3, kPagedStoreOp, ": k is ", k.shape(), "; expected [tokens, n_kv_heads, d_qk]");
  check_paged(kPagedStoreOp, cache, rows, k.dim(0));
  check_fresh("k", k, cache.k);
  LAMINA_CHECK(v.defined() == cache.v.defined(), kPagedStoreOp, ": ", v.defined() ? "v" : "cache.v",
               " is given without ", v.defined() ? "cache.v" : "v", "; give both, or neither for a cache of latents");
  if (v.defined()) {
    check_fresh("v", v, cache.v);
    check_dtype(kPagedStoreOp, "v", v, k.dtype());
    check_shape(kPagedStoreOp, "v", v, {k.dim(0), k.dim(1), v.dim(2)});
  }
  check_same_device(kPagedStoreOp, {cache.k, k, v});
  const HostRows host = host_rows(kPagedStoreOp, cache, rows, k.dim(0));
  const Tensor dense_k = with_dense_heads(k);
  const Tensor dense_v = with_dense_heads(v);
  const PagedStore args{cache, rows, dense_k, dense_v};
  for (const Tensor& written : {cache.k, cache.v, cache.scales.k, cache.scales.v}) {
    if (written.defined()) written.mark_written(kPagedStoreOp);
  }
  const int64_t count = k.numel() + (v.defined() ? v.numel() : 0);
  k.device().add_work({0, count * static_cast<int64_t>(size_of(k.dtype()) + size_of(cache.k.dtype()))});
  if (k.device().kind() == DeviceKind::cpu) store_on_cpu(args, host);
  if (k.device().kind() == DeviceKind::cuda) LAMINA_LAUNCH_CUDA(paged_store, args);
}

}  // namespace lamina::ops
