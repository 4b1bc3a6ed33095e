#include "lamina/ops/linear/quantized_linear.h"

#include <cmath>

#include "support/op_case.h"

namespace lamina::testing {
namespace {

using ops::Activation;
using ops::QuantizedFormat;

/// Numbers that rounding in blocks leaves as they are: whole multiples, up to `most`, of a power of two, one of each
/// block being `extreme`. What is left to err is the product itself; what rounding costs, quantized_linear_test says.
std::vector<double> exact_values(int64_t rows, int64_t width, int64_t low, int64_t high, int64_t extreme) {
  std::vector<double> values;
  uint64_t random = 12345 + static_cast<uint64_t>(rows * 31 + width);
  for (int64_t i = 0; i < rows * width; ++i) {
    random = random * 6364136223846793005U + 1442695040888963407U;
    const int64_t column = i % width;
    const auto spread = static_cast<uint64_t>(high - low + 1);
    const auto number = column % 32 == (i / width) % 5 || width - column == 1
                            ? extreme
                            : low + static_cast<int64_t>((random >> 33U) % spread);
    values.push_back(std::ldexp(static_cast<double>(number), static_cast<int>((column / 32 + i / width) % 4) - 9));
  }
  return values;
}

struct QuantizedLinearCase {
  static constexpr const char* name = "quantized_linear";
  static constexpr bool kBackward = false;
  static std::vector<DType> dtypes() { return {DType::f32, DType::bf16, DType::f16}; }
  struct Params {
    Shape shape;
    int64_t out = 1;
    QuantizedFormat format = QuantizedFormat::q8;
    bool bias = false;
    Activation activation = Activation::none;
  };

  static std::vector<Params> sweep() {
    std::vector<Params> all;
    for (const QuantizedFormat format : {QuantizedFormat::q8, QuantizedFormat::q4}) {
      for (const Params& p : std::vector<Params>{{{1, 64}, 16},
                                                 {{1, 1}, 1},
                                                 {{2, 3, 40}, 33, format, true},
                                                 {{0, 8}, 4, format, true},
                                                 {{3, 0}, 4, format, true, Activation::silu},
                                                 {{5, 8}, 0},
                                                 {{7, 96}, 50, format, false, Activation::relu},
                                                 {{13, 320}, 65, format, true},
                                                 {{4, 33}, 300},
                                                 {{30, 40}, 17, format, true},
                                                 {{70, 33}, 18}}) {
        all.push_back(p);
        all.back().format = format;
      }
    }
    return all;
  }
  static std::vector<Params> bench() {
    return {{{1, 768}, 3072},
            {{1, 768}, 3072, QuantizedFormat::q4},
            {{512, 768}, 2048},
            {{512, 768}, 2048, QuantizedFormat::q4}};
  }
  static std::string describe(const Params& p) {
    return str(p.shape, " -> ", p.out, " ", ops::name_of(p.format), p.bias ? " bias" : "", " activation ",
               static_cast<int>(p.activation));
  }
  static std::vector<Input> inputs(const Params& p) {
    const int64_t in = p.shape[-1];
    const bool bytes = p.format == QuantizedFormat::q8;
    return {{.shape = p.shape, .values = exact_values(p.shape.rows(), in, -127, 127, 127)},
            {.shape = {p.out, in},
             .values = bytes ? exact_values(p.out, in, -127, 127, -127) : exact_values(p.out, in, -8, 7, -8)},
            p.bias ? Input{.shape = {p.out}} : absent()};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::quantized_linear(in[0], ops::quantize(in[1], p.format), in[2], p.activation)};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    using std::exp;
    Shape shape = p.shape;
    const int64_t width = shape[-1];
    shape[-1] = p.out;
    Array<S> y(shape);
    for (int64_t i = 0; i < p.shape.rows(); ++i) {
      for (int64_t j = 0; j < p.out; ++j) {
        S sum = 0;
        for (int64_t l = 0; l < width; ++l) sum += in[0][i * width + l] * in[1][j * width + l];
        if (p.bias) sum += in[2][j];
        if (p.activation == Activation::relu) sum = sum > S(0) ? sum : S(0);
        if (p.activation == Activation::silu) sum = sum / (S(1) + exp(-sum));
        y[i * p.out + j] = sum;
      }
    }
    return {y};
  }
};
LAMINA_OP_CASE(QuantizedLinearCase);

}  // namespace
}  // namespace lamina::testing
