#include "lamina/ops/attention/paged/paged_step.h"

#include "ops/linear_oracle.h"
#include "ops/normed_stream.h"
#include "ops/paged_oracle.h"
#include "ops/rotary_oracle.h"

namespace lamina::testing {
namespace {

using Kind = ops::AttentionPattern::Kind;
using ops::RotaryPairing;

/// Types for rounding in the oracle: rotated values round to the type under test, stored ones to the cache type.
struct PagedTypes {
  DType type = DType::f64;
  DType cache = DType::f64;

  template <class S>
  static S rounded(const S& value, DType to) {
    if (to != DType::bf16 && to != DType::f16) return value;
    return static_cast<S>(round_to(static_cast<double>(value), to));
  }
};

struct PagedStepParams {
  PagedLayout layout;
  int64_t heads, kv_heads, d;
  int64_t rotary_dim = 0;  ///< −1: no rotation
  RotaryPairing pairing = RotaryPairing::half_split;
  bool per_element = false;
  ops::AttentionOptions options = {};
  bool alibi = false;
  bool sinks = false;

  int64_t turned() const { return rotary_dim == 0 ? d : std::max<int64_t>(rotary_dim, 0); }
  /// Position of a row's token: shifted, so that positions and cache indices differ.
  int64_t position(int64_t row) const { return std::max<int64_t>(layout.length(row) + 2, 0); }
  AttentionParams attention() const { return {1, 1, 1, heads, kv_heads, d, d, options, alibi, 0, sinks}; }
};

PagedLayout step_rows(int64_t page_size, const std::vector<int64_t>& offsets, bool captured = true) {
  PagedLayout layout{page_size, {}, captured};
  for (const int64_t offset : offsets)
    layout.rows.push_back(offset < 0 ? PagedLayout::Row{0, 0} : PagedLayout::Row{offset, 1});
  return layout;
}

std::vector<PagedStepParams> paged_step_sweep() {
  const auto interleaved = RotaryPairing::interleaved;
  const auto split = RotaryPairing::half_split;
  const ops::AttentionPattern window{.kind = Kind::window, .window = 20};
  const ops::AttentionPattern strided{.kind = Kind::strided, .window = 5, .stride = 9};
  PagedLayout freed = step_rows(16, {100, -1, 256});
  freed.window = 20;
  return {{step_rows(16, {8, 0, -1, 33}), 4, 2, 16},
          {step_rows(16, {0}), 1, 1, 2, -1},
          {step_rows(32, {255}, false), 12, 12, 64},
          {step_rows(32, {127, 128, 31, 32}), 8, 1, 64, 0, interleaved},
          {step_rows(16, {139, 33}), 16, 2, 64, 32},
          {step_rows(16, {70, 1}), 6, 2, 48, 16, interleaved, true},
          {step_rows(16, {70, 1}), 6, 2, 32, 16, split, true},
          {step_rows(64, {7, 139}), 4, 1, 128},
          {step_rows(16, {29}), 2, 2, 256, 0, interleaved, true},
          {step_rows(16, {19, 3}), 4, 2, 7, 6},
          {step_rows(16, {19, 3}), 4, 2, 40, 12},
          {step_rows(16, {500, -1, 60}), 20, 1, 64},
          {freed, 4, 2, 64, 0, split, false, {.pattern = window}, false, true},
          {step_rows(16, {90}), 4, 2, 16, -1, split, false, {.soft_cap = 3.0}, true},
          {step_rows(16, {270}), 5, 1, 16, 0, interleaved, false, {.scale = 2.0, .pattern = strided}, true, true},
          {step_rows(16, {}), 2, 1, 8}};
}

/// One row with more keys than one block per KV head handles. So many units (rows · KV heads) that blocks have fewer
/// warps: short rows, and one that is split.
std::vector<PagedStepParams> paged_step_gpu_sweep() {
  std::vector<int64_t> offsets;
  for (int64_t r = 0; r < 150; ++r) offsets.push_back(r % 13 == 7 ? -1 : r == 40 ? 1500 : r * 7 % 90);
  PagedLayout freed = step_rows(16, offsets);
  freed.window = 20;
  const ops::AttentionPattern window{.kind = Kind::window, .window = 20};
  return {{step_rows(32, {4000}), 32, 4, 64},
          {step_rows(16, {1999}), 8, 8, 128, 64, RotaryPairing::interleaved, true},
          {step_rows(32, {1567}), 5, 1, 40, -1, RotaryPairing::half_split, false, {}, false, true},
          {step_rows(32, offsets), 8, 2, 64},
          {step_rows(16, offsets), 4, 2, 96, 32, RotaryPairing::interleaved},
          {freed, 20, 2, 32, 0, RotaryPairing::half_split, true, {.pattern = window}, true, true}};
}

std::vector<Input> paged_step_inputs(const PagedStepParams& p, DType cache) {
  const bool bytes = cache == DType::u8;
  const Shape shape{p.layout.pages(), p.kv_heads, p.layout.page_size, p.d};
  Input pages{.shape = shape};
  if (bytes) pages = {.shape = shape, .low = 0, .high = 256, .dtype = DType::u8, .differentiable = false};
  if (cache == DType::bf16 || cache == DType::f16) pages.dtype = cache;
  const Input scales{.shape = {shape[0], shape[1], shape[2]}, .low = 0.002, .high = 0.02, .dtype = DType::f32};
  std::vector<double> positions;
  double most = 0;
  for (int64_t r = 0; r < p.layout.size(); ++r) {
    positions.push_back(static_cast<double>(p.position(r)));
    most = std::max(most, positions.back());
  }
  const Input table{.shape = {static_cast<int64_t>(most) + 1, p.per_element ? p.turned() : p.turned() / 2},
                    .dtype = DType::f32};
  const bool turns = p.rotary_dim >= 0;
  std::vector<Input> all{{.shape = {p.layout.size(), p.heads + 2 * p.kv_heads, p.d}},
                         pages,
                         pages,
                         bytes ? scales : absent(),
                         bytes ? scales : absent(),
                         turns ? table : absent(),
                         turns ? table : absent(),
                         turns ? integers({p.layout.size()}, positions) : absent(),
                         p.alibi ? Input{.shape = {p.heads}, .low = 0.01, .high = 0.5, .dtype = DType::f32} : absent(),
                         p.sinks ? Input{.shape = {p.heads}} : absent()};
  const std::vector<Input> rows = p.layout.inputs();
  all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

struct PagedStepCall {
  ops::PagedCache cache;
  ops::PagedRows rows;
  ops::StepRotation rotation;
  ops::AttentionExtras extras;

  PagedStepCall(const PagedStepParams& p, const Tensor* in) {
    const auto copied = [](const Tensor& tensor) { return tensor.defined() ? tensor.clone() : tensor; };
    cache = {copied(in[1]), copied(in[2]), {copied(in[3]), copied(in[4])}};
    rows = p.layout.make(in[10], in[11], in[12]);
    rotation = {in[5], in[6], p.pairing, std::max<int64_t>(p.rotary_dim, 0), in[7]};
    extras = {in[8], Tensor(), in[9], Tensor()};
  }
  void add_caches(std::vector<Tensor>& results) const {
    for (const Tensor& tensor : {cache.k, cache.v, cache.scales.k, cache.scales.v}) {
      if (tensor.defined()) results.push_back(tensor);
    }
  }
};

/// The expected y, pages and their scales.
template <class S>
Arrays<S> paged_step_oracle(const PagedStepParams& p, const Arrays<S>& in, const PagedTypes& types) {
  const PagedLayout& layout = p.layout;
  const bool bytes = types.cache == DType::u8;
  const int64_t all_heads = p.heads + 2 * p.kv_heads;
  const OracleTurn turn{p.pairing, p.rotary_dim < 0 ? 0 : p.turned(), p.per_element};
  const auto rotated = [&](int64_t r, int64_t head, int64_t c) -> S {
    const auto element = [&](int64_t i) { return in[0][(r * all_heads + head) * p.d + i]; };
    if (c >= turn.dim) return element(c);
    return PagedTypes::rounded(turn.of(in[5], in[6], p.position(r), c, element), types.type);
  };
  Array<S> k({layout.tokens(), p.kv_heads, p.d});
  Array<S> v({layout.tokens(), p.kv_heads, p.d});
  for (int64_t n = 0; n < layout.tokens() * p.kv_heads * p.d; ++n) {
    const int64_t r = n / p.d / p.kv_heads;
    const int64_t head = p.heads + n / p.d % p.kv_heads;
    k[n] = rotated(r, head, n % p.d);
    v[n] = in[0][(r * all_heads + head + p.kv_heads) * p.d + n % p.d];
  }
  Arrays<S> pages{in[1], in[2]};
  if (bytes) pages.insert(pages.end(), {in[3], in[4]});
  oracle_store(layout, k, p.kv_heads, p.d, types.cache, pages[0], bytes ? &pages[2] : nullptr);
  oracle_store(layout, v, p.kv_heads, p.d, types.cache, pages[1], bytes ? &pages[3] : nullptr);
  const std::vector<double> table = layout.tables();
  const OracleExtras<S> extras{in[8], in[8], in[9]};
  Array<S> y({layout.tokens(), p.heads, p.d});
  for (int64_t n = 0; n < layout.tokens() * p.heads; ++n) {
    const int64_t r = n / p.heads;
    const int64_t head = n % p.heads;
    const int64_t i = layout.length(r) - 1;
    const auto cached = [&](size_t part, int64_t j, int64_t c) -> S {
      const int64_t entry = layout.entry(table, r, j, p.kv_heads, head / (p.heads / p.kv_heads));
      const S value = pages[part][entry * p.d + c];
      return bytes ? (value - S(128)) * pages[2 + part][entry] : value;
    };
    std::vector<S> scores;
    std::vector<int64_t> keys;
    for (int64_t j = 0; j <= i; ++j) {
      if (!oracle_sees(p.options, i, j, i + 1)) continue;
      S dot = 0;
      for (int64_t c = 0; c < p.d; ++c) dot += rotated(r, head, c) * cached(0, j, c);
      keys.push_back(j);
      scores.push_back(oracle_score(p.attention(), extras, dot, head, i, j));
    }
    const S* sink = p.sinks ? &in[9].values[static_cast<size_t>(head)] : nullptr;
    const std::vector<S> weights = oracle_weights(scores, sink);
    for (size_t m = 0; m < keys.size(); ++m) {
      for (int64_t c = 0; c < p.d; ++c) y[n * p.d + c] += weights[m] * cached(1, keys[m], c);
    }
  }
  Arrays<S> results{y};
  results.insert(results.end(), pages.begin(), pages.end());
  return results;
}

template <DType kType, DType kCache>
struct PagedStepBase {
  static constexpr const char* name = "paged_attention_step";
  static constexpr bool kBackward = false;
  using Params = PagedStepParams;
  static std::vector<DType> dtypes() { return {kType}; }
  static std::vector<Params> sweep() { return paged_step_sweep(); }
  static std::vector<Params> gpu_sweep() { return paged_step_gpu_sweep(); }
  static std::vector<Params> bench() { return {}; }
  static std::string describe(const Params& p) {
    return str(describe_attention(p.attention()), " turned ", p.turned(), " ", p.layout.describe());
  }
  static std::vector<Input> inputs(const Params& p) { return paged_step_inputs(p, kCache); }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    const PagedStepCall call(p, in.data());
    std::vector<Tensor> results{
        ops::paged_attention_step(in[0], call.cache, call.rows, call.rotation, p.options, call.extras)};
    call.add_caches(results);
    return results;
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    return paged_step_oracle(p, in, {kType, kCache});
  }
};

struct PagedStepCase : PagedStepBase<DType::f64, DType::f64> {
  static std::vector<DType> dtypes() { return {DType::f32, DType::f64}; }
};
LAMINA_OP_CASE(PagedStepCase);

struct PagedStepInBf16 : PagedStepBase<DType::bf16, DType::bf16> {
  static constexpr const char* form = "in_bf16";
  static std::vector<Params> bench() {
    const auto rows = [](size_t count, int64_t offset) { return step_rows(32, std::vector<int64_t>(count, offset)); };
    return {{rows(1, 255), 32, 4, 64},   {rows(8, 511), 32, 4, 64},   {rows(32, 511), 32, 4, 64},
            {rows(256, 511), 32, 4, 64}, {rows(1, 29999), 32, 4, 64}, {rows(8, 29999), 32, 4, 64}};
  }
};
LAMINA_OP_CASE(PagedStepInBf16);

struct PagedStepInF16 : PagedStepBase<DType::f16, DType::f16> {
  static constexpr const char* form = "in_f16";
};
LAMINA_OP_CASE(PagedStepInF16);

struct PagedStepIntoBf16 : PagedStepBase<DType::f32, DType::bf16> {
  static constexpr const char* form = "into_bf16";
};
LAMINA_OP_CASE(PagedStepIntoBf16);

struct PagedStepInto8Bits : PagedStepBase<DType::f32, DType::u8> {
  static constexpr const char* form = "into_8_bits";
};
LAMINA_OP_CASE(PagedStepInto8Bits);

struct PagedSublayerParams {
  NormedStream stream;  ///< [rows, 1, width]; `bias` applies to both projections
  PagedStepParams step;

  int64_t heads_width() const { return step.heads * step.d; }
  int64_t projected() const { return heads_width() + 2 * step.kv_heads * step.d; }
};

/// Input order: first the residual stream's inputs, then both projections, then the step's inputs without qkv.
constexpr size_t kPagedProjections = 4;
constexpr size_t kPagedStepInputs = 8;

template <DType kCache>
struct PagedSublayerBase {
  static constexpr const char* name = "paged_attention_sublayer_step";
  static constexpr bool kBackward = false;
  using Params = PagedSublayerParams;

  static std::vector<Params> sweep() {
    const auto interleaved = RotaryPairing::interleaved;
    const ops::AttentionPattern window{.kind = Kind::window, .window = 20};
    return {{{{1, 1, 288}, 0, RowNorm::Kind::rms, true, true, false, 0.0, 0, 8}, {step_rows(32, {100}), 6, 6, 48}},
            {{{1, 1, 768}, 0, RowNorm::Kind::rms, true, true, false, 0.0, 0, 8}, {step_rows(32, {127}), 12, 12, 64}},
            {{{1, 1, 64}, 0, RowNorm::Kind::layer, true, true, true, 0.0, 0, 2},
             {step_rows(16, {1099}), 4, 2, 32, 0, interleaved}},
            {{{1, 1, 96}, 0, RowNorm::Kind::rms, false, true, true}, {step_rows(16, {650}), 8, 1, 16, 8}},
            {{{1, 1, 40}, 0, RowNorm::Kind::rms}, {step_rows(16, {8}), 6, 2, 24, 8, interleaved, true}},
            {{{1, 1, 64}, 0, RowNorm::Kind::rms}, {step_rows(64, {0}), 2, 1, 32, -1}},
            {{{1, 1, 64}, 0, RowNorm::Kind::rms},
             {step_rows(16, {90}), 2, 1, 16, 0, interleaved, false, {.pattern = window}}},
            {{{3, 1, 64}, 0, RowNorm::Kind::rms, true, true, true, 0.0, 0, 3}, {step_rows(16, {19, -1, 3}), 4, 2, 16}}};
  }
  /// Too wide for one launch: the QKV projection is a launch of its own.
  static std::vector<Params> gpu_sweep() {
    return {
        {{{1, 1, 1024}, 0, RowNorm::Kind::rms, true, true, false, 0.0, 0, 4}, {step_rows(32, {201}), 8, 1, 64}},
        {{{1, 1, 1024}, 0, RowNorm::Kind::rms}, {step_rows(16, {640}), 4, 1, 64, 0, RotaryPairing::half_split, true}},
        {{{1, 1, 1536}, 0, RowNorm::Kind::layer, true, true, true}, {step_rows(32, {39}), 12, 3, 128}}};
  }
  static std::vector<Params> bench() { return {}; }
  static std::vector<DType> dtypes() { return {DType::f32}; }
  static std::string describe(const Params& p) {
    return str(p.stream.describe(), " ", describe_attention(p.step.attention()), " ", p.step.layout.describe());
  }
  static std::vector<Input> inputs_of(const Params& p, std::optional<DType> weights) {
    const int64_t width = p.stream.shape[-1];
    std::vector<Input> all = p.stream.stream_inputs();
    all.push_back({.shape = {p.projected(), width}, .dtype = weights});
    all.push_back(p.stream.bias ? Input{.shape = {p.projected()}} : absent());
    all.push_back({.shape = {width, p.heads_width()}, .dtype = weights});
    all.push_back(p.stream.bias ? Input{.shape = {width}} : absent());
    const std::vector<Input> step = paged_step_inputs(p.step, kCache);
    all.insert(all.end(), step.begin() + 1, step.end());
    return all;
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    const PagedStepCall call(p.step, in.data() + kPagedStepInputs - 1);  // minus 1: the step's input qkv is missing
    const auto [h, parts] = ops::paged_attention_sublayer_step(
        in[0], in[1], p.stream.norm(in),
        {in[kPagedProjections], in[kPagedProjections + 1], in[kPagedProjections + 2], in[kPagedProjections + 3]},
        call.cache, call.rows, call.rotation, p.step.options, call.extras);
    std::vector<Tensor> results{h, ops::sum_of_parts(parts, in[0])};
    call.add_caches(results);
    return results;
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    const Array<S> h = p.stream.value(in);
    Arrays<S> step{
        linear_oracle(p.stream.normed(h, in), in[kPagedProjections], in[kPagedProjections + 1], ops::Activation::none)};
    step.insert(step.end(), in.begin() + kPagedStepInputs, in.end());
    Arrays<S> found = paged_step_oracle(p.step, step, {DType::f64, kCache});
    Array<S> y({p.step.layout.size(), 1, p.heads_width()});
    y.values = found[0].values;
    found[0] = linear_oracle(y, in[kPagedProjections + 2], in[kPagedProjections + 3], ops::Activation::none);
    found.insert(found.begin(), h);
    return found;
  }
};

struct PagedSublayerCase : PagedSublayerBase<DType::f64> {
  static std::vector<DType> dtypes() { return {DType::f32, DType::f64}; }
  static std::vector<Input> inputs(const Params& p) { return inputs_of(p, {}); }
};
LAMINA_OP_CASE(PagedSublayerCase);

struct PagedSublayerOfBf16 : PagedSublayerBase<DType::f32> {
  static constexpr const char* form = "of_bf16";
  static std::vector<Input> inputs(const Params& p) { return inputs_of(p, DType::bf16); }
};
LAMINA_OP_CASE(PagedSublayerOfBf16);

struct PagedSublayerInBf16 : PagedSublayerBase<DType::bf16> {
  static constexpr const char* form = "in_bf16";
  static std::vector<Input> inputs(const Params& p) { return inputs_of(p, DType::bf16); }
};
LAMINA_OP_CASE(PagedSublayerInBf16);

}  // namespace
}  // namespace lamina::testing
