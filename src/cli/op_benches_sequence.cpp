// Benchmarks of state-space scans and mixture-of-experts operators.
#include "lamina/cli/op_bench.h"
#include "lamina/ops/moe/dispatch.h"
#include "lamina/ops/moe/grouped_linear.h"
#include "lamina/ops/ssm/selective_scan.h"
#include "lamina/ops/ssm/ssd_scan.h"

namespace lamina::cli {
namespace {

using Setting = OpBenchSetting;
using Tensors = std::vector<Tensor>;

void add_scans(const Setting& s, std::vector<OpBench>& list) {
  const std::vector<OpWay> ways{OpWay::forward, OpWay::backward};
  const int64_t batch = s.pick(8, 1, 1);
  const int64_t seq = s.pick(2048, 1024, 64);
  const int64_t channels = s.pick(1536, 1536, 32);
  constexpr int64_t kState = 16;
  list.push_back(
      {str("selective scan ", batch, "x", seq, "x", channels, ", state ", kState), ways, [=](const Setting& at) {
         const Shape wide{batch, seq, channels};
         const Shape narrow{batch, seq, kState};
         return OpCall{
             {at.random(wide), at.random(wide, -4, -1), at.random_f32({channels, kState}, -8, -1), at.random(narrow),
              at.random(narrow), at.random_f32({channels}), at.random(wide), at.random_f32({channels})},
             [](const Tensors& t) {
               const ops::SelectiveScanExtras extras{.d = t[5], .z = t[6], .delta_bias = t[7], .delta_softplus = true};
               return Tensors{ops::selective_scan(t[0], t[1], t[2], t[3], t[4], extras).y};
             }};
       }});
  const int64_t head_dim = s.pick(64, 64, 16);
  const int64_t heads = channels / head_dim;
  const int64_t state = s.pick(128, 128, 16);
  list.push_back({str("ssd scan ", batch, "x", seq, "x", channels, ", state ", state), ways, [=](const Setting& at) {
                    const Shape narrow{batch, seq, 1, state};
                    return OpCall{{at.random({batch, seq, heads, head_dim}), at.random({batch, seq, heads}, -4, -1),
                                   at.random_f32({heads}, -8, -1), at.random(narrow), at.random(narrow),
                                   at.random_f32({heads}), at.random_f32({heads})},
                                  [](const Tensors& t) {
                                    const ops::SsdExtras extras{.d = t[5], .dt_bias = t[6], .dt_softplus = true};
                                    return Tensors{ops::ssd_scan(t[0], t[1], t[2], t[3], t[4], extras).y};
                                  }};
                  }});
}

void add_experts(const Setting& s, std::vector<OpBench>& list) {
  constexpr int64_t kExperts = 8;
  constexpr int64_t kChosen = 2;
  const std::vector<OpWay> ways{OpWay::forward, OpWay::backward};
  const int64_t tokens = s.pick(16384, 512, 16);
  const int64_t width = s.pick(768, 768, 48);
  const int64_t wide = 4 * width;
  const std::string size = str(tokens, "x", width, ", ", kChosen, " of ", kExperts);
  const auto choices = [=](const Setting& at) { return at.random_ids({tokens, kChosen}, kExperts); };
  list.push_back(
      {str("expert plan ", tokens, ", ", kChosen, " of ", kExperts), {OpWay::forward}, [=](const Setting& at) {
         const Tensor indices = choices(at);
         return OpCall{{},
                       [indices](const Tensors&) { return Tensors{ops::plan_dispatch(indices, kExperts).offsets}; }};
       }});
  list.push_back({"expert dispatch " + size, ways, [=](const Setting& at) {
                    const ops::DispatchPlan plan = ops::plan_dispatch(choices(at), kExperts);
                    return OpCall{{at.random({tokens, width})},
                                  [plan](const Tensors& t) { return Tensors{ops::dispatch(t[0], plan)}; }};
                  }});
  list.push_back({"expert combine " + size, ways, [=](const Setting& at) {
                    const ops::DispatchPlan plan = ops::plan_dispatch(choices(at), kExperts);
                    return OpCall{{at.random({plan.slots, width}), at.random({tokens, kChosen}, 0, 1)},
                                  [plan](const Tensors& t) { return Tensors{ops::combine(t[0], t[1], plan)}; }};
                  }});
  list.push_back({str("grouped linear ", kChosen * tokens, "x", width, "->", wide, ", ", kExperts, " experts"), ways,
                  [=](const Setting& at) {
                    const ops::DispatchPlan plan = ops::plan_dispatch(choices(at), kExperts);
                    return OpCall{{at.random({plan.slots, width}), {at.random({kExperts, wide, width}), DType::f32}},
                                  [offsets = plan.offsets](const Tensors& t) {
                                    return Tensors{ops::grouped_linear(t[0], t[1], offsets)};
                                  }};
                  }});
}

}  // namespace

void add_sequence_benches(const OpBenchSetting& setting, std::vector<OpBench>& list) {
  add_scans(setting, list);
  add_experts(setting, list);
}

}  // namespace lamina::cli
