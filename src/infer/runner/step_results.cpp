#include "lamina/infer/runner/step_results.h"

#include <cstring>

#include "lamina/tensor/replay.h"

namespace lamina::infer {
namespace {

/// The results of a step, on the host.
struct HostTokens {
  std::vector<int64_t> ids;
  std::vector<float> logprobs;
  std::vector<int64_t> top_ids;
};

StepResult result_of(const StepInFlight& step, const HostTokens& host) {
  StepResult result;
  result.rows.resize(step.rows);
  const auto top = static_cast<size_t>(std::max<int64_t>(step.top, 0));
  for (const StepInFlight::Query& query : step.queries) {
    const auto i = static_cast<size_t>(query.index);
    ScoredToken token{static_cast<TokenId>(host.ids[i]), 0, {}};
    if (query.top >= 0) token.logprob = host.logprobs[i * (1 + top)];
    for (size_t k = 0; k < static_cast<size_t>(std::max<int64_t>(query.top, 0)); ++k) {
      token.top.emplace_back(static_cast<TokenId>(host.top_ids[i * top + k]), host.logprobs[i * (1 + top) + 1 + k]);
    }
    RowResult& row = result.rows[query.row];
    (query.sampled ? row.sampled : row.scored).push_back(std::move(token));
  }
  return result;
}

}  // namespace

StepResults::StepResults(int64_t capacity, const Device& device) : capacity_(capacity), device_(device) {
  buffer_ = Tensor::zeros({top_ids_at() + capacity * kMaxTop}, DType::i64, device);
  if (!Replay::possible(device)) return;
  small_ = std::make_unique<Readback>(device, capacity + (capacity + 1) / 2);
  large_ = std::make_unique<Readback>(device, buffer_.numel());
}

SampledTokens StepResults::buffers(int64_t queries, int64_t top) const {
  SampledTokens tokens;
  if (!fits(queries, top)) {
    tokens.ids = Tensor::empty({queries}, DType::i64, device_);
    if (top >= 0) tokens.logprobs = Tensor::empty({queries, 1 + top}, DType::f32, device_);
    if (top > 0) tokens.top_ids = Tensor::empty({queries, top}, DType::i64, device_);
    return tokens;
  }
  auto* data = buffer_.data<int64_t>();
  const auto owner = std::make_shared<Tensor>(buffer_);
  tokens.ids = buffer_.slice(0, 0, queries);
  if (top >= 0) tokens.logprobs = Tensor::borrow(data + logprobs_at(), {queries, 1 + top}, DType::f32, device_, owner);
  if (top > 0) tokens.top_ids = buffer_.slice(0, top_ids_at(), queries * top).reshape({queries, top});
  return tokens;
}

void StepResults::write(int64_t top) {
  if (small_ == nullptr) return;
  const bool is_large = top > 0;
  (is_large ? large_ : small_)->write(is_large ? buffer_ : buffer_.slice(0, 0, capacity_ + (capacity_ + 1) / 2));
}

void StepResults::mark(StepInFlight step) {
  if (step.in_readback) (step.top > 0 ? large_ : small_)->mark();
  steps_.push_back(std::move(step));
}

StepResult StepResults::wait() {
  LAMINA_CHECK(!steps_.empty(), "runner: no step is in flight; run one first");
  const StepInFlight step = std::move(steps_.front());
  steps_.pop_front();
  HostTokens host;
  if (!step.in_readback) {
    if (step.queries.empty()) return result_of(step, host);
    host.ids = step.tokens.ids.to_vector<int64_t>();
    if (step.tokens.logprobs.defined()) host.logprobs = step.tokens.logprobs.to_vector<float>();
    if (step.tokens.top_ids.defined()) host.top_ids = step.tokens.top_ids.to_vector<int64_t>();
    return result_of(step, host);
  }
  const std::vector<int64_t> values = (step.top > 0 ? large_ : small_)->wait();
  host.ids.assign(values.begin(), values.begin() + capacity_);
  host.logprobs.resize(
      static_cast<size_t>(2 * (std::min<int64_t>(top_ids_at(), static_cast<int64_t>(values.size())) - logprobs_at())));
  std::memcpy(host.logprobs.data(), values.data() + logprobs_at(), host.logprobs.size() * sizeof(float));
  if (step.top > 0) host.top_ids.assign(values.begin() + top_ids_at(), values.end());
  return result_of(step, host);
}

}  // namespace lamina::infer
