#include "lamina/infer/runner/decode_graphs.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_map>

#include "lamina/ops/elementwise/scatter_rows.h"
#include "lamina/ops/embedding/embedding.h"

namespace lamina::infer {
namespace {

constexpr int64_t kTokens = 0;
constexpr int64_t kPositions = 1;
constexpr int64_t kLengths = 0;
constexpr int64_t kStateSlots = 1;
constexpr int64_t kCountRows = 2;
constexpr int64_t kCountSources = 3;

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
    : model_(model), cache_(cache), sampling_(sampling), results_(results), settings_(settings) {
  const Device& device = model.device();
  const int64_t rows = settings.rows;
  width_ = (settings.context + cache.page_size() - 1) / cache.page_size();
  inputs_ = Tensor::zeros({2 * (rows + 1) + 2 * rows}, DType::i64, device);
  longs_ = inputs_.slice(0, 0, 2 * (rows + 1)).reshape({2, rows + 1});
  ints_ = Tensor::borrow(inputs_.data<int64_t>() + longs_.numel(), {4, rows}, DType::i32, device,
                         std::make_shared<Tensor>(inputs_));
  std::vector<int32_t> starts(static_cast<size_t>(rows) + 1);
  std::iota(starts.begin(), starts.end(), 0);
  starts_ = Tensor::from(starts, {rows + 1}, device);
  for (int64_t group = 0; group < cache.groups(); ++group) {
    tables_.push_back(Tensor::full({rows, width_}, -1, DType::i32, device));
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

void DecodeGraphs::upload_tables(const StepPlan& plan) {
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
    if (at.empty()) continue;
    const auto count = static_cast<int64_t>(at.size());
    const Device& device = model_.device();
    ops::scatter_rows_(tables_[group].reshape({settings_.rows * width_, 1}), Tensor::from(at, {count}, device),
                       Tensor::from(pages, {count, 1}, device));
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

void DecodeGraphs::upload(const StepPlan& plan, const PreviousQueries& previous, const Tensor& sampled) {
  const auto rows = static_cast<size_t>(settings_.rows);
  std::vector<int64_t> longs(static_cast<size_t>(inputs_.numel()));
  std::vector<int32_t> ints(4 * rows);
  std::fill_n(ints.begin() + static_cast<int64_t>(rows), rows, static_cast<int32_t>(cache_.unused_slot()));
  std::fill_n(ints.begin() + static_cast<int64_t>(2 * rows), rows, -1);
  std::vector<int64_t> consumers(sampled.defined() ? static_cast<size_t>(sampled.dim(0)) : 0, settings_.rows);
  bool from_device = false;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const StepRow& row = plan.rows[i];
    const auto place = static_cast<size_t>(place_of_row_[i]);
    longs[place] = std::max<int64_t>(row.tokens[0], 0);
    longs[rows + 1 + place] = row.offset;
    ints[place] = static_cast<int32_t>(row.offset + 1);
    if (row.state_slot >= 0) ints[rows + place] = row.state_slot;
    if (row.sampling->penalises()) ints[2 * rows + place] = ints[3 * rows + place] = row.slot;
    if (row.previous < 0) continue;
    from_device = true;
    consumers.at(static_cast<size_t>(previous.at(static_cast<size_t>(row.previous)))) = static_cast<int64_t>(place);
  }
  std::memcpy(longs.data() + longs_.numel(), ints.data(), ints.size() * sizeof(int32_t));
  // A single copy, because each one costs the GPU microseconds.
  inputs_.copy_(Tensor::from(longs, inputs_.shape(), Device::cpu(1)));
  if (!from_device) return;
  const auto count = static_cast<int64_t>(consumers.size());
  if (consumers != consumers_) {
    consumers_on_device_ = Tensor::from(consumers, {count}, model_.device());
    consumers_ = std::move(consumers);
  }
  ops::scatter_rows_(line(longs_, kTokens, settings_.rows + 1).reshape({settings_.rows + 1, 1}), consumers_on_device_,
                     sampled.reshape({count, 1}));
}

void DecodeGraphs::step(const Key& key) {
  const int64_t bucket = key.bucket;
  const int64_t pages = (key.context + cache_.page_size() - 1) / cache_.page_size();
  if (settings_.idle != nullptr) settings_.idle->begin();
  nn::RowBatch rows;
  for (const Tensor& tables : tables_) {
    rows.groups.push_back({tables.slice(0, 0, bucket).slice(1, 0, pages),
                           line(ints_, kLengths, bucket),
                           starts_.slice(0, 0, bucket + 1),
                           {},
                           {}});
  }
  rows.context = settings_.context;  // not key.context: all graphs read the same tables of positions
  rows.positions = line(longs_, kPositions, bucket);
  if (cache_.has_states()) rows.slots = line(ints_, kStateSlots, bucket);
  rows.activations = bucket == 1 ? settings_.single_activations : settings_.activations;
  const Tensor ids = line(longs_, kTokens, bucket);
  const Tensor logits = model_.row_logits(ids, rows, cache_);
  ops::RowSampling options = sampling_.options(bucket, key.masked);
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

StepInFlight DecodeGraphs::run(const StepPlan& plan, const PreviousQueries& previous, const Tensor& sampled) {
  place_rows(plan);
  upload(plan, previous, sampled);
  upload_tables(plan);
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
  sampling_.upload(queries);
  graph_for(key).run();
  flight.tokens = results_.buffers(static_cast<int64_t>(plan.rows.size()), flight.top);
  return flight;
}

}  // namespace lamina::infer
