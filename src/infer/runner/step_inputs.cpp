#include "lamina/infer/runner/step_inputs.h"

#include <algorithm>

#include "lamina/ops/elementwise/scatter_rows.h"

namespace lamina::infer {
namespace {

template <class T>
Tensor vector_tensor(const std::vector<T>& values, const Device& device) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())}, device);
}

/// Adds the queries of a row. Its tokens start at index `token` of the step.
void add_queries(const StepRow& row, size_t index, int64_t token, StepInputs& inputs) {
  const auto add = [&](const SampleQuery& query, int64_t at, int64_t top) {
    inputs.flight.queries.push_back({index, query.sample >= 0, static_cast<int64_t>(inputs.queries.size()), top});
    inputs.flight.top = std::max(inputs.flight.top, top);
    inputs.queries.push_back(query);
    inputs.host.wanted.push_back(at);
  };
  for (size_t i = 0; i < row.scored.size(); ++i) {
    add({&row, -1, row.scored[i]}, token + row.scored_begin + static_cast<int64_t>(i), row.scored_top);
  }
  const auto count = static_cast<int64_t>(row.tokens.size());
  for (int64_t sample = 0; sample < row.samples; ++sample) {
    add({&row, sample, 0}, token + count - row.samples + sample, row.sampling->top_logprobs);
  }
}

/// The page table of a group, with as many columns as the longest row needs.
std::vector<int32_t> page_table(const StepPlan& plan, size_t group, int64_t width) {
  const auto columns = static_cast<size_t>(width);
  std::vector<int32_t> table(plan.rows.size() * columns, -1);
  for (size_t row = 0; row < plan.rows.size(); ++row) {
    const std::span<const int32_t> pages = plan.rows[row].pages[group];
    std::copy_n(pages.begin(), std::min(pages.size(), columns), table.begin() + static_cast<int64_t>(row * columns));
  }
  return table;
}

int64_t longest_row(const HostStep& step) {
  int64_t longest = 0;
  for (size_t row = 0; row < step.counts.size(); ++row) {
    longest = std::max<int64_t>(longest, step.offsets[row] + step.counts[row]);
  }
  return longest;
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

nn::RowBatch row_batch(const HostStep& step, const nn::SequenceCache& cache, const Device& device) {
  nn::RowBatch rows;
  std::vector<int64_t> positions;
  std::vector<int32_t> lengths;
  std::vector<int32_t> starts{0};
  for (size_t row = 0; row < step.counts.size(); ++row) {
    for (int32_t k = 0; k < step.counts[row]; ++k) positions.push_back(step.offsets[row] + k);
    lengths.push_back(step.offsets[row] + step.counts[row]);
    starts.push_back(starts.back() + step.counts[row]);
  }
  const auto count = static_cast<int64_t>(lengths.size());
  const Tensor length_tensor = vector_tensor(lengths, device);
  const Tensor start_tensor = vector_tensor(starts, device);
  for (const std::vector<int32_t>& table : step.tables) {
    const Shape shape{count, static_cast<int64_t>(table.size()) / count};
    rows.groups.push_back({Tensor::from(table, shape, device), length_tensor, start_tensor, lengths, starts});
  }
  rows.positions = vector_tensor(positions, device);
  if (cache.has_states()) rows.slots = vector_tensor(step.slots, device);
  rows.host_offsets = step.offsets;
  rows.host_counts = step.counts;
  return rows;
}

StepInputs make_inputs(const StepPlan& plan, RowTokens& tokens, const nn::SequenceCache& cache,
                       const PreviousQueries& previous, const Tensor& sampled, const Device& device) {
  StepInputs inputs;
  HostStep& step = inputs.host;
  std::vector<int64_t> consumers(sampled.defined() ? static_cast<size_t>(sampled.dim(0)) : 0, -1);
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const StepRow& row = plan.rows[i];
    const RowTokens::Part part = tokens.part_of(row);
    const auto first = static_cast<int64_t>(step.ids.size());
    for (const TokenId id : part.tokens) step.ids.push_back(id == kUnknownToken ? 0 : id);
    if (row.previous >= 0) {
      const auto query = static_cast<size_t>(previous.at(static_cast<size_t>(row.previous)));
      consumers.at(query) = first + part.repeated;
    }
    add_queries(row, i, first + part.repeated, inputs);
    step.offsets.push_back(static_cast<int32_t>(part.offset));
    step.counts.push_back(static_cast<int32_t>(part.tokens.size()));
    step.slots.push_back(row.state_slot);
  }
  const int64_t width = (longest_row(step) + cache.page_size() - 1) / cache.page_size();
  for (int64_t group = 0; group < cache.groups(); ++group) {
    step.tables.push_back(page_table(plan, static_cast<size_t>(group), width));
  }
  const auto count = static_cast<int64_t>(step.ids.size());
  const bool from_device = std::any_of(consumers.begin(), consumers.end(), [](int64_t token) { return token >= 0; });
  if (from_device) {
    std::vector<int64_t> ids = step.ids;
    ids.push_back(0);  // place for sampled tokens that no row uses
    for (int64_t& token : consumers) token = token < 0 ? count : token;
    const Tensor all = Tensor::from(ids, {count + 1, 1}, device);
    ops::scatter_rows_(all, vector_tensor(consumers, device), sampled.reshape({sampled.dim(0), 1}));
    inputs.ids = all.slice(0, 0, count).reshape({count});
  } else {
    inputs.ids = vector_tensor(step.ids, device);
  }
  inputs.rows = row_batch(step, cache, device);
  inputs.wanted = vector_tensor(step.wanted, device);
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
