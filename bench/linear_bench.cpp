// Linear, forward and backward, against the same products by oneDNN's sgemm; cross entropy fused with the output
// projection against its three products alone, and the share of the logits it holds; two threads against one.
#include <dnnl.h>

#include <cstdio>
#include <cstring>

#include "bench_util.h"
#include "lamina/autograd/tape.h"
#include "lamina/ops/linear/linear.h"
#include "lamina/ops/loss/cross_entropy.h"

namespace lamina::bench {
namespace {

Tensor random_tensor(const Shape& shape, const Device& device, uint32_t seed) {
  return Tensor::from(random_floats(shape.numel(), seed), shape, device);
}

void sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, const float* b, float beta, float* c) {
  dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1.0F, a, ta ? m : k, b, tb ? k : n, beta, c, n);
}

/// The buffers of x·Wᵀ and its gradients, for the library's side.
struct Products {
  int64_t rows, in, out;
  std::vector<float> x, w, y, dx, dw;
  Products(int64_t r, int64_t i, int64_t o)
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

void linear_line(int64_t rows, int64_t in, int64_t out, bool processor) {
  const Device device = Device::cpu();
  Products peer(rows, in, out);
  const Tensor x = random_tensor({rows, in}, device, 1);
  Tensor weight = random_tensor({out, in}, device, 2);
  const Tensor dy = random_tensor({rows, out}, device, 3);
  Tape tape;
  tape.watch(weight);
  const auto forward =
      best_times({[&] { ops::linear(x.detach(), weight.detach()); }, [&] { peer.forward(); }}, 0.4, processor);
  Tensor leaf = x.detach();
  tape.watch(leaf);
  const auto both = best_times({[&] {
                                  const Tensor y = ops::linear(leaf, weight);
                                  tape.set_grad(leaf, {});
                                  tape.backward({y}, {dy});
                                },
                                [&] {
                                  peer.forward();
                                  peer.backward();
                                }},
                               0.6, processor);
  std::printf("linear %6ld x %5ld -> %5ld   forward %8.2f ms, ratio %.3f   forward and backward %8.2f ms, ratio %.3f\n",
              rows, in, out, forward[0] * 1e3, forward[0] / forward[1], both[0] * 1e3, both[0] / both[1]);
}

void loss_line(int64_t rows, int64_t width, int64_t classes, bool processor) {
  const Device device = Device::cpu();
  Products peer(rows, width, classes);
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
  const int64_t before = device.allocator().counters().live;
  device.allocator().reset_peak();
  step();
  const int64_t gradients = x.nbytes() + weight.nbytes();
  const int64_t extra = device.allocator().counters().peak - before - gradients;
  const auto times = best_times({step,
                                 [&] {
                                   peer.forward();
                                   peer.backward();
                                 }},
                                1.0, processor);
  std::printf("cross entropy %ld x %ld -> %ld   %8.1f ms, over its products %.3f, extra memory %.4f of the logits\n",
              rows, width, classes, times[0] * 1e3, times[0] / times[1],
              static_cast<double>(extra) / static_cast<double>(rows * classes * 4));
}

void threads_line() {
  const Device one = Device::cpu(1);
  const Device two = Device::cpu(2);
  const auto run_on = [](const Device& device) {
    return
        [x = random_tensor({4096, 768}, device, 1), w = random_tensor({3072, 768}, device, 2)] { ops::linear(x, w); };
  };
  const auto times = best_times({run_on(one), run_on(two)}, 1.0);
  std::printf("linear 4096 x 768 -> 3072   two threads %.2f times as fast as one\n", times[0] / times[1]);
}

}  // namespace
}  // namespace lamina::bench

int main(int argc, char** argv) {
  using namespace lamina::bench;  // NOLINT: a program of one file
  const bool processor = lamina::Threads(0).count() == 1;
  const auto wanted = [&](const char* part) { return argc < 2 || std::strcmp(argv[1], part) == 0; };
  if (wanted("linear")) {
    linear_line(16384, 384, 1536, processor);
    linear_line(16384, 1536, 384, processor);
    linear_line(16384, 384, 65, processor);
    linear_line(3072, 384, 384, processor);
    linear_line(3072, 384, 1152, processor);
    linear_line(3072, 384, 1536, processor);
    linear_line(64, 384, 1536, processor);
    linear_line(1, 768, 3072, processor);
  }
  if (wanted("loss")) loss_line(2048, 768, 50304, processor);
  if (wanted("threads")) threads_line();
  return 0;
}
