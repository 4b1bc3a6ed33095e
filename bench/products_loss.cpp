// Cross entropy fused with the output projection, against its three products alone in oneDNN, unchunked.
#include "lamina/autograd/tape.h"
#include "lamina/ops/loss/cross_entropy.h"
#include "support/products.h"
#include "support/suite.h"

namespace lamina::bench {
namespace {

class Loss {
 public:
  Loss(int64_t rows, int64_t width, int64_t classes, const Device& device)
      : x_(random_tensor({rows, width}, device, 1)), weight_(random_tensor({classes, width}, device, 2)) {
    std::vector<int64_t> ids(static_cast<size_t>(rows));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 7919) % classes;
    targets_ = Tensor::from(ids, {rows}, device);
    tape_.watch(x_);
    tape_.watch(weight_);
  }
  void step() {
    tape_.zero_grad();
    tape_.backward(ops::linear_cross_entropy(x_, weight_, targets_));
  }
  /// Peak bytes that the first step allocates beyond inputs and gradients.
  int64_t extra_bytes() {
    Allocator& allocator = x_.device().allocator();
    allocator.reset_peak();
    step();
    return allocator.counters().peak - allocator.counters().live;
  }

 private:
  Tensor x_;
  Tensor weight_;
  Tensor targets_;
  Tape tape_;
};

void add_loss(Context& context, int64_t rows, int64_t width, int64_t classes) {
  PlainProducts plain(rows, width, classes);
  Loss loss(rows, width, classes, context.device());
  const auto extra = static_cast<double>(loss.extra_bytes());
  const auto times = context.seconds([&] { loss.step(); },
                                     [&] {
                                       plain.forward();
                                       plain.backward();
                                     });
  const std::string what = str("linear_cross_entropy ", rows, "x", width, "->", classes);
  context.add({what, times.first * 1e3, times.second * 1e3, "ms", "its products", std::nullopt, 1.15});
  context.add({what + " extra memory", extra / 1e6, static_cast<double>(rows * classes) * 4e-6, "MB", "the logits",
               std::nullopt, 0.125});
}

void add_loss_threads(Context& context, int64_t rows, int64_t width, int64_t classes) {
  Loss on_one(rows, width, classes, context.one_thread());
  Loss on_all(rows, width, classes, context.device());
  const auto [one, all] = context.seconds([&] { on_one.step(); }, [&] { on_all.step(); });
  context.add({str("linear_cross_entropy ", rows, "x", width, "->", classes, ", all threads"), 1 / all, 1 / one,
               "calls/s", "one thread", 1.8});
}

}  // namespace

LAMINA_BENCH_SUITE(products_loss) {
  add_loss(context, 2048, 768, 50304);
  add_loss(context, 4096, 384, 8192);
  add_loss_threads(context, 2048, 768, 50304);
  add_loss_threads(context, 4096, 384, 8192);
  add_loss_threads(context, 1024, 384, 16384);
}

}  // namespace lamina::bench
