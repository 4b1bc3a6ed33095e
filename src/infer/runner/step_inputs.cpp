#include "lamina/infer/runner/step_inputs.h"

#include <algorithm>

#include "lamina/ops/elementwise/scatter_rows.h"

namespace lamina::infer {
namespace {

template <class T>
Tensor vector_tensor(const std::vector<T>& values, const Device& device) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())}, device);
}

/// Adds the queries of a row whose tokens start at index `token` of the step.
void add_queries(const StepRow& row, size_t index, int64_t token, StepInputs& inputs, std::vector<int64_t>& wanted) {
  const auto add = [&](const SampleQuery& query, int64_t at, int64_t top) {
    inputs.flight.queries.push_back({index, query.sample >= 0, static_cast<int64_t>(inputs.queries.size()), top});
    inputs.flight.top = std::max(inputs.flight.top, top);
    inputs.queries.push_back(query);
    wanted.push_back(at);
  };
  for (size_t i = 0; i < row.scored.size(); ++i) {
    add({&row, -1, row.scored[i]}, token + row.scored_begin + static_cast<int64_t>(i), row.scored_top);
  }
  const auto count = static_cast<int64_t>(row.tokens.size());
  for (int64_t sample = 0; sample < row.samples; ++sample) {
    add({&row, sample, 0}, token + count - row.samples + sample, row.sampling->top_logprobs);
  }
}

/// Page tables, lengths and starts of all rows, in as few columns as the longest row needs.
std::vector<ops::PagedRows> page_tables(const StepPlan& plan, const nn::SequenceCache& cache,
                                        const std::vector<int32_t>& lengths, const std::vector<int32_t>& starts,
                                        const Device& device) {
  const auto count = static_cast<int64_t>(lengths.size());
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const int64_t width = (longest + cache.page_size() - 1) / cache.page_size();
  const Tensor length_tensor = vector_tensor(lengths, device);
  const Tensor start_tensor = vector_tensor(starts, device);
  std::vector<ops::PagedRows> groups;
  for (int64_t group = 0; group < cache.groups(); ++group) {
    std::vector<int32_t> tables(static_cast<size_t>(count * width), -1);
    for (int64_t row = 0; row < count; ++row) {
      const std::span<const int32_t> pages = plan.rows[static_cast<size_t>(row)].pages[static_cast<size_t>(group)];
      const auto used = std::min(static_cast<int64_t>(pages.size()), width);
      std::copy(pages.begin(), pages.begin() + used, tables.begin() + row * width);
    }
    groups.push_back({Tensor::from(tables, {count, width}, device), length_tensor, start_tensor, lengths, starts});
  }
  return groups;
}

}  // namespace

RowTokens::Part RowTokens::part_of(const StepRow& row) {
  Part part{{}, row.tokens, row.offset, 0};
  if (!model_.depends_on_length()) return part;
  const auto length = row.offset + static_cast<int64_t>(row.tokens.size());
  auto& [row_id, computed_length] = computed_.at(static_cast<size_t>(row.slot));
  if (row_id != row.row_id) {
    row_id = row.row_id;
    computed_length = row.offset;
  }
  const bool is_stale = row.offset > 0 && model_.lengths_differ(computed_length, length);
  computed_length = is_stale ? length : std::max(computed_length, length);
  if (!is_stale) return part;
  LAMINA_CHECK(static_cast<int64_t>(row.history.size()) >= row.offset, "runner: row ", row.row_id,
               " must be recomputed at ", length,
               " tokens, because its RoPE frequencies depend on the length, but only ", row.history.size(),
               " of its first ", row.offset, " tokens are known; give the whole history");
  part.whole.assign(row.history.begin(), row.history.begin() + row.offset);
  part.whole.insert(part.whole.end(), row.tokens.begin(), row.tokens.end());
  part.tokens = part.whole;
  part.repeated = row.offset;
  part.offset = 0;
  return part;
}

StepInputs make_inputs(const StepPlan& plan, RowTokens& tokens, const nn::SequenceCache& cache,
                       const PreviousQueries& previous, const Tensor& sampled, const Device& device) {
  StepInputs inputs;
  std::vector<int64_t> ids;
  std::vector<int64_t> positions;
  std::vector<int64_t> wanted;
  std::vector<int32_t> lengths;
  std::vector<int32_t> starts{0};
  std::vector<int32_t> slots;
  std::vector<int64_t> consumers(sampled.defined() ? static_cast<size_t>(sampled.dim(0)) : 0, -1);
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const StepRow& row = plan.rows[i];
    const RowTokens::Part part = tokens.part_of(row);
    const auto first = static_cast<int64_t>(ids.size());
    for (const TokenId id : part.tokens) ids.push_back(id == kUnknownToken ? 0 : id);
    const auto count = static_cast<int32_t>(part.tokens.size());
    for (int32_t k = 0; k < count; ++k) positions.push_back(part.offset + k);
    if (row.previous >= 0) {
      const auto query = static_cast<size_t>(previous.at(static_cast<size_t>(row.previous)));
      consumers.at(query) = first + part.repeated;
    }
    add_queries(row, i, first + part.repeated, inputs, wanted);
    inputs.rows.host_offsets.push_back(static_cast<int32_t>(part.offset));
    inputs.rows.host_counts.push_back(count);
    lengths.push_back(static_cast<int32_t>(part.offset + count));
    starts.push_back(starts.back() + count);
    slots.push_back(row.state_slot);
  }
  const auto count = static_cast<int64_t>(ids.size());
  const bool from_device = std::any_of(consumers.begin(), consumers.end(), [](int64_t token) { return token >= 0; });
  if (from_device) {
    ids.push_back(0);  // takes tokens that no row consumes
    for (int64_t& token : consumers) token = token < 0 ? count : token;
    const Tensor all = Tensor::from(ids, {count + 1, 1}, device);
    ops::scatter_rows_(all, vector_tensor(consumers, device), sampled.reshape({sampled.dim(0), 1}));
    inputs.ids = all.slice(0, 0, count).reshape({count});
  } else {
    inputs.ids = vector_tensor(ids, device);
  }
  inputs.rows.groups = page_tables(plan, cache, lengths, starts, device);
  inputs.rows.positions = vector_tensor(positions, device);
  if (cache.has_states()) inputs.rows.slots = vector_tensor(slots, device);
  inputs.wanted = vector_tensor(wanted, device);
  inputs.flight.rows = plan.rows.size();
  return inputs;
}

PreviousQueries first_samples(const StepInFlight& flight) {
  PreviousQueries queries(flight.rows, -1);
  for (const StepInFlight::Query& query : flight.queries) {
    if (query.sampled && queries[query.row] < 0) queries[query.row] = query.index;
  }
  return queries;
}

}  // namespace lamina::infer
