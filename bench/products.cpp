// The library's GEMM against other libraries at language model shapes. OpenBLAS and BLIS take part if installed; they
// are loaded at run time and are no dependency.
#include <dlfcn.h>
#include <dnnl.h>

#include <algorithm>
#include <cstdlib>

#include "lamina/ops/linear/gemm.h"
#include "support/products.h"
#include "support/suite.h"

namespace lamina::bench {
namespace {

using Cblas = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);

struct Peer {
  std::string name;
  Cblas sgemm = nullptr;
};

std::vector<Peer> open_peers() {
  setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);  // Debian's build does not recognize new CPUs
  std::vector<Peer> peers;
  const std::pair<const char*, const char*> libraries[] = {{"OpenBLAS", "libopenblas.so.0"}, {"BLIS", "libblis.so.4"}};
  for (const auto& [name, file] : libraries) {
    void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void* symbol = library != nullptr ? dlsym(library, "cblas_sgemm") : nullptr;
    if (symbol != nullptr) peers.push_back({name, reinterpret_cast<Cblas>(symbol)});
  }
  return peers;
}

struct Product {
  const char* what;
  int64_t m, k, n;
  bool ta, tb;
  int64_t copies;  ///< copies of B, used in rotation so that B comes from memory
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

}  // namespace

LAMINA_BENCH_SUITE(products) {
  const std::vector<Peer> peers = open_peers();
  for (const Product& product : kProducts) add_product(context, peers, product);
}

}  // namespace lamina::bench
