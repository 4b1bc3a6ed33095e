// linear, forward and with gradients, against the same products in oneDNN; and the products of a training step against
// the sgemm peak, measured interleaved.
#include <array>

#include "lamina/autograd/tape.h"
#include "lamina/ops/linear/linear.h"
#include "support/products.h"
#include "support/suite.h"

namespace lamina::bench {
namespace {

/// linear with x, weight and output gradient of one shape.
class Linear {
 public:
  Linear(int64_t rows, int64_t in, int64_t out, const Device& device)
      : x_(random_tensor({rows, in}, device, 1)),
        weight_(random_tensor({out, in}, device, 2)),
        dy_(random_tensor({rows, out}, device, 3)) {
    tape_.watch(x_);
    tape_.watch(weight_);
  }
  void forward() const { ops::linear(x_.detach(), weight_.detach()); }
  void step() {
    const Tensor y = ops::linear(x_, weight_);
    tape_.set_grad(x_, {});
    tape_.backward({y}, {dy_});
  }

 private:
  Tensor x_;
  Tensor weight_;
  Tensor dy_;
  Tape tape_;
};

std::string name_of(int64_t rows, int64_t in, int64_t out) { return str("linear ", rows, "x", in, "->", out); }

void add_linear(Context& context, int64_t rows, int64_t in, int64_t out) {
  PlainProducts plain(rows, in, out);
  Linear linear(rows, in, out, context.device());
  const std::string what = name_of(rows, in, out);
  const auto forward = context.seconds([&] { linear.forward(); }, [&] { plain.forward(); });
  context.add({what + " fwd", forward.first * 1e3, forward.second * 1e3, "ms", "its product", std::nullopt, 1.1});
  const auto both = context.seconds([&] { linear.step(); },
                                    [&] {
                                      plain.forward();
                                      plain.backward();
                                    });
  context.add({what + " fwd+bwd", both.first * 1e3, both.second * 1e3, "ms", "its products", std::nullopt, 1.1});
}

/// Forward and backward of one layer of the 6-layer model of width 384, with 12 x 256 positions.
void add_step(Context& context, int64_t in, int64_t out) {
  constexpr int64_t kRows = 3072;
  PlainProducts plain(kRows, in, out);
  PlainProducts peak(2048, 2048, 2048);
  Linear linear(kRows, in, out, context.device());
  const std::vector<double> times = context.seconds({[&] { linear.step(); },
                                                     [&] {
                                                       plain.forward();
                                                       plain.backward();
                                                     },
                                                     [&] { peak.forward(); }});
  const std::string what = name_of(kRows, in, out) + " fwd+bwd";
  context.add({what, times[0] * 1e3, times[1] * 1e3, "ms", "its products", std::nullopt, 1.1});
  context.add(
      {what, plain.flops() / times[0] * 1e-9, peak.flops() / 3 / times[2] * 1e-9, "GFLOP/s", "sgemm peak", 0.9});
}

void add_linear_threads(Context& context, int64_t rows, int64_t in, int64_t out) {
  Linear on_one(rows, in, out, context.one_thread());
  Linear on_all(rows, in, out, context.device());
  const auto [one, all] = context.seconds([&] { on_one.step(); }, [&] { on_all.step(); });
  context.add({name_of(rows, in, out) + " fwd+bwd, all threads", 1 / all, 1 / one, "calls/s", "one thread", 1.8});
}

/// A few rows, as in batched decoding, against one row, whose time is that of reading the weights.
void add_few_rows(Context& context) {
  constexpr int64_t kIn = 768;
  constexpr int64_t kOut = 2048;
  std::vector<Tensor> weights;  // together far larger than the CPU caches
  for (int i = 0; i < 40; ++i) weights.push_back(random_tensor({kOut, kIn}, context.device(), 5));
  const auto with = [&](int64_t rows) {
    const Tensor x = random_tensor({rows, kIn}, context.device(), 6);
    return [&weights, x] {
      for (const Tensor& weight : weights) ops::linear(x, weight);
    };
  };
  const std::vector<int64_t> counts{1, 4, 8, 16, 32, 64};
  std::vector<std::function<void()>> runs;
  for (const int64_t rows : counts) runs.emplace_back(with(rows));
  const std::vector<double> times = context.seconds(runs);
  for (size_t i = 1; i < counts.size(); ++i) {
    context.add({name_of(counts[i], kIn, kOut) + " fwd, from memory", times[i] * 1e3, times[0] * 1e3, "ms", "one row"});
  }
}

}  // namespace

LAMINA_BENCH_SUITE(products_linear) {
  for (const auto& [rows, in, out] :
       std::vector<std::array<int64_t, 3>>{{16384, 384, 1536}, {16384, 1536, 384}, {16384, 384, 65}, {64, 384, 1536}}) {
    add_linear(context, rows, in, out);
  }
  for (const auto& [in, out] : std::vector<std::array<int64_t, 2>>{
           {384, 1152}, {384, 384}, {384, 1536}, {1536, 384}, {384, 2048}, {1024, 384}}) {
    add_step(context, in, out);
  }
  add_few_rows(context);
  add_linear_threads(context, 3072, 384, 1536);
  add_linear_threads(context, 4096, 768, 3072);
}

}  // namespace lamina::bench
