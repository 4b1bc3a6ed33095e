// The shared product against the libraries at the shapes of language models: time of ours over the best library's.
// OpenBLAS and BLIS take part where they are installed; they are opened at run time and are no dependency.
#include <dlfcn.h>
#include <dnnl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "bench_util.h"
#include "lamina/ops/linear/gemm.h"

namespace lamina::bench {
namespace {

using Cblas = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);

struct Peer {
  std::string name;
  Cblas sgemm = nullptr;
};

std::vector<Peer> open_peers() {
  setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
  std::vector<Peer> peers;
  const std::pair<const char*, const char*> libraries[] = {{"openblas", "libopenblas.so.0"}, {"blis", "libblis.so.4"}};
  for (const auto& [name, file] : libraries) {
    void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void* symbol = library != nullptr ? dlsym(library, "cblas_sgemm") : nullptr;
    if (symbol != nullptr) peers.push_back({name, reinterpret_cast<Cblas>(symbol)});
  }
  return peers;
}

struct Shape {
  const char* what;
  int64_t m, k, n;
  bool ta, tb;
  int64_t copies;  // of B, taken in turn so that it comes from memory
};

const std::vector<Shape> kShapes = {
    {"2048^3", 2048, 2048, 2048, false, false, 1},
    {"up", 16384, 384, 1536, false, true, 1},
    {"up, dx", 16384, 1536, 384, false, false, 1},
    {"down", 16384, 1536, 384, false, true, 1},
    {"weight gradient", 384, 16384, 1536, true, false, 1},
    {"characters", 16384, 384, 65, false, true, 1},
    {"characters, dx", 16384, 65, 384, false, false, 1},
    {"64 rows NN", 64, 384, 1536, false, false, 1},
    {"64 rows NT", 64, 384, 1536, false, true, 1},
    {"16 rows NT", 16, 768, 3072, false, true, 1},
    {"proj", 3072, 384, 384, false, true, 1},
    {"qkv", 3072, 384, 1152, false, true, 1},
    {"mlp", 3072, 384, 1536, false, true, 1},
    {"mlp weight gradient", 1536, 3072, 384, true, false, 1},
    {"256 NT", 256, 64, 256, false, true, 1},
    {"gemv NT", 1, 768, 3072, false, true, 16},
    {"gemv NN", 1, 768, 3072, false, false, 16},
    {"4 rows NT", 4, 768, 3072, false, true, 16},
};

void measure(const Shape& s, const std::vector<Peer>& peers, const Threads& threads) {
  const auto a = random_floats(s.m * s.k, 1);
  const auto b = random_floats(s.k * s.n * s.copies, 2);
  std::vector<float> c(static_cast<size_t>(s.m * s.n));
  const int64_t lda = s.ta ? s.m : s.k;
  const int64_t ldb = s.tb ? s.k : s.n;
  int64_t turn = 0;
  const auto weights = [&] { return b.data() + turn++ % s.copies * s.k * s.n; };
  std::vector<std::function<void()>> bodies{[&] {
                                              ops::gemm(threads,
                                                        ops::Gemm<float>{s.ta, s.tb, s.m, s.n, s.k, 1.0F, a.data(), lda,
                                                                         weights(), ldb, 0.0F, c.data(), s.n});
                                            },
                                            [&] {
                                              dnnl_sgemm(s.ta ? 'T' : 'N', s.tb ? 'T' : 'N', s.m, s.n, s.k, 1.0F,
                                                         a.data(), lda, weights(), ldb, 0.0F, c.data(), s.n);
                                            }};
  for (const Peer& peer : peers) {
    bodies.emplace_back([&, sgemm = peer.sgemm] {
      sgemm(101, s.ta ? 112 : 111, s.tb ? 112 : 111, static_cast<int>(s.m), static_cast<int>(s.n),
            static_cast<int>(s.k), 1.0F, a.data(), static_cast<int>(lda), weights(), static_cast<int>(ldb), 0.0F,
            c.data(), static_cast<int>(s.n));
    });
  }
  const auto times = best_times(bodies, 0.35, threads.count() == 1);
  const double best = *std::min_element(times.begin() + 1, times.end());
  std::printf("%-20s %6ld x%6ld x%6ld", s.what, s.m, s.k, s.n);
  const double flops = 2.0 * static_cast<double>(s.m * s.n * s.k);
  for (const double time : times) std::printf(" %8.1f", flops / time * 1e-9);
  std::printf("   %6.1f GB/s  ours/best %.3f\n", static_cast<double>(s.k * s.n) * 4e-9 / times[0], times[0] / best);
}

}  // namespace
}  // namespace lamina::bench

int main(int argc, char** argv) {
  using namespace lamina::bench;  // NOLINT: a program of one file
  const auto peers = open_peers();
  const lamina::Threads threads(0);
  std::printf("GFLOP/s, %d threads: ours, onednn", threads.count());
  for (const Peer& peer : peers) std::printf(", %s", peer.name.c_str());
  std::printf("\n");
  for (const Shape& shape : kShapes) {
    if (argc > 1 && std::strstr(shape.what, argv[1]) == nullptr) continue;
    measure(shape, peers, threads);
  }
  return 0;
}
