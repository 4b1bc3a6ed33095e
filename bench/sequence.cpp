// Scaling of the scans with length and threads. The operator suite has rates against the machine's limits.
#include "lamina/autograd/taped_call.h"
#include "lamina/ops/ssm/selective_scan.h"
#include "lamina/ops/ssm/ssd_scan.h"
#include "support/products.h"
#include "support/suite.h"

namespace lamina::bench {
namespace {

using Scan = std::function<std::function<void()>(const Device&, int64_t seq, bool backward)>;

std::function<void()> with_gradient(const std::vector<Tensor>& inputs, bool backward,
                                    const std::function<Tensor(const std::vector<Tensor>&)>& run) {
  if (!backward) return [inputs, run] { run(inputs); };
  auto taped = std::make_shared<TapedCall>(
      std::vector<TapedCall::Leaf>(inputs.begin(), inputs.end()),
      [run](const std::vector<Tensor>& in) { return std::vector{run(in)}; }, [](const Tensor& y) { return y.clone(); });
  return [taped] { taped->forward_and_backward(); };
}

std::function<void()> selective(const Device& d, int64_t seq, bool backward) {
  return with_gradient(
      {random_tensor({1, seq, 1536}, d), random_tensor({1, seq, 1536}, d, 1, -4, -1),
       random_tensor({1536, 16}, d, 1, -8, -1), random_tensor({1, seq, 16}, d), random_tensor({1, seq, 16}, d),
       random_tensor({1, seq, 1536}, d)},
      backward, [](const std::vector<Tensor>& in) {
        return ops::selective_scan(in[0], in[1], in[2], in[3], in[4], {.z = in[5], .delta_softplus = true}).y;
      });
}

std::function<void()> chunked(const Device& d, int64_t seq, bool backward) {
  return with_gradient(
      {random_tensor({1, seq, 24, 64}, d), random_tensor({1, seq, 24}, d, 1, -4, -1), random_tensor({24}, d, 1, -8, -1),
       random_tensor({1, seq, 1, 128}, d), random_tensor({1, seq, 1, 128}, d)},
      backward, [](const std::vector<Tensor>& in) {
        return ops::ssd_scan(in[0], in[1], in[2], in[3], in[4], {.dt_softplus = true}).y;
      });
}

void add_scan(Context& context, const std::string& name, const Scan& scan) {
  for (const bool backward : {false, true}) {
    const std::string pass = backward ? " fwd+bwd" : " fwd";
    const auto times = context.seconds({scan(context.device(), 1024, backward), scan(context.device(), 4096, backward),
                                        scan(context.one_thread(), 4096, backward)});
    context.add({name + " length 4096" + pass, times[1] / 4096 * 1e6, times[0] / 1024 * 1e6, "µs/token", "length 1024",
                 std::nullopt, 1.25});
    context.add({name + " length 4096" + pass + ", all threads", 4096 / times[1], 4096 / times[2], "tokens/s",
                 "one thread", 1.8});
  }
}

}  // namespace

LAMINA_BENCH_SUITE(sequence) {
  add_scan(context, "selective_scan 1536 channels, state 16", selective);
  add_scan(context, "ssd_scan 24 heads of 64, state 128", chunked);
}

}  // namespace lamina::bench
