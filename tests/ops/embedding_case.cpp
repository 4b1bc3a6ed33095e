#include "lamina/ops/embedding/embedding.h"

#include <random>

#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct EmbeddingCase {
  static constexpr const char* name = "embedding";
  struct Params {
    int64_t rows;
    int64_t width;
    Shape ids;
    int64_t first_row = 0;
    int64_t vocab = 0;
    DType id_type = DType::i64;
    /// Ids are drawn from the first `used` rows only, so that they repeat often; 0 means all rows.
    int64_t used = 0;
  };

  static std::vector<Params> sweep() {
    return {{7, 5, {3, 4}},
            {1, 1, {1}},
            {100, 64, {2, 33}},
            {9, 300, {70}, 0, 0, DType::i32},
            {5, 17, {0, 4}},
            {5, 0, {3}},
            {0, 4, {0}},
            {8, 16, {4, 9}, 8, 32},
            {3, 7, {2, 5}, 9, 12, DType::i32},
            {40, 515, {2, 3, 40}, 0, 0, DType::i64, 1},
            {2000, 3, {500}, 100, 5000},
            {4100, 12, {900}, 0, 0, DType::i64, 2},
            {4100, 5, {300}, 0, 0, DType::i64, 20},
            {4200, 8, {400}}};
  }
  static std::vector<Params> bench() {
    return {{50304, 768, {16, 1024}}, {65, 384, {64, 256}}, {32000, 4096, {4, 2048}}};
  }
  static std::string describe(const Params& p) {
    return str("table [", p.rows, ",", p.width, "] ids ", p.ids, " ", p.id_type,
               p.vocab != 0 ? str(" rows from ", p.first_row, " of ", p.vocab) : "", p.used != 0 ? " frequent" : "");
  }
  static std::vector<int64_t> ids(const Params& p) {
    std::mt19937_64 random(static_cast<uint64_t>(p.rows + p.width));
    const int64_t vocab = p.used != 0 ? p.used : p.vocab != 0 ? p.vocab : p.rows;
    std::vector<int64_t> values(static_cast<size_t>(p.ids.numel()));
    for (int64_t& id : values) id = static_cast<int64_t>(random() % static_cast<uint64_t>(vocab));
    return values;
  }
  static std::vector<Input> inputs(const Params& p) {
    const std::vector<int64_t> chosen = ids(p);
    return {{.shape = {p.rows, p.width}}, integers(p.ids, {chosen.begin(), chosen.end()}, p.id_type)};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::embedding(in[0], in[1], {.first_row = p.first_row, .vocab = p.vocab})};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Shape shape = p.ids;
    shape.push_back(p.width);
    Array<S> y(shape);
    for (int64_t i = 0; i < in[1].numel(); ++i) {
      const auto row = static_cast<int64_t>(value_of(in[1][i])) - p.first_row;
      for (int64_t j = 0; j < p.width; ++j) {
        y[i * p.width + j] = row >= 0 && row < p.rows ? in[0][row * p.width + j] : S(0);
      }
    }
    return {y};
  }
};
LAMINA_OP_CASE(EmbeddingCase);

}  // namespace
}  // namespace lamina::testing
