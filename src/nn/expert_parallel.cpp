#include "lamina/nn/expert_parallel.h"

#include "lamina/arch/tensor_shards.h"
#include "lamina/nn/forward_context.h"
#include "lamina/ops/moe/router_loss.h"

namespace lamina::nn {

Tensor ForwardContext::run_experts(const Tensor& sorted, const Tensor& starts, const ops::RunExperts& run) const {
  if (experts == nullptr) return run(sorted, starts);
  std::vector<int64_t> held;
  for (int rank = 0; rank < experts->ranks().size(); ++rank) {
    const arch::UnitRange range = arch::expert_range(starts.dim(0) - 1, experts->ranks().size(), rank);
    held.push_back(range.end - range.begin);
  }
  return ops::run_divided_experts(sorted, starts, held, experts->ranks(), run);
}

Tensor ForwardContext::balance_loss(const Tensor& logits, const Tensor& indices, const Tensor& chosen) const {
  if (experts == nullptr && context) return ops::balance_loss_over_ranks(logits, chosen, *context->ranks);
  if (experts == nullptr) return ops::balance_loss(logits, indices);
  return ops::balance_loss_over_ranks(logits, chosen, experts->all());
}

}  // namespace lamina::nn
