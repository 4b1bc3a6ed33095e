#include "lamina/nn/tensor_parallel.h"

#include "lamina/nn/forward_context.h"
#include "lamina/ops/parallel/collectives.h"

namespace lamina::nn {
namespace {

constexpr const char* kInput = "sublayer input";
constexpr const char* kOutput = "sublayer output";

/// Index of the first token in a rank's share.
int64_t first_token(int64_t tokens, int rank, int ranks) { return rank * tokens / ranks; }

}  // namespace

std::vector<int64_t> TensorParallel::token_counts(int64_t tokens) const {
  std::vector<int64_t> counts;
  for (int rank = 0; rank < ranks_->size(); ++rank) {
    counts.push_back(first_token(tokens, rank + 1, ranks_->size()) - first_token(tokens, rank, ranks_->size()));
  }
  return counts;
}

bool ForwardContext::divides_tokens() const { return whole_sequences && parallel != nullptr && parallel->sequence(); }

int64_t ForwardContext::first_token() const {
  if (!divides_tokens()) return 0;
  return nn::first_token(batch * seq, parallel->ranks().rank(), parallel->ranks().size());
}

Tensor ForwardContext::enter(const Tensor& x) const {
  if (parallel == nullptr) return x;
  if (!divides_tokens()) return ops::share_with_ranks(x, parallel->ranks(), kInput);
  const Tensor tokens = x.reshape({x.dim(1), x.dim(2)});
  const Tensor all = ops::gather_for_ranks(tokens, parallel->ranks(), parallel->token_counts(batch * seq), kInput);
  return all.reshape({batch, seq, x.dim(2)});
}

Tensor ForwardContext::leave(const Tensor& y) const {
  if (parallel == nullptr) return y;
  if (!divides_tokens()) return ops::sum_over_ranks(y, parallel->ranks(), kOutput);
  const Tensor tokens = y.reshape({batch * seq, y.dim(2)});
  const Tensor own = ops::scatter_sum(tokens, parallel->ranks(), parallel->token_counts(batch * seq), kOutput);
  return own.reshape({1, own.dim(0), own.dim(1)});
}

Tensor ForwardContext::shared_sum(const Tensor& x) const {
  if (parallel == nullptr) return x;
  constexpr const char* kLabel = "shared sum";
  return ops::share_with_ranks(ops::sum_over_ranks(x, parallel->ranks(), kLabel), parallel->ranks(), kLabel);
}

Tensor ForwardContext::all_tokens(const Tensor& x) const {
  if (!divides_tokens()) return x;
  const std::vector<int64_t> tokens = parallel->token_counts(batch * seq);
  return ops::gather_copies(x, parallel->ranks(), tokens, 1, "hidden").reshape({batch, seq, x.dim(2)});
}

Tensor ForwardContext::own_tokens(const Tensor& values) const {
  if (!divides_tokens()) return values;
  const int64_t count = parallel->token_counts(batch * seq)[static_cast<size_t>(parallel->ranks().rank())];
  return values.contiguous().reshape({1, batch * seq}).slice(1, first_token(), count).contiguous();
}

Tensor ForwardContext::own_positions(const Device& device) const {
  if (!divides_tokens()) return positions;
  if (positions.defined() && positions.is_meta()) return own_tokens(Tensor::empty({batch, seq}, DType::i64, device));
  std::vector<int64_t> given;
  if (positions.defined()) given = positions.to_vector<int64_t>();
  std::vector<int64_t> all;
  for (int64_t token = 0; token < batch * seq; ++token) {
    const auto at = static_cast<size_t>(positions.defined() && positions.rank() == 2 ? token : token % seq);
    all.push_back(given.empty() ? offset + token % seq : given[at]);
  }
  return own_tokens(Tensor::from(all, {batch, seq}, device));
}

}  // namespace lamina::nn
