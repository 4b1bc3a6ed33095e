// Experts and state spaces: time per call with one and two threads, against what the machine was measured to do in the
// same process: copying memory, and an f32 product of 1024³ as the library runs it.
//   sequence_bench [filter] [--json file]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "lamina/autograd/tape.h"
#include "lamina/ops/linear/gemm.h"
#include "lamina/ops/moe/dispatch.h"
#include "lamina/ops/moe/grouped_linear.h"
#include "lamina/ops/moe/route.h"
#include "lamina/ops/ssm/causal_conv1d.h"
#include "lamina/ops/ssm/long_conv.h"
#include "lamina/ops/ssm/s4d.h"
#include "lamina/ops/ssm/selective_scan.h"
#include "lamina/ops/ssm/ssd_scan.h"

namespace lamina {
namespace {

double seconds(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  call();
  double best = 1e30;
  double total = 0;
  for (int repeat = 0; repeat < 20 && (repeat < 3 || total < 0.25); ++repeat) {
    const auto begin = Clock::now();
    call();
    const double passed = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::min(best, passed);
    total += passed;
  }
  return best;
}

Tensor draw(const Shape& shape, const Device& device, double low = -1, double high = 1) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  uint32_t state = 12345;
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(low + (high - low) * (state >> 8) / 16777216.0);
  }
  return Tensor::from(values, shape, device);
}

/// What one thread count reaches: bytes and multiply-adds per second.
struct Limits {
  double bytes, flops;
  explicit Limits(const Device& device) {
    const int64_t n = 1024;
    const Tensor a = draw({n, n}, device);
    Tensor c = Tensor::zeros({n, n}, DType::f32, device);
    const ops::Gemm<float> product{.m = n,
                                   .n = n,
                                   .k = n,
                                   .a = a.data<float>(),
                                   .lda = n,
                                   .b = a.data<float>(),
                                   .ldb = n,
                                   .c = c.data<float>(),
                                   .ldc = n};
    flops = 2.0 * n * n * n / seconds([&] { ops::gemm(device.threads(), product); });
    const Tensor from = draw({1 << 24}, device);
    Tensor to = Tensor::zeros(from.shape(), DType::f32, device);
    bytes = 2.0 * static_cast<double>(from.nbytes()) / seconds([&] { to.copy_(from); });
  }
};

/// One operator at one size: given a device, makes its inputs and returns the call to time and the work it announces.
struct Subject {
  std::string name;
  double tokens;
  std::function<std::vector<Tensor>(const Device&)> inputs;
  std::function<Tensor(const std::vector<Tensor>&)> run;
};

struct Timing {
  double time;
  Work work;
};

Timing measure(const Subject& subject, const Device& device, bool backward) {
  std::vector<Tensor> in = subject.inputs(device);
  Tape tape;
  if (backward) {
    for (Tensor& input : in) {
      if (is_floating(input.dtype())) tape.watch(input);
    }
  }
  const auto call = [&] {
    const Tensor y = subject.run(in);
    if (!backward) return;
    tape.backward({y}, {y.detach()});
    tape.zero_grad();
  };
  call();
  device.reset_work();
  call();
  const Work work = device.work();
  return {seconds(call), work};
}

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const int64_t seq : {512, 2048, 8192}) {
    all.push_back(
        {"selective_scan 1x" + std::to_string(seq) + "x1536 n16", static_cast<double>(seq),
         [seq](const Device& d) {
           return std::vector<Tensor>{draw({1, seq, 1536}, d),     draw({1, seq, 1536}, d, -4, -1),
                                      draw({1536, 16}, d, -8, -1), draw({1, seq, 16}, d),
                                      draw({1, seq, 16}, d),       draw({1, seq, 1536}, d)};
         },
         [](const std::vector<Tensor>& in) {
           return ops::selective_scan(in[0], in[1], in[2], in[3], in[4], {.z = in[5], .delta_softplus = true}).y;
         }});
  }
  for (const int64_t seq : {512, 2048, 8192}) {
    all.push_back({"ssd_scan 1x" + std::to_string(seq) + "x24x64 n128", static_cast<double>(seq),
                   [seq](const Device& d) {
                     return std::vector<Tensor>{draw({1, seq, 24, 64}, d), draw({1, seq, 24}, d, -4, -1),
                                                draw({24}, d, -8, -1), draw({1, seq, 1, 128}, d),
                                                draw({1, seq, 1, 128}, d)};
                   },
                   [](const std::vector<Tensor>& in) {
                     return ops::ssd_scan(in[0], in[1], in[2], in[3], in[4], {.dt_softplus = true}).y;
                   }});
  }
  all.push_back({"causal_conv1d 4x2048x1536 k4 silu", 4 * 2048,
                 [](const Device& d) {
                   return std::vector<Tensor>{draw({4, 2048, 1536}, d), draw({1536, 4}, d), draw({1536}, d)};
                 },
                 [](const std::vector<Tensor>& in) {
                   return ops::causal_conv1d(in[0], in[1], in[2], {}, ops::ConvActivation::silu);
                 }});
  const auto s4d_inputs = [](int64_t seq) {
    return [seq](const Device& d) {
      return std::vector<Tensor>{draw({512}, d, -6, -2), draw({512, 32}, d, -1, 0), draw({512, 32}, d, 0, 90),
                                 draw({512, 32, 2}, d), draw({2, seq, 512}, d)};
    };
  };
  all.push_back({"s4d_kernel 512 n32 length 4096", 4096, s4d_inputs(1), [](const std::vector<Tensor>& in) {
                   return ops::s4d_kernel({in[0], in[1], in[2], in[3]}, 4096);
                 }});
  for (const int64_t seq : {512, 2048}) {
    all.push_back({"s4d_recurrence 2x" + std::to_string(seq) + "x512 n32", 2.0 * static_cast<double>(seq),
                   s4d_inputs(seq), [](const std::vector<Tensor>& in) {
                     return ops::s4d_recurrence(in[4], {in[0], in[1], in[2], in[3]}).y;
                   }});
  }
  all.push_back({"long_conv 2x2048x256", 2 * 2048,
                 [](const Device& d) {
                   return std::vector<Tensor>{draw({2, 2048, 256}, d), draw({256, 2048}, d)};
                 },
                 [](const std::vector<Tensor>& in) { return ops::long_conv(in[0], in[1]); }});
  return all;
}

std::vector<Subject> expert_subjects() {
  const int64_t tokens = 8192;
  const auto choices = [](const Device& d, int64_t k, int64_t experts) {
    return ops::route_top_k(draw({tokens, experts}, d), {.k = k}).indices;
  };
  std::vector<Subject> all;
  all.push_back(
      {"route_top_k 8192, 8 of 256 sigmoid", tokens,
       [](const Device& d) {
         return std::vector<Tensor>{draw({tokens, 256}, d)};
       },
       [](const std::vector<Tensor>& in) {
         return ops::route_top_k(in[0], {.k = 8, .score = ops::RouterScore::sigmoid, .normalize = true}).weights;
       }});
  all.push_back({"dispatch 8192x1024, 2 of 8", tokens,
                 [choices](const Device& d) {
                   return std::vector<Tensor>{draw({tokens, 1024}, d), choices(d, 2, 8)};
                 },
                 [](const std::vector<Tensor>& in) { return ops::dispatch(in[0], ops::plan_dispatch(in[1], 8)); }});
  all.push_back(
      {"combine 8192x1024, 2 of 8", tokens,
       [choices](const Device& d) {
         return std::vector<Tensor>{draw({2 * tokens, 1024}, d), draw({tokens, 2}, d), choices(d, 2, 8)};
       },
       [](const std::vector<Tensor>& in) { return ops::combine(in[0], in[1], ops::plan_dispatch(in[2], 8)); }});
  all.push_back(
      {"grouped_linear 4096 rows, 8 x 512->1024", 4096,
       [](const Device& d) {
         std::vector<int64_t> offsets;
         for (int64_t e = 0; e <= 8; ++e) offsets.push_back(512 * e);
         return std::vector<Tensor>{draw({4096, 512}, d), draw({8, 1024, 512}, d), Tensor::from(offsets, {9}, d)};
       },
       [](const std::vector<Tensor>& in) { return ops::grouped_linear(in[0], in[1], in[2]); }});
  return all;
}

int run(const std::string& filter, const std::string& json_path) {
  const Device one = Device::cpu(1);
  const Device two = Device::cpu(2);
  const Limits limit_one(one);
  const Limits limit(two);
  std::printf("limits: 1 thread %.0f GFLOP/s %.1f GB/s, 2 threads %.0f GFLOP/s %.1f GB/s\n", limit_one.flops / 1e9,
              limit_one.bytes / 1e9, limit.flops / 1e9, limit.bytes / 1e9);
  std::printf("%-42s %-8s %9s %10s %8s %8s %8s %8s %8s\n", "", "", "ms", "tokens/s", "GFLOP/s", "of limit", "GB/s",
              "of limit", "2T / 1T");
  nlohmann::json results = nlohmann::json::array();
  std::vector<Subject> all = subjects();
  for (Subject& subject : expert_subjects()) all.push_back(std::move(subject));
  for (const Subject& subject : all) {
    if (subject.name.find(filter) == std::string::npos) continue;
    for (const bool backward : {false, true}) {
      const Timing single = measure(subject, one, backward);
      const Timing both = measure(subject, two, backward);
      const double flops = static_cast<double>(both.work.flops) / both.time;
      const double bytes = static_cast<double>(both.work.bytes) / both.time;
      const char* pass = backward ? "fwd+bwd" : "forward";
      std::printf("%-42s %-8s %9.3f %10.0f %8.1f %8.2f %8.1f %8.2f %8.2f\n", subject.name.c_str(), pass,
                  both.time * 1e3, subject.tokens / both.time, flops / 1e9, flops / limit.flops, bytes / 1e9,
                  bytes / limit.bytes, single.time / both.time);
      results.push_back({{"name", subject.name},
                         {"pass", pass},
                         {"seconds", both.time},
                         {"tokens_per_second", subject.tokens / both.time},
                         {"flops_of_limit", flops / limit.flops},
                         {"bytes_of_limit", bytes / limit.bytes},
                         {"speedup_two_threads", single.time / both.time}});
    }
  }
  if (!json_path.empty()) std::ofstream(json_path) << results.dump(2) << '\n';
  return 0;
}

}  // namespace
}  // namespace lamina

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::string filter;
  std::string json_path;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json_path = argv[++i];
    } else {
      filter = argv[i];
    }
  }
  return lamina::run(filter, json_path);
}
