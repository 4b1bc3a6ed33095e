// Attention against the GEMM library's peak of the same run (only visible query-key pairs count as work), windowed
// against full attention, and one thread against all.
#include "lamina/ops/attention/attention.h"

#include "lamina/autograd/taped_call.h"
#include "support/products.h"
#include "support/suite.h"

namespace lamina::bench {
namespace {

struct Shapes {
  int64_t batch;
  int64_t seq;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  ops::AttentionOptions options = {};
};

/// One attention call and its gradient, for repeated timing.
class Call {
 public:
  Call(const Shapes& s, const Device& device)
      : options_(s.options),
        q_(random_tensor({s.batch, s.seq, s.heads, s.head_dim}, device)),
        k_(random_tensor({s.batch, s.seq, s.kv_heads, s.head_dim}, device)),
        v_(random_tensor({s.batch, s.seq, s.kv_heads, s.head_dim}, device)),
        taped_(
            {q_, k_, v_},
            [options = s.options](const std::vector<Tensor>& in) {
              return std::vector{ops::attention(in[0], in[1], in[2], options)};
            },
            [](const Tensor& y) { return random_tensor(y.shape(), y.device()); }) {}
  void forward() const { ops::attention(q_, k_, v_, options_); }
  void backward() { taped_.backward(); }

 private:
  ops::AttentionOptions options_;
  Tensor q_, k_, v_;
  TapedCall taped_;
};

double flops_of(const Device& device, const std::function<void()>& call) {
  const int64_t before = device.work().flops;
  call();
  return static_cast<double>(device.work().flops - before);
}

void add_share(Context& context, const std::string& what, const Shapes& shapes, bool must) {
  Call call(shapes, context.device());
  const auto add = [&](const std::string& way, const std::function<void()>& body, double least) {
    const double flops = flops_of(context.device(), body);
    Row row{str("attention ", way, " ", what), 1e-9 * flops / context.seconds(body), context.gemm_peak(), "GFLOP/s",
            "sgemm peak"};
    if (must) row.at_least = least;
    context.add(row);
  };
  add(
      "forward", [&] { call.forward(); }, 0.5);
  add(
      "backward", [&] { call.backward(); }, 0.4);
}

void add_threads(Context& context, const Shapes& shapes) {
  Call all(shapes, context.device());
  Call one(shapes, context.one_thread());
  const auto add = [&](const std::string& way, const std::function<void()>& ours, const std::function<void()>& peer) {
    const auto [time, time_one] = context.seconds(ours, peer);
    context.add({"attention " + way + ", all threads", 1 / time, 1 / time_one, "call/s", "one thread"});
  };
  add(
      "forward", [&] { all.forward(); }, [&] { one.forward(); });
  add(
      "backward", [&] { all.backward(); }, [&] { one.backward(); });
}

void add_window(Context& context) {
  Shapes shapes{1, 16384, 1, 1, 64};
  Call full(shapes, context.device());
  shapes.options.pattern = {.kind = ops::AttentionPattern::Kind::window, .window = 256};
  Call window(shapes, context.device());
  const auto add = [&](const std::string& way, const std::function<void()>& ours, const std::function<void()>& peer) {
    const auto [time, time_full] = context.seconds(ours, peer);
    context.add({"attention " + way + ", window 256 of 16384", 1 / time, 1 / time_full, "call/s", "all keys", 20.0});
  };
  add(
      "forward", [&] { window.forward(); }, [&] { full.forward(); });
  add(
      "backward", [&] { window.backward(); }, [&] { full.backward(); });
}

}  // namespace

LAMINA_BENCH_SUITE(attention) {
  ops::AttentionOptions open;
  open.causal = false;
  ops::AttentionOptions dropping;
  dropping.dropout = 0.2;
  add_share(context, "causal [1,2048,8,64]", {1, 2048, 8, 8, 64}, true);
  add_share(context, "open [1,2048,8,64]", {1, 2048, 8, 8, 64, open}, true);
  add_share(context, "causal [1,2048,8/2,128]", {1, 2048, 8, 2, 128}, false);
  add_share(context, "causal [12,256,6,64]", {12, 256, 6, 6, 64}, false);
  add_share(context, "causal, dropout [12,256,6,64]", {12, 256, 6, 6, 64, dropping}, false);
  add_threads(context, {1, 2048, 4, 4, 64});
  add_window(context);
}

}  // namespace lamina::bench
