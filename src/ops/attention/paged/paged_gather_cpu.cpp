#include "lamina/ops/attention/paged/paged_attention_kernel.h"

namespace lamina::ops::cpu {
namespace {

/// Copies entries [slot, slot + to.dim(2)) of a page to `to` [1, n_kv_heads, keys, width].
void copy_page(const Tensor& pages, const Tensor& scales, int64_t page, int64_t slot, Tensor to) {
  const Tensor from = pages.slice(0, page, 1).slice(2, slot, to.dim(2));
  to.copy_(scales.defined() ? dequantize(from, scales.slice(0, page, 1).slice(2, slot, to.dim(2)), to.dtype())
                            : from.to(to.dtype()));
}

}  // namespace

void paged_gather(const PagedGather& args) {
  const int64_t page_size = args.cache.page_size();
  const int32_t* table = args.rows.tables.data<int32_t>() + args.row * args.rows.table_stride();
  for (int64_t done = 0; done < args.k.dim(1);) {
    const int64_t at = args.first + done;
    const int64_t slot = at % page_size;
    const int64_t count = std::min(page_size - slot, args.k.dim(1) - done);
    const auto part = [&](const Tensor& to) { return to.slice(1, done, count).transpose(1, 2); };
    copy_page(args.cache.k, args.cache.scales.k, table[at / page_size], slot, part(args.k));
    if (args.v.defined()) copy_page(args.cache.v, args.cache.scales.v, table[at / page_size], slot, part(args.v));
    done += count;
  }
}

}  // namespace lamina::ops::cpu
