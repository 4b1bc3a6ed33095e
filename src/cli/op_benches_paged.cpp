// Benchmarks of the inference engine's operators: decoding steps over paged KV caches, and sampling of many rows.
#include "lamina/cli/op_bench.h"
#include "lamina/ops/attention/paged/paged_step.h"
#include "lamina/ops/sampling/sample_rows.h"

namespace lamina::cli {
namespace {

using Setting = OpBenchSetting;
using Tensors = std::vector<Tensor>;

constexpr int64_t kPageSize = 32;

struct StepSize {
  int64_t rows, context, n_heads, n_kv_heads, d;
  bool bytes = false;  ///< use an 8-bit cache
};

/// A paged cache. The pages of each row are spread over the whole cache.
ops::PagedCache paged_cache(const Setting& at, const StepSize& size) {
  const int64_t pages = size.rows * ((size.context + kPageSize - 1) / kPageSize);
  const Shape shape{pages, size.n_kv_heads, kPageSize, size.d};
  ops::PagedCache cache;
  if (!size.bytes) {
    cache.k = at.random(shape);
    cache.v = at.random(shape);
    return cache;
  }
  cache.k = Tensor::full(shape, 100, DType::u8, at.device);
  cache.v = Tensor::full(shape, 90, DType::u8, at.device);
  const Shape entries{pages, size.n_kv_heads, kPageSize};
  cache.scales = {Tensor::full(entries, 0.01, DType::f32, at.device),
                  Tensor::full(entries, 0.01, DType::f32, at.device)};
  return cache;
}

ops::PagedRows paged_rows(const Setting& at, const StepSize& size) {
  const int64_t width = (size.context + kPageSize - 1) / kPageSize;
  std::vector<int32_t> tables;
  std::vector<int32_t> starts{0};
  for (int64_t r = 0; r < size.rows; ++r) {
    for (int64_t p = 0; p < width; ++p) tables.push_back(static_cast<int32_t>(p * size.rows + r));
    starts.push_back(static_cast<int32_t>(r + 1));
  }
  const std::vector<int32_t> lengths(static_cast<size_t>(size.rows), static_cast<int32_t>(size.context));
  return {Tensor::from(tables, {size.rows, width}, at.device),
          Tensor::from(lengths, {size.rows}, at.device),
          Tensor::from(starts, {size.rows + 1}, at.device),
          {},
          {}};
}

OpCall step_call(const Setting& at, const StepSize& size) {
  const ops::PagedRows rows = paged_rows(at, size);
  std::vector caches(1, paged_cache(at, size));
  OpCall call{{at.random({size.rows, size.n_heads + 2 * size.n_kv_heads, size.d})}, {}};
  call.cycle = at.copies_beyond_caches(caches[0].k.nbytes() + caches[0].v.nbytes());
  while (std::ssize(caches) < call.cycle) caches.push_back(paged_cache(at, size));
  call.run = [rows, caches, turn = size_t{0}](const Tensors& t) mutable {
    return Tensors{ops::paged_attention_step(t[0], caches[turn++ % caches.size()], rows)};
  };
  return call;
}

OpCall sampling_call(const Setting& at, int64_t rows, int64_t vocab, double temperature, int64_t top_k, double top_p) {
  const auto each = [&](double value, DType dtype) { return Tensor::full({rows}, value, dtype, at.device); };
  const ops::RowSampling options{.temperature = each(temperature, DType::f32),
                                 .top_k = each(static_cast<double>(top_k), DType::i32),
                                 .top_p = each(top_p, DType::f32),
                                 .seed = each(1, DType::i64),
                                 .drawn = each(2, DType::i64)};
  const Tensor ids = each(0, DType::i64);
  const Tensor logprobs = Tensor::zeros({rows, 1}, DType::f32, at.device);
  return {{at.random({rows, vocab}, -8, 8)}, [=](const Tensors& t) {
            ops::sample_rows(t[0], options, 0, 0, ids, logprobs, {});
            return Tensors{ids};
          }};
}

}  // namespace

void add_paged_benches(const OpBenchSetting& setting, std::vector<OpBench>& list) {
  const std::vector<OpWay> forward{OpWay::forward};
  const int64_t far = setting.pick(30000, 4096, 64);
  const int64_t near = setting.pick(512, 512, 32);
  const int64_t heads = setting.pick(32, 8, 4);
  const int64_t kv_heads = setting.pick(4, 2, 2);
  const int64_t d = setting.pick(64, 64, 16);
  std::vector<StepSize> sizes{{1, near, heads, kv_heads, d},
                              {1, far, heads, kv_heads, d},
                              {8, far, heads, kv_heads, d},
                              {8, far, heads, kv_heads, d, true},
                              {32, near, heads, kv_heads, d}};
  if (setting.size == OpBenchSetting::Size::gpu) {
    sizes.push_back({256, near, heads, kv_heads, d});
    sizes.push_back({32, 4 * near, heads, 8, 128});
  }
  for (const StepSize& size : sizes) {
    list.push_back({str("paged attention step ", size.rows, "x", size.context, ", ", size.n_heads, "/", size.n_kv_heads,
                        " heads of ", size.d, size.bytes ? ", 8-bit cache" : ""),
                    forward, [size](const OpBenchSetting& at) { return step_call(at, size); }});
  }
  struct Choice {
    double temperature;
    int64_t top_k;
    double top_p;
  };
  const int64_t rows = setting.pick(256, 16, 2);
  const int64_t vocab = setting.pick(128256, 32000, 64);
  for (const Choice& c : {Choice{0, 0, 1}, Choice{0.8, 0, 1}, Choice{0.8, 50, 0.95}}) {
    list.push_back({str("sample rows ", rows, "x", vocab, ", temperature ", c.temperature,
                        c.top_k > 0 ? str(", top_k ", c.top_k, ", top_p ", c.top_p) : ""),
                    forward, [=](const OpBenchSetting& at) {
                      return sampling_call(at, rows, vocab, c.temperature, c.top_k, c.top_p);
                    }});
  }
}

}  // namespace lamina::cli
