#include "lamina/infer/runner/decode_graphs.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_map>

#include "lamina/ops/elementwise/scatter_rows.h"
#include "lamina/ops/embedding/embedding.h"

namespace lamina::infer {
namespace {

// Lines of longs_ and ints_.
constexpr int64_t kPositions = 0;
constexpr int64_t kSeeds = 1;
constexpr int64_t kDrawn = 2;
constexpr int64_t kConsumers = 3;
constexpr int64_t kTableEntries = 4;
constexpr int64_t kLengths = 0;
constexpr int64_t kStateSlots = 1;
constexpr int64_t kCountRows = 2;
constexpr int64_t kCountSources = 3;
constexpr int64_t kIntLines = 4;

/// Number of i64 elements that hold the inputs of a step.
int64_t input_count(int64_t rows, int64_t groups) {
  return rows + 1 + (kTableEntries + groups) * rows + ((kIntLines + groups) * rows + 1) / 2;
}

/// A view of 4-byte elements as f32, for operators that only copy them.
Tensor as_f32(const Tensor& x) {
  return Tensor::borrow(x.raw(), x.shape(), DType::f32, x.device(), std::make_shared<Tensor>(x));
}

/// The occurrence counts of the rows with these `slots` [n].
Tensor gather_counts(const Tensor& counts, const Tensor& slots) {
  const Tensor rows = ops::embedding(as_f32(counts), slots);
  return Tensor::borrow(rows.raw(), rows.shape(), DType::i32, rows.device(), std::make_shared<Tensor>(rows));
}

}  // namespace

int64_t decode_bucket(int64_t rows, int64_t most) {
  constexpr int64_t kFirst[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256};
  constexpr int64_t kStep = 128;
  for (const int64_t bucket : kFirst) {
    if (rows <= bucket) return std::min(bucket, most);
  }
  return std::min((rows + kStep - 1) / kStep * kStep, most);
}

int64_t decode_context(int64_t bucket, int64_t length, int64_t most) {
  constexpr int64_t kOneRow[] = {256, 1536, 2048};  // limits of the kernels of ops/attention/decode
  for (const int64_t context : kOneRow) {
    if (bucket == 1 && length <= context) return std::min(context, most);
  }
  return most;
}

DecodeGraphs::DecodeGraphs(nn::Model& model, nn::SequenceCache& cache, SamplingInputs& sampling, StepResults& results,
                           const Settings& settings)
    : model_(model),
      cache_(cache),
      sampling_(sampling),
      results_(results),
      settings_(settings),
      width_((settings.context + cache.page_size() - 1) / cache.page_size()),
      host_inputs_(model.device(), input_count(settings.rows, cache.groups())) {
  const Device& device = model.device();
  const int64_t rows = settings.rows;
  const int64_t groups = cache.groups();
  inputs_ = Tensor::zeros({input_count(rows, groups)}, DType::i64, device);
  tokens_ = inputs_.slice(0, 0, rows + 1);
  longs_ = inputs_.slice(0, rows + 1, (kTableEntries + groups) * rows).reshape({kTableEntries + groups, rows});
  auto* ints = reinterpret_cast<int32_t*>(longs_.data<int64_t>() + longs_.numel());
  const auto owner = std::make_shared<Tensor>(inputs_);
  ints_ = Tensor::borrow(ints, {kIntLines, rows}, DType::i32, device, owner);
  table_pages_ = Tensor::borrow(ints + ints_.numel(), {groups, rows}, DType::i32, device, owner);
  std::vector<int32_t> starts(static_cast<size_t>(rows) + 1);
  std::iota(starts.begin(), starts.end(), 0);
  starts_ = Tensor::from(starts, {rows + 1}, device);
  for (int64_t group = 0; group < groups; ++group) {
    table_entries_.push_back(Tensor::full({rows * width_ + 1, 1}, -1, DType::i32, device));
    tables_.push_back(table_entries_.back().slice(0, 0, rows * width_).reshape({rows, width_}));
    known_tables_.emplace_back(static_cast<size_t>(rows));
  }
  places_.assign(static_cast<size_t>(rows), -1);
  counted_.assign(static_cast<size_t>(rows), {-1, 0});
}

bool DecodeGraphs::supports(const StepPlan& plan) {
  return !plan.rows.empty() && std::all_of(plan.rows.begin(), plan.rows.end(), [](const StepRow& row) {
    if (row.tokens.size() != 1 || row.samples != 1 || !row.scored.empty()) return false;
    const SamplingState& sampling = *row.sampling;
    if (!sampling.bias.empty() || sampling.softcap != 0 || sampling.top_logprobs > StepResults::kMaxTop) return false;
    // The graph counts the row's token as part of the answer.
    return !sampling.penalises() || row.offset >= sampling.prompt_length;
  });
}

Tensor DecodeGraphs::line(const Tensor& all, int64_t index, int64_t count) const {
  return all.slice(0, index, 1).reshape({all.dim(1)}).slice(0, 0, count);
}

void DecodeGraphs::place_rows(const StepPlan& plan) {
  const size_t count = plan.rows.size();
  std::unordered_map<int64_t, int64_t> old;
  for (size_t place = 0; place < places_.size(); ++place) {
    if (places_[place] >= 0) old[places_[place]] = static_cast<int64_t>(place);
  }
  std::fill(places_.begin(), places_.end(), -1);
  place_of_row_.assign(count, -1);
  for (size_t i = 0; i < count; ++i) {
    const auto found = old.find(plan.rows[i].row_id);
    if (found == old.end() || found->second >= static_cast<int64_t>(count)) continue;
    place_of_row_[i] = found->second;
    places_[static_cast<size_t>(found->second)] = plan.rows[i].row_id;
  }
  size_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    if (place_of_row_[i] >= 0) continue;
    while (places_[next] >= 0) ++next;
    place_of_row_[i] = static_cast<int64_t>(next);
    places_[next] = plan.rows[i].row_id;
    for (auto& group : known_tables_) group[next].clear();
  }
}

struct DecodeGraphs::HostStepInputs {
  HostStepInputs(std::span<int64_t> memory, int64_t count)
      : rows(static_cast<size_t>(count)), longs(memory.subspan(rows + 1)), tokens(memory.first(rows + 1)) {}

  std::span<int64_t> line(int64_t index) const { return longs.subspan(static_cast<size_t>(index) * rows, rows); }
  /// A line of ints_ or, after kIntLines, of table_pages_. `groups` is the number of page tables.
  std::span<int32_t> ints(int64_t index, size_t groups) const {
    auto* first = reinterpret_cast<int32_t*>(longs.data() + (kTableEntries + groups) * rows);
    return {first + static_cast<size_t>(index) * rows, rows};
  }

  size_t rows;
  std::span<int64_t> longs;
  std::span<int64_t> tokens;
};

void DecodeGraphs::fill_tables(const StepPlan& plan, HostStepInputs& host) {
  for (size_t group = 0; group < tables_.size(); ++group) {
    std::vector<int64_t> at;
    std::vector<int32_t> pages;
    for (size_t i = 0; i < plan.rows.size(); ++i) {
      const auto place = static_cast<size_t>(place_of_row_[i]);
      std::vector<int32_t>& known = known_tables_[group][place];
      const std::span<const int32_t> given = plan.rows[i].pages[group];
      known.resize(std::min(given.size(), static_cast<size_t>(width_)), -2);
      for (size_t p = 0; p < known.size(); ++p) {
        if (known[p] == given[p]) continue;
        known[p] = given[p];
        at.push_back(static_cast<int64_t>(place) * width_ + static_cast<int64_t>(p));
        pages.push_back(given[p]);
      }
    }
    if (at.size() > host.rows) {  // rows with long prompts have joined
      const auto count = static_cast<int64_t>(at.size());
      const Device& device = model_.device();
      ops::scatter_rows_(table_entries_[group], Tensor::from(at, {count}, device),
                         Tensor::from(pages, {count, 1}, device));
      at.clear();
      pages.clear();
    }
    const auto index = static_cast<int64_t>(group);
    const std::span<int64_t> entries = host.line(kTableEntries + index);
    std::fill(std::copy(at.begin(), at.end(), entries.begin()), entries.end(), settings_.rows * width_);
    std::copy(pages.begin(), pages.end(), host.ints(kIntLines + index, tables_.size()).begin());
  }
}

void DecodeGraphs::prepare_counts(const StepPlan& plan) {
  const int64_t vocab = model_.spec().vocab_size;
  for (const StepRow& row : plan.rows) {
    if (!row.sampling->penalises()) continue;
    if (!counts_.defined()) counts_ = Tensor::zeros({settings_.rows, vocab}, DType::i32, model_.device());
    auto& counted = counted_[static_cast<size_t>(row.slot)];
    if (counted != std::pair(row.row_id, row.offset)) {
      counts_.slice(0, row.slot, 1)
          .copy_(Tensor::from(history_counts(row, row.offset, vocab), {1, vocab}, Device::cpu(1)));
    }
    counted = {row.row_id, row.offset + 1};  // the graph counts this step's token
  }
}

void DecodeGraphs::fill_inputs(const StepPlan& plan, const PreviousQueries& previous, HostStepInputs& host) const {
  const auto ints = [&](int64_t index) { return host.ints(index, tables_.size()); };
  std::ranges::fill(host.tokens, 0);
  std::ranges::fill(host.line(kPositions), 0);
  std::ranges::fill(host.line(kConsumers), settings_.rows);
  std::ranges::fill(ints(kLengths), 0);
  std::ranges::fill(ints(kStateSlots), static_cast<int32_t>(cache_.unused_slot()));
  std::ranges::fill(ints(kCountRows), -1);
  std::ranges::fill(ints(kCountSources), 0);
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const StepRow& row = plan.rows[i];
    const auto place = static_cast<size_t>(place_of_row_[i]);
    host.tokens[place] = std::max<int64_t>(row.tokens[0], 0);
    host.line(kPositions)[place] = row.offset;
    ints(kLengths)[place] = static_cast<int32_t>(row.offset + 1);
    if (row.state_slot >= 0) ints(kStateSlots)[place] = row.state_slot;
    if (row.sampling->penalises()) ints(kCountRows)[place] = ints(kCountSources)[place] = row.slot;
    if (row.previous < 0) continue;
    const int64_t query = previous.at(static_cast<size_t>(row.previous));
    LAMINA_CHECK(query >= 0 && query < settings_.rows, "runner: row ", i, " continues row ", row.previous,
                 " of the previous step, which sampled no token");
    host.line(kConsumers)[static_cast<size_t>(query)] = static_cast<int64_t>(place);
  }
}

// Kernels of the layers may read page tables, lengths and positions while the previous kernel still runs
// (PagedStep::settled). These are complete by then: each kernel below, and the embedding, lets the next one start only
// after it has waited for the previous one (grid_dependency_wait()).
void DecodeGraphs::read_inputs() {
  const int64_t rows = settings_.rows;
  host_inputs_.read(inputs_);
  for (size_t group = 0; group < table_entries_.size(); ++group) {
    const auto index = static_cast<int64_t>(group);
    ops::scatter_rows_(table_entries_[group], line(longs_, kTableEntries + index, rows),
                       line(table_pages_, index, rows).reshape({rows, 1}));
  }
  ops::scatter_rows_(tokens_.reshape({rows + 1, 1}), line(longs_, kConsumers, rows),
                     results_.buffers(rows, -1).ids.reshape({rows, 1}));
}

void DecodeGraphs::step(const Key& key) {
  const int64_t bucket = key.bucket;
  const int64_t pages = (key.context + cache_.page_size() - 1) / cache_.page_size();
  if (settings_.idle != nullptr) settings_.idle->begin();
  read_inputs();
  nn::RowBatch rows;
  for (const Tensor& tables : tables_) {
    rows.groups.push_back({tables.slice(0, 0, bucket).slice(1, 0, pages),
                           line(ints_, kLengths, bucket),
                           starts_.slice(0, 0, bucket + 1),
                           {},
                           {}});
  }
  rows.positions = line(longs_, kPositions, bucket);
  if (cache_.has_states()) rows.slots = line(ints_, kStateSlots, bucket);
  rows.activations = bucket == 1 ? settings_.single_activations : settings_.activations;
  const Tensor ids = tokens_.slice(0, 0, bucket);
  const Tensor logits = model_.row_logits(ids, rows, cache_);
  ops::RowSampling options = sampling_.options(bucket, key.masked);
  options.seed = line(longs_, kSeeds, bucket);
  options.drawn = line(longs_, kDrawn, bucket);
  if (key.penalised) {
    ops::count_tokens(counts_, line(ints_, kCountRows, bucket), ids);
    options.counts = gather_counts(counts_, line(ints_, kCountSources, bucket));
  }
  const SampledTokens out = results_.buffers(bucket, key.top);
  ops::sample_rows(logits, options, sampling_.limit(), std::max<int64_t>(key.top, 0), out.ids, out.logprobs,
                   out.top_ids);
  results_.write(key.top);
  if (settings_.idle != nullptr) settings_.idle->end();
}

Replay& DecodeGraphs::graph_for(const Key& key) {
  constexpr int64_t kSeldom = 32;  // steps
  Graph& graph = graphs_[key];
  const bool seldom = ++graph.wanted <= kSeldom;
  const bool captured = graph.replay && graph.replay->is_captured();
  if (!captured && seldom) {
    for (const auto& [other, larger] : graphs_) {
      if (other != key && other.covers(key) && larger.replay && larger.replay->is_captured()) return *larger.replay;
    }
  }
  if (!graph.replay) graph.replay = std::make_unique<Replay>(model_.device(), [this, key] { step(key); });
  return *graph.replay;
}

StepInFlight DecodeGraphs::run(const StepPlan& plan, const PreviousQueries& previous) {
  place_rows(plan);
  // At most one step is in flight (see ModelRunner::run), so the graph that read this memory last is finished.
  HostStepInputs host(host_inputs_.next(), settings_.rows);
  fill_inputs(plan, previous, host);
  fill_tables(plan, host);
  prepare_counts(plan);
  StepInFlight flight;
  flight.rows = plan.rows.size();
  flight.in_readback = true;
  Key key{.bucket = decode_bucket(static_cast<int64_t>(plan.rows.size()), settings_.rows)};
  int64_t longest = 0;
  std::vector<SampleQuery> queries(plan.rows.size());
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const StepRow& row = plan.rows[i];
    queries[static_cast<size_t>(place_of_row_[i])] = {&row, 0, 0};
    flight.queries.push_back({i, true, place_of_row_[i], row.sampling->top_logprobs});
    flight.top = std::max(flight.top, row.sampling->top_logprobs);
    key.masked = key.masked || has_mask(row, 0, sampling_.limit());
    key.penalised = key.penalised || row.sampling->penalises();
    longest = std::max(longest, row.offset + 1);
  }
  key.top = flight.top;
  key.context = decode_context(key.bucket, longest, settings_.context);
  sampling_.upload(queries, host.line(kSeeds), host.line(kDrawn));
  try {
    graph_for(key).run();
  } catch (...) {
    host_inputs_.reset();
    throw;
  }
  host_inputs_.mark();
  flight.tokens = results_.buffers(static_cast<int64_t>(plan.rows.size()), flight.top);
  return flight;
}

}  // namespace lamina::infer
