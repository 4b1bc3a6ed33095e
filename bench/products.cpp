// The shared product against the libraries at the shapes of language models, linear against the same products by
// oneDNN, and cross entropy fused with the output projection against its three products alone. OpenBLAS and BLIS take
// part where they are installed; they are opened at run time and are no dependency.
#include <dlfcn.h>
#include <dnnl.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "lamina/autograd/tape.h"
#include "lamina/ops/linear/gemm.h"
#include "lamina/ops/linear/linear.h"
#include "lamina/ops/loss/cross_entropy.h"
#include "support/suite.h"

namespace lamina::bench {
namespace {

using Cblas = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);

struct Peer {
  std::string name;
  Cblas sgemm = nullptr;
};

std::vector<Peer> open_peers() {
  setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);  // Debian's build mistakes new processors for old ones
  std::vector<Peer> peers;
  const std::pair<const char*, const char*> libraries[] = {{"OpenBLAS", "libopenblas.so.0"}, {"BLIS", "libblis.so.4"}};
  for (const auto& [name, file] : libraries) {
    void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void* symbol = library != nullptr ? dlsym(library, "cblas_sgemm") : nullptr;
    if (symbol != nullptr) peers.push_back({name, reinterpret_cast<Cblas>(symbol)});
  }
  return peers;
}

std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform(random);
  return values;
}

Tensor random_tensor(const Shape& shape, const Device& device, uint32_t seed) {
  return Tensor::from(random_floats(shape.numel(), seed), shape, device);
}

struct Product {
  const char* what;
  int64_t m, k, n;
  bool ta, tb;
  int64_t copies;  ///< of B, taken in turn so that it comes from memory
};

constexpr Product kProducts[] = {
    {"2048³", 2048, 2048, 2048, false, false, 1},   {"up", 16384, 384, 1536, false, true, 1},
    {"down", 16384, 1536, 384, false, true, 1},     {"weight gradient", 384, 16384, 1536, true, false, 1},
    {"characters", 16384, 384, 65, false, true, 1}, {"64 rows", 64, 384, 1536, false, true, 1},
    {"proj", 3072, 384, 384, false, true, 1},       {"qkv", 3072, 384, 1152, false, true, 1},
    {"mlp", 3072, 384, 1536, false, true, 1},       {"mlp weight gradient", 1536, 3072, 384, true, false, 1},
    {"one row", 1, 768, 3072, false, true, 16},
};

void add_product(Context& context, const std::vector<Peer>& peers, const Product& p) {
  const auto a = random_floats(p.m * p.k, 1);
  const auto b = random_floats(p.k * p.n * p.copies, 2);
  std::vector<float> c(static_cast<size_t>(p.m * p.n));
  const int64_t lda = p.ta ? p.m : p.k;
  const int64_t ldb = p.tb ? p.k : p.n;
  int64_t turn = 0;
  const auto weights = [&] { return b.data() + turn++ % p.copies * p.k * p.n; };
  std::vector<std::function<void()>> calls;
  calls.emplace_back([&] {
    ops::gemm(context.device().threads(),
              ops::Gemm<float>{p.ta, p.tb, p.m, p.n, p.k, 1.0F, a.data(), lda, weights(), ldb, 0.0F, c.data(), p.n});
  });
  calls.emplace_back([&] {
    dnnl_sgemm(p.ta ? 'T' : 'N', p.tb ? 'T' : 'N', p.m, p.n, p.k, 1.0F, a.data(), lda, weights(), ldb, 0.0F, c.data(),
               p.n);
  });
  for (const Peer& peer : peers) {
    calls.emplace_back([&, sgemm = peer.sgemm] {
      const auto narrow = [](int64_t value) { return static_cast<int>(value); };
      sgemm(101, p.ta ? 112 : 111, p.tb ? 112 : 111, narrow(p.m), narrow(p.n), narrow(p.k), 1.0F, a.data(), narrow(lda),
            weights(), narrow(ldb), 0.0F, c.data(), narrow(p.n));
    });
  }
  const std::vector<double> times = context.seconds(calls);
  const double flops = 2.0 * static_cast<double>(p.m * p.n * p.k);
  const std::string what = str("gemm ", p.what, " ", p.m, "x", p.k, "x", p.n);
  for (size_t i = 1; i < times.size(); ++i) {
    context.add(
        {what, flops / times[0] * 1e-9, flops / times[i] * 1e-9, "GFLOP/s", i == 1 ? "oneDNN" : peers[i - 2].name});
  }
  const double best = *std::min_element(times.begin() + 1, times.end());
  context.add({what + " time", times[0] * 1e3, best * 1e3, "ms", "best library", std::nullopt, 1.1});
}

void sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, const float* b, float beta, float* c) {
  dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1.0F, a, ta ? m : k, b, tb ? k : n, beta, c, n);
}

/// x·Wᵀ and its gradients by the library alone.
struct PlainProducts {
  int64_t rows, in, out;
  std::vector<float> x, w, y, dx, dw;
  PlainProducts(int64_t r, int64_t i, int64_t o)
      : rows(r),
        in(i),
        out(o),
        x(random_floats(r * i, 1)),
        w(random_floats(o * i, 2)),
        y(random_floats(r * o, 3)),
        dx(static_cast<size_t>(r * i)),
        dw(static_cast<size_t>(o * i)) {}
  void forward() { sgemm(false, true, rows, out, in, x.data(), w.data(), 0, y.data()); }
  void backward() {
    sgemm(false, false, rows, in, out, y.data(), w.data(), 0, dx.data());
    sgemm(true, false, out, in, rows, y.data(), x.data(), 1, dw.data());
  }
};

void add_linear(Context& context, int64_t rows, int64_t in, int64_t out) {
  PlainProducts plain(rows, in, out);
  Tensor x = random_tensor({rows, in}, context.device(), 1);
  Tensor weight = random_tensor({out, in}, context.device(), 2);
  const Tensor dy = random_tensor({rows, out}, context.device(), 3);
  const std::string what = str("linear ", rows, "x", in, "->", out);
  const auto forward = context.seconds([&] { ops::linear(x, weight); }, [&] { plain.forward(); });
  context.add({what + " fwd", forward.first * 1e3, forward.second * 1e3, "ms", "its product", std::nullopt, 1.1});
  Tape tape;
  tape.watch(x);
  tape.watch(weight);
  const auto both = context.seconds(
      [&] {
        const Tensor y = ops::linear(x, weight);
        tape.set_grad(x, {});
        tape.backward({y}, {dy});
      },
      [&] {
        plain.forward();
        plain.backward();
      });
  context.add({what + " fwd+bwd", both.first * 1e3, both.second * 1e3, "ms", "its products", std::nullopt, 1.1});
}

void add_loss(Context& context, int64_t rows, int64_t width, int64_t classes) {
  PlainProducts plain(rows, width, classes);
  const Device& device = context.device();
  Tensor x = random_tensor({rows, width}, device, 1);
  Tensor weight = random_tensor({classes, width}, device, 2);
  std::vector<int64_t> ids(static_cast<size_t>(rows));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 7919) % classes;
  const Tensor targets = Tensor::from(ids, {rows}, device);
  Tape tape;
  tape.watch(x);
  tape.watch(weight);
  const auto step = [&] {
    tape.zero_grad();
    tape.backward(ops::linear_cross_entropy(x, weight, targets));
  };
  const int64_t before = device.allocator().counters().live + x.nbytes() + weight.nbytes();
  device.allocator().reset_peak();
  step();
  const auto extra = static_cast<double>(device.allocator().counters().peak - before);
  const auto times = context.seconds(step, [&] {
    plain.forward();
    plain.backward();
  });
  const std::string what = str("linear_cross_entropy ", rows, "x", width, "->", classes);
  context.add({what, times.first * 1e3, times.second * 1e3, "ms", "its products", std::nullopt, 1.15});
  context.add({what + " extra memory", extra / 1e6, static_cast<double>(rows * classes) * 4e-6, "MB", "the logits",
               std::nullopt, 0.125});
}

void add_scaling(Context& context) {
  const auto on = [](const Device& device) {
    return
        [x = random_tensor({4096, 768}, device, 1), w = random_tensor({3072, 768}, device, 2)] { ops::linear(x, w); };
  };
  const auto [one, all] = context.seconds(on(context.one_thread()), on(context.device()));
  context.add({"linear 4096x768->3072, all threads", 1 / all, 1 / one, "calls/s", "one thread", 1.8});
}

}  // namespace

LAMINA_BENCH_SUITE(products) {
  const std::vector<Peer> peers = open_peers();
  for (const Product& product : kProducts) add_product(context, peers, product);
  for (const auto& [rows, in, out] : std::vector<std::array<int64_t, 3>>{{16384, 384, 1536},
                                                                         {16384, 1536, 384},
                                                                         {16384, 384, 65},
                                                                         {3072, 384, 384},
                                                                         {3072, 384, 1152},
                                                                         {3072, 384, 1536},
                                                                         {64, 384, 1536}}) {
    add_linear(context, rows, in, out);
  }
  add_loss(context, 2048, 768, 50304);
  add_scaling(context);
}

}  // namespace lamina::bench
