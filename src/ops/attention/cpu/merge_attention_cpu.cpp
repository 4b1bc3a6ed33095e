// Merges attention over a block of keys (MergeAttention). Threads divide the queries.
#include <cmath>
#include <limits>

#include "lamina/base/threads.h"
#include "lamina/ops/attention/merge_attention_kernel.h"

namespace lamina::ops::cpu {
namespace {

template <class T, class A>
void merge(const MergeAttention& args) {
  const int64_t seq = args.y.dim(1);
  const int64_t heads = args.y.dim(2);
  const int64_t width = args.y.dim(3);
  const int64_t count = args.block_y.dim(1);
  A* y = args.y.data<A>();
  A* sums = args.log_sum_exp.data<A>();
  const T* block = args.block_y.data<T>();
  const A* row_max = args.row_max.data<A>();
  const A* row_inv_sum = args.row_inv_sum.data<A>();
  args.y.device().threads().ranges(args.y.dim(0) * count, 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t b = row / count;
      const int64_t i = row % count;
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t statistic = (b * heads + h) * count + i;
        const A inverse = args.saved_log_sum_exp ? A{1} : row_inv_sum[statistic];
        if (inverse == 0) continue;  // no key of the block is visible
        const A added = row_max[statistic] - std::log(inverse);
        A& sum = sums[(b * heads + h) * seq + args.first + i];
        const A larger = std::max(sum, added);
        const A total = larger + std::log(std::exp(sum - larger) + std::exp(added - larger));
        const A keep = std::exp(sum - total);
        const A take = std::exp(added - total);
        sum = total;
        A* to = y + ((b * seq + args.first + i) * heads + h) * width;
        const T* from = block + (row * heads + h) * width;
        for (int64_t d = 0; d < width; ++d) to[d] = to[d] * keep + static_cast<A>(from[d]) * take;
      }
    }
  });
}

}  // namespace

void merge_attention(const MergeAttention& args) {
  visit_floating(args.block_y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    merge<T, Accumulate<T>>(args);
  });
}

}  // namespace lamina::ops::cpu
