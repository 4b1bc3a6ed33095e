#include "lamina/ops/attention/attention_sublayer_step.h"

#include <algorithm>
#include <cmath>

#include "ops/attention_oracle.h"
#include "ops/linear_oracle.h"
#include "ops/normed_stream.h"
#include "support/op_run.h"

namespace lamina::testing {
namespace {

using Kind = ops::AttentionPattern::Kind;
using ops::RotaryPairing;

/// Types for rounding in the oracle: rotated values round to the type under test, stored ones to the cache type.
struct StepTypes {
  DType type = DType::f64;
  DType cache = DType::f64;
};

struct AttentionStepParams {
  int64_t batch, heads, kv_heads, capacity, d;
  std::vector<double> places;
  int64_t rotary_dim = 0;  ///< −1: no rotation
  RotaryPairing pairing = RotaryPairing::half_split;
  bool per_element = false;
  std::vector<double> positions = {};  ///< empty: equal to places
  ops::AttentionOptions options = {};
  bool alibi = false;
  int64_t t5_buckets = 0;
  bool sinks = false;

  int64_t turned() const { return rotary_dim == 0 ? d : std::max<int64_t>(rotary_dim, 0); }
  AttentionParams attention() const {
    return {batch, 1, capacity, heads, kv_heads, d, d, options, alibi, t5_buckets, sinks};
  }
};

std::vector<AttentionStepParams> step_sweep() {
  const auto split = RotaryPairing::half_split;
  const auto interleaved = RotaryPairing::interleaved;
  const ops::AttentionPattern window{.kind = Kind::window, .window = 70};
  const ops::AttentionPattern global{.kind = Kind::window, .window = 40, .global_tokens = 3};
  const ops::AttentionPattern strided{.kind = Kind::strided, .window = 5, .stride = 9};
  return {{2, 4, 2, 9, 16, {8, 0}},
          {1, 1, 1, 1, 2, {0}},
          {1, 1, 1, 1, 8, {0}, -1},
          {1, 6, 6, 300, 48, {255}},  // two KV chunks
          {1, 12, 12, 260, 64, {127}},
          {1, 3, 3, 260, 64, {128}, 0, interleaved},
          {3, 4, 1, 1100, 32, {1099, 0, 640}},  // several KV chunks, some empty
          {2, 16, 2, 140, 64, {139, 33}, 32},   // eight query heads per KV head; half of each head is rotated
          {2, 6, 2, 140, 24, {70, 1}, 8, interleaved, true},
          {2, 6, 2, 140, 32, {70, 1}, 16, split, true},
          {2, 2, 1, 40, 128, {7, 39}, 0, split, false, {90, 4}},  // positions that differ from places
          {1, 2, 2, 30, 256, {29}, 0, interleaved, true},
          {1, 1, 1, 4300, 16, {4200}},         // more KV chunks than a cluster has blocks
          {2, 4, 2, 20, 7, {19, 3}, 6},        // odd widths
          {2, 4, 2, 20, 40, {19, 3}, 12},      // rotated halves are no multiple of a 16-byte vector
          {1, 2, 1, 20, 264, {11}, 0, split},  // a head is wider than a warp handles
          {2, 4, 2, 500, 16, {490, 0}, 0, split, false, {}, {.pattern = window}, false, 0, true},
          {1, 4, 2, 500, 16, {490}, -1, split, false, {}, {.soft_cap = 3.0}, true},
          {2, 4, 4, 90, 8, {80, 33}, -1, split, false, {}, {.t5_max_distance = 64}, false, 16},
          {1, 2, 1, 700, 16, {650}, 0, split, false, {}, {.pattern = global}},
          {1, 5, 1, 300, 16, {270}, 0, interleaved, false, {}, {.scale = 2.0, .pattern = strided}, true, 0, true},
          {0, 2, 1, 9, 8, {}},
          {1, 2, 1, 9, 0, {3}, -1}};
}

std::string describe_step(const AttentionStepParams& p) {
  return str(describe_attention(p.attention()), " turned ", p.turned(),
             p.pairing == RotaryPairing::interleaved ? " interleaved" : "", p.per_element ? " by column" : "",
             p.positions.empty() ? "" : " elsewhere");
}

int64_t table_rows(const AttentionStepParams& p) {
  double most = 0;
  for (const double at : p.positions.empty() ? p.places : p.positions) most = std::max(most, at);
  return static_cast<int64_t>(most) + 1;
}

std::vector<Input> step_inputs(const AttentionStepParams& p, DType cache) {
  const bool bytes = cache == DType::u8;
  const Shape held{p.batch, p.kv_heads, p.capacity, p.d};
  Input stored{.shape = held};
  if (bytes) stored = {.shape = held, .low = 0, .high = 256, .dtype = DType::u8, .differentiable = false};
  if (cache == DType::bf16 || cache == DType::f16) stored.dtype = cache;
  const Input scales{.shape = {p.batch, p.kv_heads, p.capacity}, .low = 0.002, .high = 0.02, .dtype = DType::f32};
  const Input table{.shape = {table_rows(p), p.per_element ? p.turned() : p.turned() / 2}, .dtype = DType::f32};
  const bool turns = p.rotary_dim >= 0;
  return {{.shape = {p.batch, 1, p.heads + 2 * p.kv_heads, p.d}},
          stored,
          stored,
          integers({p.batch}, p.places),
          turns ? table : absent(),
          turns ? table : absent(),
          p.positions.empty() ? absent() : integers({p.batch}, p.positions),
          p.alibi ? Input{.shape = {p.heads}, .low = 0.01, .high = 0.5, .dtype = DType::f32} : absent(),
          p.t5_buckets > 0 ? Input{.shape = {p.t5_buckets, p.heads}} : absent(),
          p.sinks ? Input{.shape = {p.heads}} : absent(),
          bytes ? scales : absent(),
          bytes ? scales : absent()};
}

std::vector<Tensor> run_step(const AttentionStepParams& p, const std::vector<Tensor>& in) {
  const auto copied = [](const Tensor& tensor) { return tensor.defined() ? tensor.clone() : tensor; };
  const Tensor k_cache = copied(in[1]);
  const Tensor v_cache = copied(in[2]);
  const ops::CacheScales scales{copied(in[10]), copied(in[11])};
  const ops::StepRotation rotation{in[4], in[5], p.pairing, std::max<int64_t>(p.rotary_dim, 0), in[6]};
  std::vector<Tensor> results{
      ops::attention_step(in[0], k_cache, v_cache, in[3], rotation, p.options, {in[7], in[8], in[9], Tensor()}, scales),
      k_cache, v_cache};
  if (scales.k.defined()) {
    results.push_back(scales.k);
    results.push_back(scales.v);
  }
  return results;
}

template <class S>
S step_rounded(const S& value, DType type) {
  if (type != DType::bf16 && type != DType::f16) return value;
  return static_cast<S>(round_to(static_cast<double>(value), type));
}

/// Head `head` of row b, rotated.
template <class S>
std::vector<S> turned_head(const AttentionStepParams& p, const Arrays<S>& in, int64_t b, int64_t head, DType type) {
  std::vector<S> x;
  for (int64_t c = 0; c < p.d; ++c) x.push_back(in[0][(b * (p.heads + 2 * p.kv_heads) + head) * p.d + c]);
  const int64_t n = p.rotary_dim < 0 ? 0 : p.turned();
  if (n == 0) return x;
  std::vector<S> y = x;
  const auto position = static_cast<int64_t>((p.positions.empty() ? p.places : p.positions)[static_cast<size_t>(b)]);
  const bool split = p.pairing == RotaryPairing::half_split;
  for (int64_t i = 0; i < n / 2; ++i) {
    const int64_t first = split ? i : 2 * i;
    const int64_t second = split ? i + n / 2 : 2 * i + 1;
    const auto angle = [&](size_t table, int64_t column) {
      return in[table][p.per_element ? position * n + column : position * (n / 2) + i];
    };
    const S a = x[static_cast<size_t>(first)];
    const S c = x[static_cast<size_t>(second)];
    y[static_cast<size_t>(first)] = step_rounded(a * angle(4, first) - c * angle(5, first), type);
    y[static_cast<size_t>(second)] = step_rounded(c * angle(4, second) + a * angle(5, second), type);
  }
  return y;
}

/// The expected y, KV caches and their scales.
template <class S>
Arrays<S> step_oracle(const AttentionStepParams& p, const Arrays<S>& in, const StepTypes& types) {
  const bool bytes = types.cache == DType::u8;
  Arrays<S> caches{in[1], in[2]};
  if (bytes) caches.insert(caches.end(), {in[10], in[11]});
  for (int64_t n = 0; n < p.batch * p.kv_heads; ++n) {
    const int64_t b = n / p.kv_heads;
    const int64_t at = n * p.capacity + static_cast<int64_t>(p.places[static_cast<size_t>(b)]);
    AttentionStepParams straight = p;
    straight.rotary_dim = -1;
    for (size_t part = 0; part < 2; ++part) {
      const int64_t head = p.heads + static_cast<int64_t>(part) * p.kv_heads + n % p.kv_heads;
      const std::vector<S> row = turned_head(part == 0 ? p : straight, in, b, head, types.type);
      S most = 0;
      for (const S& value : row) most = std::max(most, std::abs(value));
      if (bytes) caches[2 + part][at] = most / S(127);
      for (int64_t c = 0; c < p.d; ++c) {
        const S value = row[static_cast<size_t>(c)];
        caches[part][at * p.d + c] =
            bytes ? S(128) + std::nearbyint(value / (most / S(127))) : step_rounded(value, types.cache);
      }
    }
  }
  const auto cached = [&](size_t part, int64_t key, int64_t c) {
    const S number = caches[part][key * p.d + c];
    return bytes ? (number - S(128)) * caches[2 + part][key] : number;
  };
  const OracleExtras<S> extras{in[7], in[8], in[9]};
  Array<S> y({p.batch, 1, p.heads, p.d});
  for (int64_t n = 0; n < p.batch * p.heads; ++n) {
    const int64_t b = n / p.heads;
    const int64_t head = n % p.heads;
    const std::vector<S> q = turned_head(p, in, b, head, types.type);
    const auto place = static_cast<int64_t>(p.places[static_cast<size_t>(b)]);
    const int64_t first = (b * p.kv_heads + head / (p.heads / p.kv_heads)) * p.capacity;
    std::vector<S> scores;
    std::vector<int64_t> keys;
    for (int64_t j = 0; j <= place; ++j) {
      if (!oracle_sees(p.options, place, j, place + 1)) continue;
      S dot = 0;
      for (int64_t c = 0; c < p.d; ++c) dot += q[static_cast<size_t>(c)] * cached(0, first + j, c);
      keys.push_back(first + j);
      scores.push_back(oracle_score(p.attention(), extras, dot, head, place, j));
    }
    const S* sink = p.sinks ? &in[9].values[static_cast<size_t>(head)] : nullptr;
    const std::vector<S> weights = oracle_weights(scores, sink);
    for (size_t i = 0; i < keys.size(); ++i) {
      for (int64_t c = 0; c < p.d; ++c) y[n * p.d + c] += weights[i] * cached(1, keys[i], c);
    }
  }
  Arrays<S> results{y};
  results.insert(results.end(), caches.begin(), caches.end());
  return results;
}

template <DType kType, DType kCache>
struct AttentionStepBase {
  static constexpr const char* name = "attention_step";
  static constexpr bool kBackward = false;
  using Params = AttentionStepParams;
  static std::vector<DType> dtypes() { return {kType}; }
  static std::vector<Params> sweep() { return step_sweep(); }
  static std::vector<Params> bench() { return {{1, 12, 12, 1024, 64, {255}}, {1, 32, 8, 4096, 128, {2047}}}; }
  static std::string describe(const Params& p) { return describe_step(p); }
  static std::vector<Input> inputs(const Params& p) { return step_inputs(p, kCache); }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) { return run_step(p, in); }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    return step_oracle(p, in, {kType, kCache});
  }
};

struct AttentionStepCase : AttentionStepBase<DType::f64, DType::f64> {
  static std::vector<DType> dtypes() { return {DType::f32, DType::f64}; }
};
LAMINA_OP_CASE(AttentionStepCase);

struct AttentionStepInBf16 : AttentionStepBase<DType::bf16, DType::bf16> {
  static constexpr const char* form = "in_bf16";
};
LAMINA_OP_CASE(AttentionStepInBf16);

struct AttentionStepInF16 : AttentionStepBase<DType::f16, DType::f16> {
  static constexpr const char* form = "in_f16";
};
LAMINA_OP_CASE(AttentionStepInF16);

struct AttentionStepIntoBf16 : AttentionStepBase<DType::f32, DType::bf16> {
  static constexpr const char* form = "into_bf16";
};
LAMINA_OP_CASE(AttentionStepIntoBf16);

struct AttentionStepInto8Bits : AttentionStepBase<DType::f32, DType::u8> {
  static constexpr const char* form = "into_8_bits";
  static std::vector<Params> sweep() {
    std::vector<Params> all = AttentionStepBase::sweep();
    std::erase_if(all, [](const Params& p) { return p.d == 0; });  // an empty head has no scale
    return all;
  }
};
LAMINA_OP_CASE(AttentionStepInto8Bits);

struct AttentionSublayerParams {
  NormedStream stream;  ///< [batch, 1, width]; `bias` applies to both projections
  AttentionStepParams step;

  int64_t heads_width() const { return step.heads * step.d; }
  int64_t rows() const { return heads_width() + 2 * step.kv_heads * step.d; }
};

/// Input order: first the residual stream's inputs, then both projections, then the step's inputs without qkv.
constexpr size_t kProjections = 4;
constexpr size_t kStepInputs = 8;

template <DType kCache>
struct AttentionSublayerBase {
  static constexpr const char* name = "attention_sublayer_step";
  static constexpr bool kBackward = false;
  using Params = AttentionSublayerParams;

  static std::vector<Params> sweep() {
    const auto interleaved = RotaryPairing::interleaved;
    const ops::AttentionPattern window{.kind = Kind::window, .window = 70};
    return {{{{1, 1, 288}, 0, kRms, true, true, false, 0.0, 0, 8}, {1, 6, 6, 300, 48, {100}}},
            {{{1, 1, 768}, 0, kRms, true, true, false, 0.0, 0, 8}, {1, 12, 12, 260, 64, {127}}},
            {{{1, 1, 64}, 0, kLayer, true, true, true, 0.0, 0, 2}, {1, 4, 2, 1100, 32, {1099}, 0, interleaved}},
            {{{1, 1, 96}, 0, kRms, false, true, true}, {1, 8, 1, 700, 16, {650}, 8}},
            {{{1, 1, 40}, 0, kRms}, {1, 6, 2, 9, 24, {8}, 8, interleaved, true}},
            {{{1, 1, 40}, 0, kRms}, {1, 3, 3, 400, 128, {399}, 16, RotaryPairing::half_split, true}},
            {{{1, 1, 128}, 0, kLayer, false}, {1, 2, 2, 30, 256, {0}, -1}},
            {{{1, 1, 64}, 0, kRms}, {1, 2, 1, 40, 32, {7}, 0, interleaved, false, {90}}},
            {{{1, 1, 64}, 0, kRms}, {1, 2, 1, 500, 16, {490}, 0, interleaved, false, {}, {.scale = 2.0}}},
            {{{1, 1, 64}, 0, kRms}, {1, 2, 1, 500, 16, {490}, 0, interleaved, false, {}, {.pattern = window}}},
            {{{1, 1, 64}, 0, kRms, true, true, true}, {1, 4, 2, 50, 16, {49}, -1, interleaved, false, {}, {}, true}},
            {{{1, 1, 36}, 0, kRms}, {1, 4, 2, 20, 16, {19}}},
            {{{1, 1, 32}, 0, kRms}, {1, 4, 2, 20, 7, {19}, 6}},
            {{{2, 1, 64}, 0, kRms, true, true, true, 0.0, 0, 3}, {2, 4, 2, 20, 16, {19, 3}}}};
  }
  /// Too wide for one launch: the QKV projection is a launch of its own.
  static std::vector<Params> gpu_sweep() {
    const auto interleaved = RotaryPairing::interleaved;
    return {{{{1, 1, 1024}, 0, kRms, true, true, false, 0.0, 0, 4}, {1, 8, 1, 300, 64, {201}}},
            {{{1, 1, 1024}, 0, kRms, true, true, false, 0.0, 0, 4}, {1, 8, 1, 250, 64, {201}}},
            {{{1, 1, 1024}, 0, kRms}, {1, 8, 1, 130, 64, {127}}},
            {{{1, 1, 1000}, 0, kRms, true, true, true, 0.0, 0, 6}, {1, 10, 2, 300, 64, {20}, 32, interleaved}},
            {{{1, 1, 1024}, 0, kRms}, {1, 4, 1, 700, 64, {640}, 0, RotaryPairing::half_split, true, {3}}},
            {{{1, 1, 1536}, 0, kLayer, true, true, true}, {1, 12, 3, 40, 128, {39}}}};
  }
  static std::vector<Params> bench() { return {}; }
  static std::string describe(const Params& p) { return str(p.stream.describe(), " ", describe_step(p.step)); }
  static std::vector<Input> inputs_of(const Params& p, std::optional<DType> weights) {
    const int64_t width = p.stream.shape[-1];
    std::vector<Input> all = p.stream.stream_inputs();
    all.push_back({.shape = {p.rows(), width}, .dtype = weights});
    all.push_back(p.stream.bias ? Input{.shape = {p.rows()}} : absent());
    all.push_back({.shape = {width, p.heads_width()}, .dtype = weights});
    all.push_back(p.stream.bias ? Input{.shape = {width}} : absent());
    const std::vector<Input> step = step_inputs(p.step, kCache);
    all.insert(all.end(), step.begin() + 1, step.end());
    return all;
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    const Tensor* step = in.data() + kStepInputs - 1;  // minus 1: the step's first input, qkv, is missing
    const Tensor k_cache = step[1].clone();
    const Tensor v_cache = step[2].clone();
    const ops::StepRotation rotation{step[4], step[5], p.step.pairing, std::max<int64_t>(p.step.rotary_dim, 0),
                                     step[6]};
    const auto [h, parts] = ops::attention_sublayer_step(
        in[0], in[1], p.stream.norm(in),
        {in[kProjections], in[kProjections + 1], in[kProjections + 2], in[kProjections + 3]}, k_cache, v_cache, step[3],
        rotation, p.step.options, {step[7], step[8], step[9], Tensor()});
    return {h, ops::sum_of_parts(parts, in[0]), k_cache, v_cache};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    const Array<S> h = p.stream.value(in);
    Arrays<S> step{
        linear_oracle(p.stream.normed(h, in), in[kProjections], in[kProjections + 1], ops::Activation::none)};
    step.insert(step.end(), in.begin() + kStepInputs, in.end());
    Arrays<S> found = step_oracle(p.step, step, {DType::f64, kCache});
    Array<S> y({p.step.batch, 1, p.heads_width()});
    y.values = found[0].values;
    found[0] = linear_oracle(y, in[kProjections + 2], in[kProjections + 3], ops::Activation::none);
    found.insert(found.begin(), h);
    return found;
  }
};

struct AttentionSublayerCase : AttentionSublayerBase<DType::f64> {
  static std::vector<DType> dtypes() { return {DType::f32, DType::f64}; }
  static std::vector<Input> inputs(const Params& p) { return inputs_of(p, {}); }
};
LAMINA_OP_CASE(AttentionSublayerCase);

struct AttentionSublayerOfBf16 : AttentionSublayerBase<DType::f32> {
  static constexpr const char* form = "of_bf16";
  static std::vector<DType> dtypes() { return {DType::f32}; }
  static std::vector<Input> inputs(const Params& p) { return inputs_of(p, DType::bf16); }
};
LAMINA_OP_CASE(AttentionSublayerOfBf16);

struct AttentionSublayerInBf16 : AttentionSublayerBase<DType::bf16> {
  static constexpr const char* form = "in_bf16";
  static std::vector<DType> dtypes() { return {DType::f32}; }
  static std::vector<Input> inputs(const Params& p) { return inputs_of(p, DType::bf16); }
};
LAMINA_OP_CASE(AttentionSublayerInBf16);

struct AttentionSublayerInF16 : AttentionSublayerBase<DType::f16> {
  static constexpr const char* form = "in_f16";
  static std::vector<DType> dtypes() { return {DType::f32}; }
  static std::vector<Input> inputs(const Params& p) { return inputs_of(p, DType::bf16); }
};
LAMINA_OP_CASE(AttentionSublayerInF16);

}  // namespace
}  // namespace lamina::testing
