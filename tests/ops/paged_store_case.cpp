#include "ops/paged_oracle.h"

namespace lamina::testing {
namespace {

struct PagedStoreCase {
  static constexpr const char* name = "paged_store";
  static constexpr bool kBackward = false;
  struct Params {
    PagedLayout layout;
    int64_t heads, d_qk, d_v;  ///< d_v < 0: no values
    bool packed = false;       ///< k and v are slices of one packed projection
    std::optional<DType> fresh;
    bool bytes = false;  ///< 8-bit pages with scales
  };

  static std::vector<Params> sweep() {
    const PagedLayout mixed{16, {{0, 1}, {15, 1}, {16, 1}, {0, 0}, {31, 20}, {0, 40}}};
    const PagedLayout step{32, {{64, 1}, {0, 0}, {31, 1}}, true};
    const PagedLayout padded{16, {{3, 2}}, false, 0, 2};
    return {{mixed, 2, 8, 16},
            {mixed, 3, 5, 3},
            {mixed, 2, 64, 64, true},
            {mixed, 3, 7, 9, true, DType::bf16},
            {step, 4, 64, 64, true},
            {step, 1, 576, -1},
            {step, 40, 64, 64, false, DType::f32},
            {padded, 2, 24, 24},
            {padded, 2, 24, 24, false, DType::f16},
            {{16, {{100, 30}}, false, 20}, 2, 16, 16},
            {mixed, 2, 64, 128, true, DType::f32, true},
            {mixed, 3, 33, 7, false, DType::f32, true},
            {step, 1, 576, -1, false, DType::f32, true},
            {{16, {}}, 2, 8, 8},
            {mixed, 2, 0, 8},
            {mixed, 0, 8, 8}};
  }
  static std::vector<Params> bench() {
    return {{{32, std::vector<PagedLayout::Row>(256, {500, 1}), true}, 4, 64, 64, true, DType::bf16},
            {{32, {{0, 4096}}}, 4, 64, 64, true, DType::bf16}};
  }
  static std::string describe(const Params& p) {
    return str(p.layout.describe(), ", ", p.heads, " heads of ", p.d_qk, " and ", p.d_v, p.packed ? ", packed" : "",
               p.bytes ? ", 8 bits" : "");
  }

  static std::vector<Input> inputs(const Params& p) {
    const int64_t tokens = p.layout.tokens();
    const bool values = p.d_v >= 0;
    const auto pages = [&](int64_t d) {
      const Shape shape{p.layout.pages(), p.heads, p.layout.page_size, d};
      return p.bytes ? Input{.shape = shape, .low = 0, .high = 256, .dtype = DType::u8, .differentiable = false}
                     : Input{.shape = shape};
    };
    const auto fresh = [&](int64_t d) { return Input{.shape = {tokens, p.heads, d}, .dtype = p.fresh}; };
    const Input scales{
        .shape = {p.layout.pages(), p.heads, p.layout.page_size}, .dtype = DType::f32, .differentiable = false};
    std::vector<Input> all{p.packed ? fresh(p.d_qk + p.d_v) : fresh(p.d_qk),
                           p.packed || !values ? absent() : fresh(p.d_v),
                           pages(p.d_qk),
                           values ? pages(p.d_v) : absent(),
                           p.bytes ? scales : absent(),
                           p.bytes && values ? scales : absent()};
    const std::vector<Input> rows = p.layout.inputs();
    all.insert(all.end(), rows.begin(), rows.end());
    return all;
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    const auto copied = [](const Tensor& tensor) { return tensor.defined() ? tensor.clone() : tensor; };
    const ops::PagedCache cache{copied(in[2]), copied(in[3]), {copied(in[4]), copied(in[5])}};
    const Tensor k = p.packed ? in[0].slice(2, 0, p.d_qk) : in[0];
    const Tensor v = p.packed ? in[0].slice(2, p.d_qk, p.d_v) : in[1];
    ops::paged_store(cache, p.layout.make(in[6], in[7], in[8]), k, v);
    std::vector<Tensor> written;
    for (const Tensor& tensor : {cache.k, cache.v, cache.scales.k, cache.scales.v}) {
      if (tensor.defined()) written.push_back(tensor);
    }
    return written;
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    const size_t parts = p.d_v >= 0 ? 2 : 1;
    Arrays<S> written;
    for (size_t part = 0; part < parts; ++part) written.push_back(in[2 + part]);
    for (size_t part = 0; p.bytes && part < parts; ++part) written.push_back(in[4 + part]);
    for (size_t part = 0; part < parts; ++part) {
      const int64_t d = part == 0 ? p.d_qk : p.d_v;
      Array<S> fresh({p.layout.tokens(), p.heads, d});
      const int64_t across = p.packed ? p.d_qk + p.d_v : d;
      for (int64_t n = 0; n < p.layout.tokens() * p.heads * d; ++n) {
        fresh[n] = in[p.packed ? 0 : part][n / d * across + (p.packed && part == 1 ? p.d_qk : 0) + n % d];
      }
      oracle_store(p.layout, fresh, p.heads, d, DType::f64, written[part], p.bytes ? &written[parts + part] : nullptr);
    }
    return written;
  }
};
LAMINA_OP_CASE(PagedStoreCase);

}  // namespace
}  // namespace lamina::testing
