#include "lamina/ops/attention/paged/paged_attention_kernel.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/attention/attention_checks.h"
#include "lamina/ops/attention/attention_decode_kernel.h"
#include "lamina/ops/attention/attention_kernel.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

constexpr const char* kPagedOp = "paged_attention";

/// A call: its checked arguments, and the result that is being filled.
struct PagedCall {
  PagedDecode decode;
  Tensor fresh_k;  // [tokens, n_kv_heads, d_qk]
  Tensor fresh_v;  // [tokens, n_kv_heads, d_v]
  HostRows host;
  int64_t d_v = 0;

  int64_t offset(int64_t row) const { return host.length(row) - host.count(row); }
  bool decodes(int64_t row) const { return host.count(row) > 0 && host.count(row) <= kMostPagedQueries; }
  bool prefills(int64_t row) const { return host.count(row) > kMostPagedQueries && offset(row) == 0; }
  bool continues(int64_t row) const { return host.count(row) > kMostPagedQueries && offset(row) > 0; }

  /// The first key that the row's queries may see. Only a plain sliding window frees pages. Its mask and all biases
  /// depend on distances alone, so earlier keys can be left out.
  int64_t first_key(int64_t row) const {
    const AttentionPattern& pattern = decode.options.pattern;
    if (pattern.kind != AttentionPattern::Kind::window || pattern.global_tokens > 0) return 0;
    return std::max<int64_t>(offset(row) - pattern.window + 1, 0);
  }
};

void check_heads(const Tensor& q, const PagedCache& cache, int64_t d_v) {
  const int64_t n_kv_heads = cache.k.dim(1);
  LAMINA_CHECK(q.dim(2) == cache.k.dim(3), kPagedOp, ": q is ", q.shape(), ", cache.k ", cache.k.shape(),
               "; expected the same head width");
  LAMINA_CHECK(n_kv_heads > 0 ? q.dim(1) % n_kv_heads == 0 : q.dim(1) == 0, kPagedOp, ": q has ", q.dim(1),
               " heads, the cache has ", n_kv_heads, "; expected n_heads to be a multiple of n_kv_heads");
  LAMINA_CHECK(cache.v.defined() ? d_v == cache.v.dim(3) : d_v >= 0 && d_v <= cache.k.dim(3), kPagedOp, ": d_v is ",
               d_v,
               cache.v.defined() ? "; expected the width of cache.v, " : "; expected at most the width of cache.k, ",
               cache.v.defined() ? cache.v.dim(3) : cache.k.dim(3));
  LAMINA_CHECK((q.dtype() == DType::f64) == (cache.k.dtype() == DType::f64), kPagedOp, ": q is ", q.dtype(),
               ", the cache is ", cache.k.dtype(), "; expected both f64 or neither; convert with to(dtype)");
}

void check_fresh(const Tensor& q, const Tensor& fresh_k, const Tensor& fresh_v, const PagedCache& cache) {
  LAMINA_CHECK(fresh_k.defined(), kPagedOp, ": fresh_k is undefined; give the keys passed to paged_store()");
  check_dtype(kPagedOp, "fresh_k", fresh_k, q.dtype());
  check_shape(kPagedOp, "fresh_k", fresh_k, {q.dim(0), cache.k.dim(1), cache.k.dim(3)});
  LAMINA_CHECK(fresh_v.defined() == cache.v.defined(), kPagedOp, ": ", fresh_v.defined() ? "fresh_v" : "cache.v",
               " is given without ", fresh_v.defined() ? "cache.v" : "fresh_v",
               "; give both, or neither for a cache of latents");
  if (!fresh_v.defined()) return;
  check_dtype(kPagedOp, "fresh_v", fresh_v, q.dtype());
  check_shape(kPagedOp, "fresh_v", fresh_v, {q.dim(0), cache.k.dim(1), cache.v.dim(3)});
}

/// Checks that every page that a query of the row may see is held. Only the CPU can read the tables.
void check_visible_pages(const PagedCall& call) {
  const PagedRows& rows = call.decode.rows;
  const int64_t page_size = call.decode.cache.page_size();
  for (int64_t row = 0; row < call.host.rows(); ++row) {
    if (call.host.count(row) == 0 || call.prefills(row)) continue;
    for (int64_t p = call.first_key(row) / page_size; p * page_size < call.host.length(row); ++p) {
      const int32_t page = rows.tables.data<int32_t>()[row * rows.table_stride() + p];
      LAMINA_CHECK(page >= 0 && page < call.decode.cache.k.dim(0), kPagedOp, ": entry ", p,
                   " of the page table of row ", row, " is ", page,
                   ", but its tokens are visible; expected a page from 0 to ", call.decode.cache.k.dim(0) - 1,
                   "; keep the pages inside the attention window");
    }
  }
}

/// Runs attention() for tokens [first, first + count) with keys and values [1, keys, n_kv_heads, width], and writes the
/// result to y.
void attend(const PagedCall& call, int64_t first, int64_t count, const Tensor& k, const Tensor& v,
            const Tensor& document_starts) {
  const Tensor& q = call.decode.q;
  AttentionExtras extras = call.decode.extras;
  extras.document_starts = document_starts;
  AttentionForward args = checked_attention(kPagedOp, q.slice(0, first, count).reshape({1, count, q.dim(1), q.dim(2)}),
                                            k, v, call.decode.options, extras);
  args.y = call.decode.y.slice(0, first, count).reshape({1, count, q.dim(1), call.d_v});
  LAMINA_LAUNCH(q.device(), attention_work(args, false), attention_forward, args);
}

Tensor as_batch(const Tensor& fresh, int64_t first, int64_t count, int64_t width) {
  return fresh.slice(0, first, count).slice(2, 0, width).reshape({1, count, fresh.dim(1), width});
}

/// Rows [begin, end) whose tokens are all new. They are packed as documents into one call of attention().
void prefill(const PagedCall& call, int64_t begin, int64_t end) {
  const HostRows& host = call.host;
  const int64_t first = host.start(begin);
  const int64_t count = host.start(end) - first;
  Tensor documents;
  if (end - begin > 1) {
    std::vector<int32_t> starts;
    for (int64_t row = begin; row <= end; ++row) starts.push_back(static_cast<int32_t>(host.start(row) - first));
    documents = Tensor::from(starts, {end - begin + 1}, call.decode.q.device());
  }
  const Tensor& values = call.fresh_v.defined() ? call.fresh_v : call.fresh_k;
  attend(call, first, count, as_batch(call.fresh_k, first, count, call.fresh_k.dim(2)),
         as_batch(values, first, count, call.d_v), documents);
}

/// A row that has a cached prefix and many new tokens: gathers its keys and values, then runs attention().
void attend_to_gathered(const PagedCall& call, int64_t row) {
  const PagedDecode& decode = call.decode;
  const Tensor& q = decode.q;
  PagedGather args{decode.cache, decode.rows, row, call.first_key(row), {}, {}};
  const int64_t keys = call.host.length(row) - args.first;
  const int64_t n_kv_heads = decode.cache.k.dim(1);
  args.k = Tensor::empty({1, keys, n_kv_heads, q.dim(2)}, q.dtype(), q.device());
  if (decode.cache.v.defined()) args.v = Tensor::empty({1, keys, n_kv_heads, call.d_v}, q.dtype(), q.device());
  const int64_t bytes = args.k.nbytes() + (args.v.defined() ? args.v.nbytes() : 0);
  LAMINA_LAUNCH(q.device(), (Work{0, 2 * bytes}), paged_gather, args);
  attend(call, call.host.start(row), call.host.count(row), args.k,
         args.v.defined() ? args.v : args.k.slice(3, 0, call.d_v), Tensor());
}

/// Decoding on a CPU: adjacent rows with the same number of new tokens form a batch of attention_decode().
void decode_on_cpu(const PagedCall& call, int64_t begin, int64_t end) {
  const PagedDecode& decode = call.decode;
  const int64_t rows = end - begin;
  const int64_t count = call.host.count(begin);
  const Tensor& q = decode.q;
  const PagedCache& cache = decode.cache;
  AttentionDecode args;
  args.q = as_accumulation(q.slice(0, call.host.start(begin), rows * count), q.dtype())
               .reshape({rows, count, q.dim(1), q.dim(2)});
  args.k_cache = cache.k;
  args.v_cache = cache.v.defined() ? cache.v : cache.k;
  args.tables = decode.rows.tables.slice(0, begin, rows);
  args.lengths = decode.rows.lengths.slice(0, begin, rows).to(DType::i64).contiguous();
  args.options = decode.options;
  args.extras = decode.extras;
  if (cache.scales.k.defined()) args.scales = {cache.scales.k, cache.v.defined() ? cache.scales.v : cache.scales.k};
  args.y = Tensor::empty({rows, count, q.dim(1), call.d_v}, args.q.dtype(), q.device());
  cpu::attention_decode(args);
  Tensor to = decode.y.slice(0, call.host.start(begin), rows * count);
  to.copy_(args.y.reshape(to.shape()));
}

/// FLOPs and bytes of the rows that decode. During CUDA graph capture the tables count as full.
Work decode_work(const PagedCall& call) {
  const PagedDecode& decode = call.decode;
  const auto element = static_cast<double>(size_of(decode.cache.k.dtype()));
  const auto width = static_cast<double>(decode.q.dim(2) + call.d_v);
  const double stored = static_cast<double>(decode.q.dim(2) + (decode.cache.v.defined() ? call.d_v : 0)) * element;
  double pairs = 0;
  double keys = 0;
  if (call.host.known()) {
    for (int64_t row = 0; row < call.host.rows(); ++row) {
      if (!call.decodes(row)) continue;
      pairs += AttentionMask::pairs(decode.options, call.host.count(row), call.host.length(row));
      keys += static_cast<double>(call.host.length(row) - call.first_key(row));
    }
  } else {
    keys = pairs = static_cast<double>(decode.rows.rows() * decode.rows.capacity(decode.cache.page_size()));
  }
  return {whole(2 * pairs * static_cast<double>(decode.q.dim(1)) * width),
          whole(keys * static_cast<double>(decode.cache.k.dim(1)) * stored)};
}

void run_decode(const PagedCall& call) {
  const HostRows& host = call.host;
  const Device& device = call.decode.q.device();
  device.add_work(decode_work(call));
  if (device.kind() == DeviceKind::cuda) return LAMINA_LAUNCH_CUDA(paged_decode, call.decode);
  for (int64_t row = 0; row < host.rows();) {
    int64_t end = row + 1;
    if (call.decodes(row)) {
      while (end < host.rows() && host.count(end) == host.count(row)) ++end;
      decode_on_cpu(call, row, end);
    }
    row = end;
  }
}

void run(const PagedCall& call) {
  const HostRows& host = call.host;
  const DeviceKind kind = call.decode.q.device().kind();
  bool any = !host.known();
  for (int64_t row = 0; row < host.rows(); ++row) any = any || call.decodes(row);
  if (kind == DeviceKind::cpu) check_visible_pages(call);
  if (any && kind != DeviceKind::meta) run_decode(call);
  for (int64_t row = 0; row < host.rows();) {
    int64_t end = row + 1;
    if (call.prefills(row)) {
      while (end < host.rows() && call.prefills(end)) ++end;
      prefill(call, row, end);
    } else if (call.continues(row)) {
      attend_to_gathered(call, row);
    }
    row = end;
  }
}

}  // namespace

Tensor paged_attention(const Tensor& q, const Tensor& fresh_k, const Tensor& fresh_v, const PagedCache& cache,
                       const PagedRows& rows, int64_t d_v, const AttentionOptions& options,
                       const AttentionExtras& extras) {
  check_floating(kPagedOp, "q", q);
  LAMINA_CHECK(q.rank() == 3, kPagedOp, ": q is ", q.shape(), "; expected [tokens, n_heads, d_qk]");
  check_paged(kPagedOp, cache, rows, q.dim(0));
  check_heads(q, cache, d_v);
  check_fresh(q, fresh_k, fresh_v, cache);
  check_same_device(kPagedOp, {q, fresh_k, fresh_v, cache.k, extras.alibi_slopes, extras.t5_bias, extras.sinks});
  LAMINA_CHECK(!is_tracked({q, fresh_k, fresh_v}), kPagedOp,
               ": has no gradient; use attention(), or disable recording with NoGrad");
  const int64_t n_kv_heads = cache.k.dim(1);
  // Check the options with seq_q = 0 and seq_k = the capacity, because check_attention_options() rejects patterns with
  // more queries than keys.
  check_cached_attention(kPagedOp, options, extras,
                         {rows.rows(), 0, rows.capacity(cache.page_size()), q.dim(1), n_kv_heads,
                          n_kv_heads == 0 ? 0 : q.dim(1) / n_kv_heads, q.dim(2), d_v});
  // Initialize member by member: if an initializer of a nested aggregate throws, GCC destroys the members before it
  // twice.
  PagedCall call;
  call.host = host_rows(kPagedOp, cache, rows, q.dim(0));
  call.decode.q = q.detach().contiguous();
  call.decode.cache = cache;
  call.decode.rows = rows;
  call.decode.options = resolved(options, q.dim(2));
  call.decode.extras = prepared(extras, q.dtype());
  call.fresh_k = fresh_k.detach();
  if (fresh_v.defined()) call.fresh_v = fresh_v.detach();
  call.d_v = d_v;
  // Zero the rows of y that no kernel writes.
  int64_t written = 0;
  for (int64_t row = 0; row < call.host.rows(); ++row) written += call.host.count(row);
  const bool whole = call.host.known() ? written == q.dim(0) : q.device().kind() == DeviceKind::cuda;
  const Shape shape{q.dim(0), q.dim(1), d_v};
  call.decode.y = whole ? Tensor::empty(shape, q.dtype(), q.device()) : Tensor::zeros(shape, q.dtype(), q.device());
  if (call.decode.y.numel() > 0) run(call);
  return call.decode.y;
}

}  // namespace lamina::ops
