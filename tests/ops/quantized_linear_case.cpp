#include "lamina/ops/linear/quantized_linear.h"

#include "ops/exact_blocks.h"
#include "ops/linear_oracle.h"
#include "support/op_case.h"

namespace lamina::testing {
namespace {

using ops::Activation;
using ops::QuantizedFormat;

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
                                                 {{1, 288}, 864, format, true, Activation::gelu},
                                                 {{1, 768}, 3072},
                                                 {{3, 4096}, 1000, format, true},
                                                 {{8, 7}, 5, format, true, Activation::tanh},
                                                 {{1, 4361}, 9, format, true},
                                                 {{6, 1100}, 40},
                                                 {{30, 40}, 17, format, true},
                                                 {{70, 33}, 18}}) {
        all.push_back(p);
        all.back().format = format;
      }
    }
    return all;
  }
  /// Numbers of rows around the tiles of GPU kernels, at widths that several warps and copies share.
  static std::vector<Params> gpu_sweep() {
    std::vector<Params> all;
    for (const QuantizedFormat format : {QuantizedFormat::q8, QuantizedFormat::q4}) {
      for (const int64_t rows : {1, 2, 7, 8, 9, 16, 31, 32, 33, 64, 65, 128, 256, 257}) {
        all.push_back({{rows, 288}, 80, format, rows % 2 == 1, rows % 3 == 0 ? Activation::silu : Activation::none});
      }
      for (const int64_t rows : {1, 8, 32, 72}) all.push_back({{rows, 2048}, 336, format});
      all.insert(all.end(), {{{1, 5632}, 200, format, true},
                             {{5, 2052}, 50, format},
                             {{20, 1000}, 70, format, true},
                             {{40, 104}, 4099, format},
                             {{40, 4096}, 72, format},
                             {{129, 40}, 4300, format, true, Activation::silu},
                             {{1, 64}, 40000, format},
                             {{3, 36}, 70000, format, true}});
    }
    return all;
  }
  static std::vector<Params> bench() {
    return {{{1, 768}, 3072},   {{1, 768}, 3072, QuantizedFormat::q4},  {{1, 288}, 864},
            {{1, 4096}, 4096},  {{1, 4096}, 4096, QuantizedFormat::q4}, {{8, 4096}, 4096},
            {{512, 768}, 2048}, {{512, 768}, 2048, QuantizedFormat::q4}};
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
    return {linear_oracle(in[0], in[1], in[2], p.activation)};
  }
};
LAMINA_OP_CASE(QuantizedLinearCase);

}  // namespace
}  // namespace lamina::testing
