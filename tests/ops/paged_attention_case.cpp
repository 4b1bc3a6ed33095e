#include "lamina/ops/attention/paged/paged_attention.h"

#include "ops/paged_oracle.h"

namespace lamina::testing {
namespace {

using Kind = ops::AttentionPattern::Kind;

struct PagedAttentionParams {
  PagedLayout layout;
  int64_t heads, kv_heads, d_qk, d_v;
  bool latent = false;  ///< no values: they are the first columns of the keys
  ops::AttentionOptions options = {};
  bool alibi = false;
  int64_t t5_buckets = 0;
  bool sinks = false;

  AttentionParams attention() const { return {1, 1, 1, heads, kv_heads, d_qk, d_v, options, alibi, t5_buckets, sinks}; }
};

PagedLayout freed(PagedLayout layout, int64_t window) {
  layout.window = window;
  return layout;
}

std::vector<PagedAttentionParams> paged_sweep() {
  const ops::AttentionPattern window{.kind = Kind::window, .window = 20};
  const ops::AttentionPattern global{.kind = Kind::window, .window = 10, .global_tokens = 3};
  const ops::AttentionPattern blocks{.kind = Kind::blocks, .block = 16, .random_blocks = 2, .seed = 3};
  const ops::AttentionPattern strided{.kind = Kind::strided, .window = 5, .stride = 9};
  const ops::AttentionOptions all{.causal = false, .scale = 2.0, .pattern = window, .soft_cap = 3.0};
  const PagedLayout decode{16, {{0, 1}, {15, 1}, {16, 1}, {99, 1}, {40, 3}, {0, 0}, {7, 16}}};
  const PagedLayout mixed{16, {{20, 1}, {0, 17}, {0, 40}, {33, 30}, {50, 16}, {0, 0}, {64, 17}}};
  const PagedLayout step{32, {{99, 1}, {0, 0}, {300, 1}, {31, 1}}, true};
  const PagedLayout one{16, {{1, 1}}};
  const PagedLayout many{64, {{1500, 1}, {0, 20}, {700, 2}}};
  return {
      {decode, 4, 2, 5, 3},
      {one, 1, 1, 1, 1},
      {decode, 8, 1, 64, 64},
      {decode, 4, 4, 32, 16},
      {decode, 6, 2, 128, 128},
      {decode, 20, 1, 64, 64},  // more query heads per KV head than two tensor-core tiles hold
      {step, 8, 2, 64, 64},
      {step, 3, 3, 72, 128},
      {step, 2, 1, 256, 256},
      {step, 4, 2, 7, 9},
      {mixed, 4, 2, 16, 24},
      {mixed, 4, 1, 64, 64},
      {mixed, 2, 2, 9, 5},
      {many, 2, 1, 16, 16},
      {many, 16, 2, 64, 64},
      {mixed, 4, 1, 40, 32, true},
      {step, 6, 1, 48, 40, true},
      {{16, {{70, 1}, {0, 0}, {5, 1}}}, 4, 1, 576, 512, true},
      {{16, {{70, 2}, {0, 18}, {20, 17}}, false, 0, 3}, 4, 2, 8, 8},
      {freed({16, {{100, 1}, {90, 25}, {0, 50}, {200, 3}}}, 20), 4, 2, 16, 16, false, {.pattern = window}},
      {freed({32, {{100, 1}, {0, 0}, {256, 1}}, true}, 20), 4, 2, 64, 64, false, {.pattern = window}, false, 0, true},
      {mixed, 4, 2, 8, 8, false, {.pattern = global}},
      {mixed, 4, 2, 8, 8, false, {.pattern = blocks}},
      {mixed, 2, 1, 16, 16, false, {.pattern = strided}},
      {mixed, 2, 1, 16, 16, false, {.causal = false}},
      {mixed, 4, 2, 16, 16, false, {}, true},
      {step, 4, 2, 64, 64, false, {}, true},
      {mixed, 2, 2, 8, 8, false, {.t5_max_distance = 64}, false, 16},
      {mixed, 4, 2, 16, 16, false, {.soft_cap = 3.0}, false, 0, true},
      {decode, 4, 2, 64, 64, false, {.soft_cap = 3.0}, true, 0, true},
      {freed(mixed, 20), 6, 2, 9, 5, false, all, true, 8, true},
      {{16, {}}, 2, 1, 8, 8},
      {{16, {{0, 0}, {0, 0}}, true}, 2, 1, 64, 64},
      {decode, 2, 1, 8, 0, true}};
}

std::vector<PagedAttentionParams> paged_gpu_sweep() {
  const ops::AttentionPattern wide{.kind = Kind::window, .window = 700};
  PagedLayout ragged{16, {}, true};
  for (int64_t r = 0; r < 300; ++r) ragged.rows.push_back({r % 7 == 0 ? r * 3 : r % 50, 1});
  PagedLayout speculative{32, {}};
  for (int64_t r = 0; r < 40; ++r) speculative.rows.push_back({r * 9, 1 + r % 16});
  return {{ragged, 4, 2, 64, 64},
          {ragged, 8, 1, 128, 128},
          {speculative, 8, 2, 64, 64},
          {{32, {{5000, 1}}, true}, 8, 1, 64, 64},
          {{16, {{2000, 1}}, true}, 12, 3, 128, 128, false, {}, false, 0, true},
          {{64, {{3001, 1}}, true}, 6, 1, 48, 40, true},
          {freed({32, {{3000, 1}}, true}, 700), 4, 4, 64, 64, false, {.pattern = wide}},
          {{16, {{2000, 1}, {17, 1}}, true}, 4, 2, 128, 128},
          {{128, {{1100, 4}, {3, 1}}}, 4, 1, 96, 96}};
}

std::vector<PagedAttentionParams> paged_bench() {
  const auto rows = [](size_t count, int64_t offset) {
    return PagedLayout{32, std::vector<PagedLayout::Row>(count, {offset, 1}), true};
  };
  return {{rows(1, 255), 32, 4, 64, 64},          {rows(1, 29999), 32, 4, 64, 64}, {rows(8, 29999), 32, 4, 64, 64},
          {rows(32, 511), 32, 4, 64, 64},         {rows(256, 511), 32, 4, 64, 64}, {rows(32, 2047), 32, 8, 128, 128},
          {rows(8, 4095), 128, 1, 576, 512, true}};
}

std::vector<Input> paged_inputs(const PagedAttentionParams& p, std::optional<DType> cache) {
  const int64_t tokens = p.layout.tokens();
  const bool bytes = cache == DType::u8;
  const auto pages = [&](int64_t d) {
    const Shape shape{p.layout.pages(), p.kv_heads, p.layout.page_size, d};
    return bytes ? Input{.shape = shape, .low = 0, .high = 256, .dtype = DType::u8, .differentiable = false}
                 : Input{.shape = shape, .dtype = cache};
  };
  const Input scales{.shape = {p.layout.pages(), p.kv_heads, p.layout.page_size},
                     .low = 0.002,
                     .high = 0.02,
                     .dtype = DType::f32,
                     .differentiable = false};
  std::vector<Input> all{{.shape = {tokens, p.heads, p.d_qk}},
                         {.shape = {tokens, p.kv_heads, p.d_qk}},
                         p.latent ? absent() : Input{.shape = {tokens, p.kv_heads, p.d_v}},
                         pages(p.d_qk),
                         p.latent ? absent() : pages(p.d_v),
                         bytes ? scales : absent(),
                         bytes && !p.latent ? scales : absent(),
                         p.alibi ? Input{.shape = {p.heads}, .low = 0.01, .high = 0.5, .dtype = DType::f32} : absent(),
                         p.t5_buckets > 0 ? Input{.shape = {p.t5_buckets, p.heads}} : absent(),
                         p.sinks ? Input{.shape = {p.heads}} : absent()};
  const std::vector<Input> rows = p.layout.inputs();
  all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

/// 8-bit caches are read as they are: a code that rounds differently in f32 and f64 would exceed the tolerance.
std::vector<Tensor> run_paged(const PagedAttentionParams& p, const std::vector<Tensor>& in) {
  const auto copied = [](const Tensor& tensor) { return tensor.defined() ? tensor.clone() : tensor; };
  const ops::PagedCache cache{copied(in[3]), copied(in[4]), {copied(in[5]), copied(in[6])}};
  const ops::PagedRows rows = p.layout.make(in[10], in[11], in[12]);
  if (!cache.scales.k.defined()) ops::paged_store(cache, rows, in[1], in[2]);
  return {ops::paged_attention(in[0], in[1], in[2], cache, rows, p.d_v, p.options, {in[7], in[8], in[9], Tensor()})};
}

template <class S>
Arrays<S> paged_oracle(const PagedAttentionParams& p, const Arrays<S>& in, DType cache) {
  const PagedLayout& layout = p.layout;
  const bool bytes = cache == DType::u8;
  Arrays<S> pages{in[3], p.latent ? in[3] : in[4]};
  if (!bytes) {
    oracle_store(layout, in[1], p.kv_heads, p.d_qk, cache, pages[0], static_cast<Array<S>*>(nullptr));
    if (!p.latent) oracle_store(layout, in[2], p.kv_heads, p.d_v, cache, pages[1], static_cast<Array<S>*>(nullptr));
    if (p.latent) pages[1] = pages[0];
  }
  const std::vector<double> table = layout.tables();
  const OracleExtras<S> extras{in[7], in[8], in[9]};
  Array<S> y({layout.tokens(), p.heads, p.d_v});
  for (int64_t r = 0; r < layout.size(); ++r) {
    const int64_t count = layout.at(r).count;
    const int64_t first = layout.start(r);
    const bool fresh = layout.at(r).offset == 0 && count > ops::kMostPagedQueries;  // attends to exact keys and values
    for (int64_t n = 0; n < count * p.heads; ++n) {
      const int64_t head = n % p.heads;
      const int64_t kv_head = head / (p.heads / p.kv_heads);
      const int64_t token = first + n / p.heads;
      const int64_t i = layout.at(r).offset + n / p.heads;
      const auto cached = [&](size_t part, int64_t j, int64_t c) -> S {
        const int64_t width = part == 0 || p.latent ? p.d_qk : p.d_v;
        if (fresh) {
          return in[p.latent ? 1 : 1 + part][((first + j) * p.kv_heads + kv_head) * width + c];
        }
        const int64_t entry = layout.entry(table, r, j, p.kv_heads, kv_head);
        const S value = pages[part][entry * width + c];
        return bytes ? (value - S(128)) * in[p.latent ? 5 : 5 + part][entry] : value;
      };
      std::vector<S> scores;
      std::vector<int64_t> keys;
      for (int64_t j = 0; j < layout.length(r); ++j) {
        if (!oracle_sees(p.options, i, j, layout.length(r))) continue;
        S dot = 0;
        for (int64_t c = 0; c < p.d_qk; ++c) dot += in[0][(token * p.heads + head) * p.d_qk + c] * cached(0, j, c);
        keys.push_back(j);
        scores.push_back(oracle_score(p.attention(), extras, dot, head, i, j));
      }
      const S* sink = p.sinks ? &in[9].values[static_cast<size_t>(head)] : nullptr;
      const std::vector<S> weights = oracle_weights(scores, sink);
      for (size_t k = 0; k < keys.size(); ++k) {
        for (int64_t c = 0; c < p.d_v; ++c) {
          y[(token * p.heads + head) * p.d_v + c] += weights[k] * cached(1, keys[k], c);
        }
      }
    }
  }
  return {y};
}

/// kCache: the type of the cache if it differs from the type under test (f64: the same).
template <DType kCache>
struct PagedAttentionBase {
  static constexpr const char* name = "paged_attention";
  static constexpr bool kBackward = false;
  using Params = PagedAttentionParams;
  static std::vector<Params> sweep() { return paged_sweep(); }
  static std::vector<Params> gpu_sweep() { return paged_gpu_sweep(); }
  static std::vector<Params> bench() { return paged_bench(); }
  static std::string describe(const Params& p) {
    return str(describe_attention(p.attention()), p.latent ? " latent " : " ", p.layout.describe());
  }
  static std::vector<Input> inputs(const Params& p) {
    return paged_inputs(p, kCache == DType::f64 ? std::optional<DType>() : kCache);
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) { return run_paged(p, in); }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    return paged_oracle(p, in, kCache);
  }
};

struct PagedAttentionCase : PagedAttentionBase<DType::f64> {};
LAMINA_OP_CASE(PagedAttentionCase);

struct PagedAttentionOverBf16 : PagedAttentionBase<DType::bf16> {
  static constexpr const char* form = "over_bf16";
  static std::vector<DType> dtypes() { return {DType::f32, DType::f16}; }
  static std::vector<Params> bench() { return {}; }
};
LAMINA_OP_CASE(PagedAttentionOverBf16);

struct PagedAttentionOverF16 : PagedAttentionBase<DType::f16> {
  static constexpr const char* form = "over_f16";
  static std::vector<DType> dtypes() { return {DType::f32}; }
  static std::vector<Params> bench() { return {}; }
};
LAMINA_OP_CASE(PagedAttentionOverF16);

struct PagedAttentionOver8Bits : PagedAttentionBase<DType::u8> {
  static constexpr const char* form = "over_8_bits";
  static std::vector<DType> dtypes() { return {DType::f32, DType::bf16, DType::f16}; }
};
LAMINA_OP_CASE(PagedAttentionOver8Bits);

}  // namespace
}  // namespace lamina::testing
