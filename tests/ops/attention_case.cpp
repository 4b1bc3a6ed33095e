#include "ops/attention_oracle.h"

namespace lamina::testing {
namespace {

using Kind = ops::AttentionPattern::Kind;

struct AttentionCase {
  static constexpr const char* name = "attention";
  using Params = AttentionParams;

  static void add_shapes(std::vector<Params>& all) {
    const ops::AttentionOptions open{.causal = false};
    all.push_back({2, 7, 7, 4, 2, 5, 3});
    all.push_back({1, 1, 1, 1, 1, 1, 1});
    all.push_back({2, 9, 9, 3, 3, 16, 16, open});
    all.push_back({1, 5, 9, 6, 1, 8, 17});       // the last queries of a longer sequence
    all.push_back({1, 9, 5, 2, 2, 3, 4});        // the first queries see no key
    all.push_back({1, 9, 5, 2, 1, 3, 4, open});  // cross-attention
    all.push_back({0, 5, 5, 2, 1, 4, 4});
    all.push_back({1, 0, 5, 2, 1, 4, 4, open});
    all.push_back({1, 4, 0, 2, 1, 4, 4, open});
    all.push_back({1, 4, 4, 2, 1, 4, 0});
    all.push_back({1, 4, 4, 2, 1, 0, 4});
    all.push_back({1, 203, 203, 1, 1, 5, 2});  // more than one tile of keys and of queries
    all.push_back({1, 131, 131, 2, 1, 3, 5, open});
    all.push_back({1, 33, 40, 1, 1, 80, 33, open});
    all.push_back({1, 40, 170, 2, 2, 3, 2, {.scale = 0.5}});
  }
  static void add_scores(std::vector<Params>& all) {
    const ops::AttentionOptions open{.causal = false};
    all.push_back({1, 11, 11, 3, 1, 4, 4, {}, true});
    all.push_back({1, 11, 13, 3, 3, 4, 4, open, true});
    all.push_back({2, 23, 23, 2, 1, 4, 3, {.t5_max_distance = 12}, false, 8});
    all.push_back({1, 23, 25, 2, 2, 4, 3, {.causal = false, .t5_max_distance = 12}, false, 10});
    all.push_back({1, 140, 140, 1, 1, 2, 2, {.t5_max_distance = 64}, false, 32});
    all.push_back({1, 9, 9, 2, 1, 4, 4, {.scale = 3.0, .soft_cap = 1.5}});
    all.push_back({1, 9, 12, 2, 2, 4, 4, {.causal = false, .scale = -2.0, .soft_cap = 30.0}, true, 6});
    all.push_back({2, 9, 9, 4, 2, 4, 4, {}, false, 0, true});
    all.push_back({1, 7, 3, 2, 2, 4, 4, {}, false, 0, true});  // some queries see only the sink
    all.push_back({2, 13, 13, 2, 1, 4, 4, {.dropout = 0.3, .dropout_key = {7, 9}}});
    all.push_back({1, 12, 16, 2, 2, 4, 4, {.causal = false, .dropout = 0.5, .dropout_key = {1, 2}}});
    all.push_back({1, 132, 140, 1, 1, 2, 3, {.dropout = 0.1, .dropout_key = {3, 4}}});
  }
  static void add_patterns(std::vector<Params>& all) {
    using Pattern = ops::AttentionPattern;
    const std::vector<Pattern> patterns = {
        {.kind = Kind::window, .window = 2},
        {.kind = Kind::window, .window = 6},
        {.kind = Kind::window, .window = 5, .global_tokens = 3},
        {.kind = Kind::strided, .window = 3, .stride = 7},
        {.kind = Kind::blocks, .block = 4, .window_blocks = 1, .global_blocks = 1, .random_blocks = 2, .seed = 5},
        {.kind = Kind::blocks, .block = 3, .window_blocks = 0, .global_blocks = 0, .random_blocks = 1, .seed = 6},
    };
    const std::vector<double> documents = {0, 9, 9, 10, 31};
    const Pattern ends{.kind = Kind::blocks, .block = 4, .window_blocks = 1, .last_blocks = 2, .random_blocks = 1};
    all.push_back({1, 31, 31, 2, 1, 3, 2, {.causal = false, .pattern = ends}});
    all.push_back({1, 20, 31, 1, 1, 3, 2, {.causal = false, .pattern = ends}});
    all.push_back({1, 31, 31, 1, 1, 3, 2, {.causal = false, .pattern = ends}, false, 0, false, documents});
    Pattern given{.kind = Kind::blocks, .block = 4, .window_blocks = 0, .random_blocks = 2};
    given.table =
        std::make_shared<std::vector<int32_t>>(std::vector<int32_t>{0, 0, 7, 3, 5, 5, 1, 6, 2, 0, 3, 4, 7, 1, 2, 2});
    all.push_back({2, 31, 31, 2, 1, 3, 2, {.causal = false, .pattern = given}});
    for (const Pattern& pattern : patterns) {
      for (const bool causal : {true, false}) {
        const ops::AttentionOptions options{.causal = causal, .pattern = pattern};
        all.push_back({1, 31, 31, 2, 1, 3, 2, options});
        all.push_back({1, 20, 31, 1, 1, 3, 2, options, true});
        all.push_back({1, 31, 31, 1, 1, 3, 2, options, false, 0, false, documents});
      }
    }
  }
  static void add_combinations(std::vector<Params>& all) {
    const std::vector<double> documents = {0, 60, 70, 206};
    const ops::AttentionPattern window{.kind = Kind::window, .window = 30};
    const ops::AttentionPattern global{.kind = Kind::window, .window = 20, .global_tokens = 2};
    const ops::AttentionPattern blocks{.kind = Kind::blocks, .block = 16, .random_blocks = 1, .seed = 3};
    const ops::AttentionPattern strided{.kind = Kind::strided, .window = 9, .stride = 130};
    all.push_back({1, 206, 206, 1, 1, 2, 2, {}, false, 0, false, documents});
    all.push_back({1, 206, 206, 1, 1, 2, 2, {.causal = false}, false, 0, true, documents});
    all.push_back({1, 206, 206, 1, 1, 2, 2, {.pattern = window}, true, 0, false, documents});
    all.push_back({1, 230, 230, 1, 1, 2, 2, {.pattern = window}});
    all.push_back({1, 210, 290, 1, 1, 2, 2, {.causal = false, .pattern = window}, false, 8});
    all.push_back({1, 230, 230, 1, 1, 2, 2, {.pattern = global, .soft_cap = 2.0}, false, 0, true});
    all.push_back({1, 230, 230, 1, 1, 2, 2, {.causal = false, .pattern = blocks}});
    all.push_back({1, 230, 300, 1, 1, 2, 2, {.pattern = strided}});
    all.push_back({2,
                   37,
                   37,
                   4,
                   2,
                   5,
                   7,
                   {.scale = 2.0,
                    .pattern = window,
                    .soft_cap = 3.0,
                    .dropout = 0.2,
                    .dropout_key = {5, 6},
                    .t5_max_distance = 20},
                   true,
                   8,
                   true,
                   {0, 5, 37}});
    all.push_back({2,
                   37,
                   41,
                   4,
                   1,
                   5,
                   7,
                   {.causal = false, .pattern = global, .soft_cap = 3.0, .dropout = 0.2, .dropout_key = {5, 6}},
                   true,
                   8,
                   true});
  }
  /// Head widths that tensor core kernels support.
  static void add_wide(std::vector<Params>& all) {
    const ops::AttentionPattern window{.kind = Kind::window, .window = 30};
    const ops::AttentionPattern blocks{.kind = Kind::blocks, .block = 16, .random_blocks = 1, .seed = 3};
    const RandomKey key{5, 6};
    all.push_back({1, 70, 70, 2, 1, 16, 24});
    all.push_back({1, 33, 90, 1, 1, 40, 16, {.causal = false}});
    all.push_back({1, 50, 50, 1, 1, 72, 80});
    all.push_back({1, 137, 137, 2, 2, 16, 24});  // a whole head fits one thread block
    all.push_back({1, 200, 200, 1, 1, 40, 32, {.scale = 0.3}});
    all.push_back({1, 40, 40, 1, 1, 136, 16});
    all.push_back({1, 90, 90, 2, 2, 16, 16, {.pattern = window}, true, 0, true, {0, 40, 90}});
    all.push_back({1, 80, 80, 2, 1, 16, 16, {.soft_cap = 3.0, .dropout = 0.2, .dropout_key = key}});
    all.push_back({1, 67, 71, 1, 1, 16, 16, {.causal = false, .dropout = 0.1, .dropout_key = key}});
    all.push_back({1, 80, 80, 1, 1, 16, 16, {.t5_max_distance = 20}, false, 8});
    all.push_back({1, 100, 100, 1, 1, 16, 16, {.pattern = blocks}});
    // Several tiles of keys and of queries.
    const ops::AttentionPattern wide_blocks{.kind = Kind::blocks, .block = 32, .window_blocks = 0, .random_blocks = 1};
    const ops::AttentionPattern strided{.kind = Kind::strided, .window = 9, .stride = 50};
    all.push_back({1, 70, 100, 1, 1, 16, 16, {.causal = false}, true});
    all.push_back({1, 130, 130, 1, 1, 16, 16, {.t5_max_distance = 30}, false, 12});
    all.push_back({1, 100, 140, 1, 1, 16, 16, {.causal = false, .t5_max_distance = 24}, false, 12});
    all.push_back({1, 60, 75, 1, 1, 72, 72, {.causal = false, .t5_max_distance = 12}, false, 8});
    all.push_back({1, 68, 136, 2, 1, 16, 16, {.dropout = 0.3, .dropout_key = key}});
    all.push_back({1, 60, 72, 1, 1, 72, 72, {.dropout = 0.3, .dropout_key = key, .t5_max_distance = 12}, false, 8});
    // Dropout patches that span tiles, heads and rows; the last patches are partial.
    all.push_back({2, 75, 75, 4, 2, 16, 16, {.pattern = window, .dropout = 0.2, .dropout_key = key}});
    all.push_back({2, 41, 99, 2, 1, 80, 72, {.causal = false, .dropout = 0.5, .dropout_key = {1ULL << 40, ~0ULL}}});
    all.push_back({1, 90, 90, 1, 1, 24, 16, {.dropout = 0.1, .dropout_key = key}, true, 0, true, {0, 21, 21, 90}});
    all.push_back({1, 170, 170, 1, 1, 16, 16, {.pattern = wide_blocks}});
    all.push_back({1, 80, 80, 1, 1, 72, 72, {.causal = false, .pattern = strided}});
  }
  /// More key tiles than shared memory holds at once. Some are visible to no query, or only to some queries of a block.
  static void add_many_tiles(std::vector<Params>& all) {
    const ops::AttentionPattern window{.kind = Kind::window, .window = 130};
    const ops::AttentionPattern blocks{.kind = Kind::blocks, .block = 32, .window_blocks = 0, .random_blocks = 2};
    const ops::AttentionPattern strided{.kind = Kind::strided, .window = 9, .stride = 300};
    const RandomKey key{5, 6};
    all.push_back({1, 20, 720, 1, 1, 64, 16, {}, false, 0, true});
    all.push_back({1, 130, 200, 1, 1, 72, 16});
    all.push_back({1, 30, 400, 1, 1, 16, 64, {.causal = false}, true});
    all.push_back({1, 140, 140, 1, 1, 16, 72, {.causal = false}, true});
    all.push_back({1, 40, 400, 1, 1, 16, 40, {.t5_max_distance = 100}, false, 16});
    all.push_back({1, 36, 402, 1, 1, 16, 16, {.dropout = 0.2, .dropout_key = key}});
    all.push_back({1, 36, 400, 1, 1, 48, 16, {.dropout = 0.2, .dropout_key = key}, true});
    all.push_back({1, 100, 330, 1, 1, 16, 16, {.causal = false, .pattern = window}, false, 0, true});
    all.push_back({1, 300, 300, 1, 1, 16, 16, {.pattern = blocks}});
    all.push_back({1, 70, 500, 1, 1, 16, 16, {.causal = false, .pattern = strided}});
    all.push_back({2, 200, 200, 1, 1, 16, 16, {}, true, 0, false, {0, 100, 101, 200}});
  }
  /// Several thread blocks of both tensor core backward kernels, with head widths that fit Hopper's wgmma.
  static void add_long(std::vector<Params>& all) {
    const std::vector<double> documents = {0, 60, 70, 206};
    const ops::AttentionPattern window{.kind = Kind::window, .window = 70};
    const ops::AttentionPattern global{.kind = Kind::window, .window = 40, .global_tokens = 3};
    const ops::AttentionPattern blocks{.kind = Kind::blocks, .block = 32, .window_blocks = 0, .random_blocks = 1};
    const ops::AttentionPattern small{.kind = Kind::blocks, .block = 20, .random_blocks = 1, .seed = 4};
    const ops::AttentionPattern strided{.kind = Kind::strided, .window = 9, .stride = 130};
    const RandomKey key{5, 6};
    all.push_back({1, 270, 270, 4, 2, 64, 48});
    all.push_back({1, 150, 260, 3, 1, 32, 64, {.causal = false}});
    all.push_back({1, 200, 130, 2, 1, 24, 40});  // the first queries see no key
    all.push_back({1, 190, 190, 2, 1, 17, 19, {.scale = -0.2}});
    all.push_back({2, 270, 270, 2, 1, 16, 32, {.t5_max_distance = 40}, false, 16});
    all.push_back({1, 190, 260, 2, 2, 32, 16, {.causal = false, .t5_max_distance = 32}, false, 16});
    all.push_back({1, 150, 150, 1, 1, 16, 16, {.t5_max_distance = 1000}, false, 12});  // no distance reaches it
    all.push_back({1, 206, 206, 2, 1, 16, 16, {.t5_max_distance = 30}, true, 8, true, documents});
    all.push_back({1, 206, 206, 2, 2, 16, 16, {.pattern = window}, false, 0, true, documents});
    all.push_back({1, 260, 260, 2, 1, 16, 16, {.pattern = blocks}, false, 0, true});
    all.push_back({1, 170, 230, 1, 1, 16, 16, {.causal = false, .pattern = small}});
    all.push_back({1, 170, 230, 1, 1, 16, 16, {.pattern = strided}, true});
    all.push_back({1, 200, 200, 2, 1, 16, 16, {.pattern = global, .dropout = 0.2, .dropout_key = key}});
    all.push_back({1, 150, 204, 4, 2, 16, 32, {.soft_cap = 2.0, .dropout = 0.2, .dropout_key = key}, true});
    all.push_back(
        {1, 203, 203, 2, 1, 16, 16, {.dropout = 0.1, .dropout_key = key, .t5_max_distance = 24}, false, 8, true});
  }
  /// Several thread blocks of the one-pass backward; the last one is partial.
  static void add_joined(std::vector<Params>& all) {
    all.push_back({1, 576, 576, 2, 1, 64, 64});
    all.push_back({1, 128, 600, 2, 2, 40, 64, {.causal = false}});
    all.push_back({2, 64, 700, 4, 2, 64, 48});
    all.push_back({1, 640, 530, 1, 1, 24, 40});  // the first queries see no key
  }
  /// Options that cuDNN supports besides plain attention.
  static void add_known(std::vector<Params>& all) {
    all.push_back({1, 70, 70, 2, 1, 16, 16, {.scale = 2.0, .soft_cap = 3.0}});
    all.push_back({2, 65, 65, 2, 2, 32, 32, {}, true});
    all.push_back({1, 66, 66, 2, 2, 16, 16, {.scale = 1.0, .soft_cap = 2.0}, true});
  }
  static std::vector<Params> sweep() {
    std::vector<Params> all;
    add_shapes(all);
    add_scores(all);
    add_patterns(all);
    add_combinations(all);
    add_wide(all);
    add_known(all);
    return all;
  }
  static std::vector<Params> gpu_sweep() {
    std::vector<Params> all;
    add_many_tiles(all);
    add_long(all);
    add_joined(all);
    return all;
  }
  static std::vector<Params> bench() {
    const ops::AttentionPattern window{.kind = Kind::window, .window = 256};
    return {{12, 256, 256, 6, 6, 64, 64},
            {1, 2048, 2048, 8, 8, 64, 64},
            {1, 2048, 2048, 8, 8, 64, 64, {.causal = false}},
            {1, 2048, 2048, 8, 2, 128, 128},
            {1, 16384, 16384, 1, 1, 64, 64, {.pattern = window}}};
  }
  static std::string describe(const Params& p) { return describe_attention(p); }

  static std::vector<Input> inputs(const Params& p) {
    const auto documents = static_cast<int64_t>(p.documents.size());
    return {{.shape = {p.batch, p.seq_q, p.heads, p.d_qk}},
            {.shape = {p.batch, p.seq_k, p.kv_heads, p.d_qk}},
            {.shape = {p.batch, p.seq_k, p.kv_heads, p.d_v}},
            p.alibi ? Input{.shape = {p.heads}, .low = 0.01, .high = 0.5, .dtype = DType::f32, .differentiable = false}
                    : absent(),
            p.t5_buckets > 0 ? Input{.shape = {p.t5_buckets, p.heads}} : absent(),
            p.sinks ? Input{.shape = {p.heads}} : absent(),
            documents > 0 ? integers({documents}, p.documents, DType::i32) : absent()};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::attention(in[0], in[1], in[2], p.options, {in[3], in[4], in[5], in[6]})};
  }

  /// Bounds [first, end) of the document that contains position i.
  static std::pair<int64_t, int64_t> document(const Params& p, int64_t i) {
    if (p.documents.empty()) return {0, p.seq_k};
    size_t n = 0;
    while (p.documents[n + 1] <= static_cast<double>(i)) ++n;
    return {static_cast<int64_t>(p.documents[n]), static_cast<int64_t>(p.documents[n + 1])};
  }

  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    const OracleExtras<S> extras{in[3], in[4], in[5]};
    Array<S> y({p.batch, p.seq_q, p.heads, p.d_v});
    for (int64_t row = 0; row < p.batch * p.seq_q; ++row) {
      const int64_t b = row / p.seq_q;
      const int64_t i = row % p.seq_q + p.seq_k - p.seq_q;
      const auto [first, last] = document(p, i);
      for (int64_t head = 0; head < p.heads; ++head) {
        const int64_t kv_head = head / (p.heads / p.kv_heads);
        const auto at = [&](int64_t j, int64_t width) { return ((b * p.seq_k + j) * p.kv_heads + kv_head) * width; };
        std::vector<S> scores;
        std::vector<int64_t> keys;
        for (int64_t j = first; j < last; ++j) {
          if (!oracle_sees(p.options, i - first, j - first, last - first)) continue;
          S dot = 0;
          for (int64_t c = 0; c < p.d_qk; ++c) {
            dot += in[0][(row * p.heads + head) * p.d_qk + c] * in[1][at(j, p.d_qk) + c];
          }
          keys.push_back(j);
          scores.push_back(oracle_score(p, extras, dot, head, i, j));
        }
        const std::vector<S> weights =
            oracle_weights(scores, p.sinks ? &in[5].values[static_cast<size_t>(head)] : nullptr);
        for (size_t n = 0; n < keys.size(); ++n) {
          const double kept = oracle_dropout(p, b, head, row % p.seq_q, keys[n]);
          if (kept == 0) continue;
          for (int64_t c = 0; c < p.d_v; ++c) {
            y[(row * p.heads + head) * p.d_v + c] += weights[n] * S(kept) * in[2][at(keys[n], p.d_v) + c];
          }
        }
      }
    }
    return {y};
  }
};
LAMINA_OP_CASE(AttentionCase);

}  // namespace
}  // namespace lamina::testing
