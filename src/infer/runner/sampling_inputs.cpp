#include "lamina/infer/runner/sampling_inputs.h"

#include <algorithm>

#include "lamina/ops/elementwise/soft_cap.h"

namespace lamina::infer {
namespace {

constexpr int64_t kBits = 32;

bool waits_for_end(const StepRow& row, int64_t sample) {
  return row.drawn + sample < row.sampling->min_tokens && !row.sampling->end_tokens.empty();
}

void clear_bit(int32_t* words, int64_t vocab, TokenId id) {
  if (id < 0 || id >= vocab) return;
  words[id / kBits] = static_cast<int32_t>(static_cast<uint32_t>(words[id / kBits]) & ~(1U << (id % kBits)));
}

}  // namespace

bool has_mask(const StepRow& row, int64_t sample, int64_t limit) {
  const int64_t own = row.sampling->options.vocab_size;
  return !row.mask.empty() || waits_for_end(row, sample) || (own > 0 && own < limit);
}

SamplingInputs::SamplingInputs(int64_t capacity, int64_t vocab, int64_t limit, const Device& device)
    : capacity_(capacity),
      vocab_(vocab),
      limit_(limit > 0 ? std::min(limit, vocab) : vocab),
      words_((vocab + kBits - 1) / kBits),
      floats_(Tensor::zeros({kFields, capacity}, DType::f32, device)),
      longs_(Tensor::zeros({2, capacity}, DType::i64, device)),
      top_k_(Tensor::zeros({capacity}, DType::i32, device)),
      host_floats_(static_cast<size_t>(kFields * capacity)),
      host_longs_(static_cast<size_t>(2 * capacity)),
      host_top_k_(static_cast<size_t>(capacity)) {}

void SamplingInputs::set(size_t index, const SampleQuery& query) {
  const SamplerOptions plain{.temperature = 0};
  const SamplerOptions& options = query.sample < 0 ? plain : query.row->sampling->options;
  at(temperature, index) = static_cast<float>(options.temperature);
  at(top_p, index) = static_cast<float>(options.top_p);
  at(min_p, index) = static_cast<float>(options.min_p);
  at(typical_p, index) = static_cast<float>(options.typical_p);
  at(repetition, index) = static_cast<float>(options.repetition_penalty);
  at(presence, index) = static_cast<float>(options.presence_penalty);
  at(frequency, index) = static_cast<float>(options.frequency_penalty);
  host_top_k_[index] = static_cast<int32_t>(std::min<int64_t>(options.top_k, vocab_));
  const SamplingState* sampling = query.sample < 0 ? nullptr : query.row->sampling;
  host_longs_[index] = sampling ? static_cast<int64_t>(seed_of_stream(sampling->options.seed, sampling->stream)) : 0;
  host_longs_[static_cast<size_t>(capacity_) + index] = query.sample < 0 ? 0 : query.row->drawn + query.sample;
}

void SamplingInputs::set_mask(size_t index, const SampleQuery& query) {
  int32_t* words = host_mask_.data() + index * static_cast<size_t>(words_);
  if (query.sample < 0) {
    std::fill(words, words + words_, 0);
    words[query.scored / kBits] = static_cast<int32_t>(1U << (query.scored % kBits));
    return;
  }
  const StepRow& row = *query.row;
  std::fill(words, words + words_, -1);
  if (!row.mask.empty()) {
    const auto own = row.mask.subspan(static_cast<size_t>(query.sample * words_), static_cast<size_t>(words_));
    std::copy(own.begin(), own.end(), words);
  }
  const int64_t own = row.sampling->options.vocab_size;
  for (int64_t id = own; own > 0 && id < limit_; ++id) clear_bit(words, vocab_, static_cast<TokenId>(id));
  if (!waits_for_end(row, query.sample)) return;
  for (const TokenId id : row.sampling->end_tokens) clear_bit(words, vocab_, id);
}

void SamplingInputs::upload(std::span<const SampleQuery> queries) {
  const Device host = Device::cpu(1);
  bool masked = false;
  for (size_t i = 0; i < queries.size(); ++i) {
    set(i, queries[i]);
    masked = masked || queries[i].sample < 0 || has_mask(*queries[i].row, queries[i].sample, limit_);
  }
  longs_.copy_(Tensor::from(host_longs_, longs_.shape(), host));
  // Upload only changed options: they rarely change between steps, and each copy costs the GPU microseconds.
  if (host_floats_ != uploaded_floats_) floats_.copy_(Tensor::from(host_floats_, floats_.shape(), host));
  if (host_top_k_ != uploaded_top_k_) top_k_.copy_(Tensor::from(host_top_k_, top_k_.shape(), host));
  uploaded_floats_ = host_floats_;
  uploaded_top_k_ = host_top_k_;
  if (!masked) return;
  if (!mask_.defined()) mask_ = Tensor::full({capacity_, words_}, -1, DType::i32, floats_.device());
  host_mask_.resize(queries.size() * static_cast<size_t>(words_));
  for (size_t i = 0; i < queries.size(); ++i) set_mask(i, queries[i]);
  const auto count = static_cast<int64_t>(queries.size());
  mask_.slice(0, 0, count).copy_(Tensor::from(host_mask_, {count, words_}, host));
}

ops::RowSampling SamplingInputs::options(int64_t count, bool masked) const {
  const auto line = [&](const Tensor& all, int64_t index) {
    return all.slice(0, index, 1).reshape({capacity_}).slice(0, 0, count);
  };
  ops::RowSampling options;
  options.temperature = line(floats_, temperature);
  options.top_p = line(floats_, top_p);
  options.min_p = line(floats_, min_p);
  options.typical_p = line(floats_, typical_p);
  options.repetition = line(floats_, repetition);
  options.presence = line(floats_, presence);
  options.frequency = line(floats_, frequency);
  options.top_k = top_k_.slice(0, 0, count);
  options.seed = line(longs_, 0);
  options.drawn = line(longs_, 1);
  if (masked) options.mask = mask_.slice(0, 0, count);
  return options;
}

std::vector<int32_t> history_counts(const StepRow& row, int64_t length, int64_t vocab) {
  std::vector<int32_t> counts(static_cast<size_t>(vocab));
  const auto known = std::min<int64_t>(length, static_cast<int64_t>(row.history.size()));
  for (int64_t i = 0; i < known; ++i) {
    const TokenId id = row.history[static_cast<size_t>(i)];
    if (id < 0 || id >= vocab) continue;
    int32_t& count = counts[static_cast<size_t>(id)];
    count =
        i < row.sampling->prompt_length ? static_cast<int32_t>(static_cast<uint32_t>(count) | 0x80000000U) : count + 1;
  }
  return counts;
}

Tensor host_counts(std::span<const SampleQuery> queries, int64_t vocab, const Device& device) {
  const auto penalises = [](const SampleQuery& query) { return query.sample >= 0 && query.row->sampling->penalises(); };
  if (std::none_of(queries.begin(), queries.end(), penalises)) return {};
  std::vector<int32_t> counts;
  for (const SampleQuery& query : queries) {
    if (!penalises(query)) {
      counts.resize(counts.size() + static_cast<size_t>(vocab));
      continue;
    }
    const StepRow& row = *query.row;
    std::vector<int32_t> own = history_counts(row, static_cast<int64_t>(row.history.size()), vocab);
    // Sample j follows j drafted tokens, which are the last samples − 1 tokens of the row.
    const size_t first = row.tokens.size() - static_cast<size_t>(row.samples) + 1;
    for (size_t j = 0; j < static_cast<size_t>(query.sample); ++j) ++own[static_cast<size_t>(row.tokens[first + j])];
    counts.insert(counts.end(), own.begin(), own.end());
  }
  return Tensor::from(counts, {static_cast<int64_t>(queries.size()), vocab}, device);
}

Tensor host_bias(std::span<const SampleQuery> queries, int64_t vocab, const Device& device) {
  const auto biased = [](const SampleQuery& query) { return query.sample >= 0 && !query.row->sampling->bias.empty(); };
  if (std::none_of(queries.begin(), queries.end(), biased)) return {};
  std::vector<float> bias(queries.size() * static_cast<size_t>(vocab));
  for (size_t i = 0; i < queries.size(); ++i) {
    if (!biased(queries[i])) continue;
    for (const auto& [id, value] : queries[i].row->sampling->bias) {
      if (id >= 0 && id < vocab) bias[i * static_cast<size_t>(vocab) + static_cast<size_t>(id)] += value;
    }
  }
  return Tensor::from(bias, {static_cast<int64_t>(queries.size()), vocab}, device);
}

Tensor soft_capped(Tensor logits, std::span<const SampleQuery> queries) {
  const auto cap_of = [&](size_t i) {
    return queries[i].row->sampling == nullptr ? 0 : queries[i].row->sampling->softcap;
  };
  for (size_t first = 0; first < queries.size();) {
    size_t end = first + 1;
    while (end < queries.size() && cap_of(end) == cap_of(first)) ++end;
    if (cap_of(first) != 0) {
      Tensor some = logits.slice(0, static_cast<int64_t>(first), static_cast<int64_t>(end - first));
      some.copy_(ops::soft_cap(some, cap_of(first)));
    }
    first = end;
  }
  return logits;
}

}  // namespace lamina::infer
