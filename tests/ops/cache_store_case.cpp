#include "lamina/ops/attention/cache_store.h"

#include <algorithm>
#include <cmath>

#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct CacheStoreCase {
  static constexpr const char* name = "cache_store";
  static constexpr bool kBackward = false;
  struct Params {
    int64_t batch, seq, heads, capacity, d_qk, d_v;  ///< d_v < 0: no values
    std::vector<double> places;
    bool joined = false;  ///< k and v are slices of one packed projection
    bool rows = false;    ///< the caches are row slices of larger ones
    std::optional<DType> fresh;
    bool bytes = false;  ///< 8-bit caches with scales
  };

  static std::vector<Params> sweep() {
    return {{2, 1, 3, 9, 8, 16, {4, 0}},
            {1, 1, 1, 1, 1, 1, {0}},
            {2, 5, 2, 11, 5, 3, {6, 1}},
            {3, 4, 2, 40, 64, 128, {36, 0, 17}},
            {2, 3, 40, 8, 64, 64, {5, 2}},  // more elements than a thread block has threads
            {2, 7, 1, 30, 576, -1, {3, 23}},
            {2, 7, 1, 30, 33, -1, {3, 23}},
            {2, 3, 2, 12, 16, 8, {7, 9}, true},
            {2, 3, 2, 12, 7, 9, {7, 9}, true},
            {2, 3, 2, 12, 16, 8, {7, 9}, false, true},
            {2, 3, 2, 12, 5, 5, {7, 9}, true, true},
            {2, 3, 2, 12, 24, 8, {7, 9}, false, false, DType::f32},
            {2, 3, 2, 12, 23, 9, {0, 1}, true, false, DType::bf16},
            {1, 9, 2, 12, 32, 32, {3}, true, true, DType::f16},
            {2, 3, 2, 12, 8, 16, {7, 9}, false, false, {}, true},
            {1, 1, 1, 1, 1, 1, {0}, false, false, {}, true},
            // More rows than a thread block has warps. In f32, because so many f16 values would include rounding ties.
            {3, 4, 20, 40, 64, 128, {36, 0, 17}, true, false, DType::f32, true},
            {2, 3, 3, 12, 33, 7, {7, 9}, true, true, {}, true},
            {2, 3, 2, 12, 130, 260, {7, 9}, false, true, DType::f32, true},
            {2, 7, 1, 30, 576, -1, {3, 23}, false, false, {}, true},
            {0, 3, 2, 12, 8, 8, {}, false, false, {}, true},
            {1, 2, 2, 12, 0, 8, {3}, false, false, {}, true},
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
               p.capacity, p.joined ? ", joined" : "", p.rows ? ", views of rows" : "", p.bytes ? ", 8 bits" : "");
  }

  static int64_t width(const Params& p) { return p.heads * (p.d_qk + p.d_v); }
  static std::vector<Input> inputs(const Params& p) {
    // A row slice has one row of the larger cache before it and one after it.
    const int64_t held = p.batch + (p.rows ? 2 : 0);
    const bool values = p.d_v >= 0;
    const auto fresh = [&](int64_t d) {
      return p.joined ? Input{.shape = {p.batch, p.seq, width(p)}, .dtype = p.fresh}
                      : Input{.shape = {p.batch, p.seq, p.heads, d}, .dtype = p.fresh};
    };
    const auto cache = [&](int64_t d) {
      const Shape shape{held, p.heads, p.capacity, d};
      return p.bytes ? Input{.shape = shape, .low = 0, .high = 256, .dtype = DType::u8, .differentiable = false}
                     : Input{.shape = shape};
    };
    const Input scales{.shape = {held, p.heads, p.capacity}, .dtype = DType::f32, .differentiable = false};
    return {cache(p.d_qk),
            values ? cache(p.d_v) : absent(),
            fresh(p.d_qk),
            values && !p.joined ? fresh(p.d_v) : absent(),
            integers({p.batch}, p.places),
            p.bytes ? scales : absent(),
            p.bytes && values ? scales : absent()};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    const bool values = p.d_v >= 0;
    const auto copied = [](const Tensor& tensor) { return tensor.defined() ? tensor.clone() : tensor; };
    const Tensor k_cache = copied(in[0]);
    const Tensor v_cache = copied(in[1]);
    const ops::CacheScales scales{copied(in[5]), copied(in[6])};
    const auto shown = [&](const Tensor& cache) {
      return cache.defined() && p.rows ? cache.slice(0, 1, p.batch) : cache;
    };
    Tensor k = in[2];
    Tensor v = in[3];
    if (p.joined) {
      k = in[2].slice(2, 0, p.heads * p.d_qk).reshape({p.batch, p.seq, p.heads, p.d_qk});
      v = in[2].slice(2, p.heads * p.d_qk, p.heads * p.d_v).reshape({p.batch, p.seq, p.heads, p.d_v});
    }
    ops::cache_store(shown(k_cache), shown(v_cache), k, v, in[4], {shown(scales.k), shown(scales.v)});
    std::vector<Tensor> written{k_cache};
    if (values) written.push_back(v_cache);
    if (p.bytes) written.push_back(scales.k);
    if (p.bytes && values) written.push_back(scales.v);
    return written;
  }

  /// The 8-bit code of column c of a token's head; sets the head's scale.
  template <class S>
  static S rounded(const std::vector<S>& row, size_t c, S& scale) {
    S most = 0;
    for (const S& value : row) most = std::max(most, std::abs(value));
    scale = most / S(127);
    return most == S(0) ? S(128) : S(128) + std::nearbyint(row[c] / scale);
  }

  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    const size_t parts = p.d_v >= 0 ? 2 : 1;
    Arrays<S> written(in.begin(), in.begin() + static_cast<int64_t>(parts));
    for (size_t part = 0; p.bytes && part < parts; ++part) written.push_back(in[5 + part]);
    for (size_t part = 0; part < parts; ++part) {
      const int64_t d = part == 0 ? p.d_qk : p.d_v;
      const Array<S>& source = in[p.joined ? 2 : 2 + part];
      const int64_t across = p.joined ? width(p) : p.heads * d;
      for (int64_t n = 0; n < p.batch * p.seq * p.heads; ++n) {
        const int64_t head = n % p.heads;
        const int64_t token = n / p.heads;
        const int64_t b = token / p.seq;
        const int64_t place = static_cast<int64_t>(p.places[static_cast<size_t>(b)]) + token % p.seq;
        const int64_t to = ((b + (p.rows ? 1 : 0)) * p.heads + head) * p.capacity + place;
        const int64_t first = token * across + (p.joined && part == 1 ? p.heads * p.d_qk : 0) + head * d;
        std::vector<S> row;
        for (int64_t c = 0; c < d; ++c) row.push_back(source[first + c]);
        for (int64_t c = 0; c < d; ++c) {
          const auto at = static_cast<size_t>(c);
          written[part][to * d + c] = p.bytes ? rounded(row, at, written[parts + part][to]) : row[at];
        }
        if (p.bytes && d == 0) written[parts + part][to] = S(0);
      }
    }
    return written;
  }
};
LAMINA_OP_CASE(CacheStoreCase);

}  // namespace
}  // namespace lamina::testing
