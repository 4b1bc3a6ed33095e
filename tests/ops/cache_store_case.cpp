#include "lamina/ops/attention/cache_store.h"

#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct CacheStoreCase {
  static constexpr const char* name = "cache_store";
  static constexpr bool kBackward = false;
  struct Params {
    int64_t batch, seq, heads, capacity, d_qk, d_v;  ///< d_v < 0: no values
    std::vector<double> places;
    bool joined = false;  ///< k and v are slices of one projection
    bool rows = false;    ///< the caches are rows of larger ones
    std::optional<DType> fresh;
  };

  static std::vector<Params> sweep() {
    return {{2, 1, 3, 9, 8, 16, {4, 0}},
            {1, 1, 1, 1, 1, 1, {0}},
            {2, 5, 2, 11, 5, 3, {6, 1}},
            {3, 4, 2, 40, 64, 128, {36, 0, 17}},
            {2, 3, 40, 8, 64, 64, {5, 2}},  // more than a block's threads
            {2, 7, 1, 30, 576, -1, {3, 23}},
            {2, 7, 1, 30, 33, -1, {3, 23}},
            {2, 3, 2, 12, 16, 8, {7, 9}, true},
            {2, 3, 2, 12, 7, 9, {7, 9}, true},
            {2, 3, 2, 12, 16, 8, {7, 9}, false, true},
            {2, 3, 2, 12, 5, 5, {7, 9}, true, true},
            {2, 3, 2, 12, 24, 8, {7, 9}, false, false, DType::f32},
            {2, 3, 2, 12, 23, 9, {0, 1}, true, false, DType::bf16},
            {1, 9, 2, 12, 32, 32, {3}, true, true, DType::f16},
            {0, 3, 2, 12, 8, 8, {}},
            {2, 0, 2, 12, 8, 8, {12, 0}},
            {1, 2, 0, 12, 8, 8, {3}},
            {1, 2, 2, 12, 0, 8, {3}},
            {1, 2, 2, 12, 8, 0, {3}}};
  }
  static std::vector<Params> bench() {
    return {{1, 4096, 8, 4096, 128, 128, {0}}, {8, 1, 8, 512, 128, 128, {0, 1, 2, 3, 4, 5, 6, 7}}};
  }
  static std::string describe(const Params& p) {
    return str(p.batch, " rows, ", p.seq, " tokens, ", p.heads, " heads of ", p.d_qk, " and ", p.d_v, " into ",
               p.capacity, p.joined ? ", joined" : "", p.rows ? ", views of rows" : "");
  }

  static int64_t width(const Params& p) { return p.heads * (p.d_qk + p.d_v); }
  static std::vector<Input> inputs(const Params& p) {
    // Behind a row of the larger cache come those that are shown, and behind them one more.
    const int64_t held = p.batch + (p.rows ? 2 : 0);
    const bool values = p.d_v >= 0;
    const auto fresh = [&](int64_t d) {
      return p.joined ? Input{.shape = {p.batch, p.seq, width(p)}, .dtype = p.fresh}
                      : Input{.shape = {p.batch, p.seq, p.heads, d}, .dtype = p.fresh};
    };
    return {{.shape = {held, p.heads, p.capacity, p.d_qk}},
            values ? Input{.shape = {held, p.heads, p.capacity, p.d_v}} : absent(),
            fresh(p.d_qk),
            values && !p.joined ? fresh(p.d_v) : absent(),
            integers({p.batch}, p.places)};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    const bool values = p.d_v >= 0;
    const Tensor k_cache = in[0].clone();
    const Tensor v_cache = values ? in[1].clone() : Tensor();
    const auto shown = [&](const Tensor& cache) {
      return cache.defined() && p.rows ? cache.slice(0, 1, p.batch) : cache;
    };
    Tensor k = in[2];
    Tensor v = in[3];
    if (p.joined) {
      k = in[2].slice(2, 0, p.heads * p.d_qk).reshape({p.batch, p.seq, p.heads, p.d_qk});
      v = in[2].slice(2, p.heads * p.d_qk, p.heads * p.d_v).reshape({p.batch, p.seq, p.heads, p.d_v});
    }
    ops::cache_store(shown(k_cache), shown(v_cache), k, v, in[4]);
    if (!values) return {k_cache};
    return {k_cache, v_cache};
  }

  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Arrays<S> caches{in[0]};
    if (p.d_v >= 0) caches.push_back(in[1]);
    for (size_t part = 0; part < caches.size(); ++part) {
      const int64_t d = part == 0 ? p.d_qk : p.d_v;
      for (int64_t b = 0; b < p.batch; ++b) {
        for (int64_t s = 0; s < p.seq; ++s) {
          const int64_t token = b * p.seq + s;
          const int64_t place = static_cast<int64_t>(p.places[static_cast<size_t>(b)]) + s;
          for (int64_t column = 0; column < p.heads * d; ++column) {
            const int64_t head = column / d;
            const int64_t row = b + (p.rows ? 1 : 0);
            const int64_t to = ((row * p.heads + head) * p.capacity + place) * d + column % d;
            caches[part][to] = p.joined ? in[2][token * width(p) + (part == 0 ? 0 : p.heads * p.d_qk) + column]
                                        : in[2 + part][token * p.heads * d + column];
          }
        }
      }
    }
    return caches;
  }
};
LAMINA_OP_CASE(CacheStoreCase);

}  // namespace
}  // namespace lamina::testing
