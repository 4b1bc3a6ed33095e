// Drives Model::row_logits as an engine would: pages in shuffled order, freed when they leave a window, random chunks.
#pragma once

#include <numeric>

#include "nn/model_support.h"

namespace lamina::testing {

/// New tokens of one row in a step.
struct RowChunk {
  int64_t row = 0;
  std::vector<int64_t> ids;
};

/// Sequences in a SequenceCache, with page tables kept by plain lists.
class RowDriver {
 public:
  RowDriver(nn::Model& model, int64_t rows, int64_t capacity, uint64_t seed, std::optional<DType> dtype = {})
      : model_(model), capacity_(capacity), random_(seed), sequences_(static_cast<size_t>(rows)) {
    const int64_t pages = rows * pages_for(capacity) + 3;
    cache_ = model.make_sequence_cache({.pages = {pages}, .state_slots = rows, .page_size = kPage, .dtype = dtype});
    slots_.resize(sequences_.size());
    std::iota(slots_.begin(), slots_.end(), 0);
    std::shuffle(slots_.begin(), slots_.end(), random_);
    for (int64_t group = 0; group < cache_->groups(); ++group) {
      std::vector<int32_t>& free = free_.emplace_back(static_cast<size_t>(pages));
      std::iota(free.begin(), free.end(), 0);
      std::shuffle(free.begin(), free.end(), random_);
    }
    for (Sequence& sequence : sequences_) sequence.tables.resize(free_.size());
  }

  /// Logits [tokens, vocab] of the new tokens, in the order of the chunks. Without `on_host` the step runs as in a CUDA
  /// graph: one token per chunk, positions in device memory only, and an unused row at the end.
  Tensor step(const std::vector<RowChunk>& chunks, bool on_host = true) {
    const nn::RowBatch rows = batch_of(chunks, on_host);
    std::vector<int64_t> ids;
    for (const RowChunk& chunk : chunks) ids.insert(ids.end(), chunk.ids.begin(), chunk.ids.end());
    const auto tokens = static_cast<int64_t>(ids.size());
    if (!on_host) ids.push_back(0);
    const Tensor all = Tensor::from(ids, {static_cast<int64_t>(ids.size())}, model_.device());
    const Tensor logits = model_.row_logits(all, rows, *cache_);
    for (const RowChunk& chunk : chunks) free_pages(chunk.row);
    return logits.slice(0, 0, tokens);
  }

  /// Type of the activations in later steps.
  void set_activations(DType dtype) { activations_ = dtype; }
  int64_t length(int64_t row) const { return at(row).length; }
  /// Empties a row, whose pages go back to the free list.
  void restart(int64_t row) {
    Sequence& sequence = sequences_[static_cast<size_t>(row)];
    for (size_t group = 0; group < free_.size(); ++group) {
      for (const int32_t page : sequence.tables[group]) release(group, page);
      sequence.tables[group].clear();
    }
    sequence.length = 0;
    if (cache_->has_states()) cache_->clear_state(slots_[static_cast<size_t>(row)]);
  }
  nn::SequenceCache& cache() { return *cache_; }
  int64_t freed() const { return freed_; }

 private:
  static constexpr int64_t kPage = 16;
  struct Sequence {
    int64_t length = 0;
    std::vector<std::vector<int32_t>> tables;  ///< page table of each group
  };
  static int64_t pages_for(int64_t tokens) { return (tokens + kPage - 1) / kPage; }
  const Sequence& at(int64_t row) const { return sequences_[static_cast<size_t>(row)]; }

  void release(size_t group, int32_t page) {
    if (page < 0) return;
    std::vector<int32_t>& free = free_[group];
    free.insert(free.begin() + static_cast<int64_t>(random_() % (free.size() + 1)), page);
  }
  void grow(Sequence& sequence, int64_t count) {
    sequence.length += count;
    for (size_t group = 0; group < free_.size(); ++group) {
      while (static_cast<int64_t>(sequence.tables[group].size()) < pages_for(sequence.length)) {
        sequence.tables[group].push_back(free_[group].back());
        free_[group].pop_back();
      }
    }
  }
  /// Frees pages that no later token of the row can see.
  void free_pages(int64_t row) {
    Sequence& sequence = sequences_[static_cast<size_t>(row)];
    for (size_t group = 0; group < free_.size(); ++group) {
      const int64_t window = cache_->window(static_cast<int64_t>(group));
      if (window == 0) continue;
      for (int64_t p = 0; (p + 1) * kPage <= sequence.length - window + 1; ++p) {
        int32_t& page = sequence.tables[group][static_cast<size_t>(p)];
        freed_ += page >= 0 ? 1 : 0;
        release(group, page);
        page = -1;
      }
    }
  }

  nn::RowBatch batch_of(const std::vector<RowChunk>& chunks, bool on_host) {
    nn::RowBatch rows;
    rows.activations = activations_;
    std::vector<int32_t> lengths;
    std::vector<int32_t> starts{0};
    std::vector<int32_t> slots;
    std::vector<int64_t> positions;
    for (const RowChunk& chunk : chunks) {
      Sequence& sequence = sequences_[static_cast<size_t>(chunk.row)];
      const auto count = static_cast<int32_t>(chunk.ids.size());
      rows.host_offsets.push_back(static_cast<int32_t>(sequence.length));
      rows.host_counts.push_back(count);
      for (int32_t i = 0; i < count; ++i) positions.push_back(sequence.length + i);
      grow(sequence, count);
      lengths.push_back(static_cast<int32_t>(sequence.length));
      starts.push_back(starts.back() + count);
      slots.push_back(static_cast<int32_t>(slots_[static_cast<size_t>(chunk.row)]));
    }
    if (!on_host) {
      lengths.push_back(0);
      starts.push_back(starts.back() + 1);
      slots.push_back(static_cast<int32_t>(cache_->unused_slot()));
      positions.push_back(0);
      rows.host_counts.clear();
      rows.host_offsets.clear();
    }
    const Device& device = model_.device();
    const auto count = static_cast<int64_t>(lengths.size());
    const Tensor length_tensor = Tensor::from(lengths, {count}, device);
    const Tensor start_tensor = Tensor::from(starts, {count + 1}, device);
    for (size_t group = 0; group < free_.size(); ++group) {
      const int64_t width = pages_for(capacity_);
      std::vector<int32_t> tables(static_cast<size_t>(count * width), -1);
      for (size_t i = 0; i < chunks.size(); ++i) {
        const std::vector<int32_t>& table = at(chunks[i].row).tables[group];
        std::copy(table.begin(), table.end(), tables.begin() + static_cast<int64_t>(i) * width);
      }
      ops::PagedRows paged{Tensor::from(tables, {count, width}, device), length_tensor, start_tensor, {}, {}};
      if (on_host) {
        paged.host_lengths = lengths;
        paged.host_starts = starts;
      }
      rows.groups.push_back(paged);
    }
    if (cache_->has_states()) rows.slots = Tensor::from(slots, {count}, device);
    rows.positions = Tensor::from(positions, {static_cast<int64_t>(positions.size())}, device);
    return rows;
  }

  nn::Model& model_;
  int64_t capacity_;
  std::mt19937_64 random_;
  std::unique_ptr<nn::SequenceCache> cache_;
  std::vector<Sequence> sequences_;
  std::vector<int64_t> slots_;
  std::vector<std::vector<int32_t>> free_;  ///< free pages of each group
  int64_t freed_ = 0;
  std::optional<DType> activations_;
};

/// A random schedule over several sequences: chunks, single tokens, rows in any order. Every logit equals that of a
/// forward pass of `truth` over the whole sequence so far, within `tolerance` of the largest.
class RowSchedule {
 public:
  RowSchedule(nn::Model& model, nn::Model& truth, int64_t length, uint64_t seed)
      : model_(model), truth_(truth), length_(length), random_(seed), driver_(model, kRows, length, seed) {
    for (int64_t row = 0; row < kRows; ++row) {
      ids_.push_back(random_ids(length, model.spec().vocab_size, seed + static_cast<uint64_t>(row)));
    }
  }

  /// Runs until every sequence has its full length. Returns the largest error, and the largest true logit in `most`.
  double run(double& most) {
    double error = 0;
    while (true) {
      const std::vector<RowChunk> chunks = plan();
      if (chunks.empty()) return error;
      const bool decodes =
          std::all_of(chunks.begin(), chunks.end(), [](const RowChunk& chunk) { return chunk.ids.size() == 1; });
      const bool on_host = !decodes || !model_.supports_row_graphs() || random_() % 2 == 0;
      const std::vector<double> logits = driver_.step(chunks, on_host).to_vector<double>();
      const auto vocab = static_cast<size_t>(model_.spec().vocab_size);
      size_t token = 0;
      for (const RowChunk& chunk : chunks) {
        const std::vector<double> expected = truth_of(chunk);
        const std::vector<double> ours(logits.begin() + static_cast<int64_t>(token * vocab),
                                       logits.begin() + static_cast<int64_t>(token * vocab + expected.size()));
        error = std::max(error, largest_error(ours, expected));
        most = std::max(most, largest_magnitude(expected));
        token += chunk.ids.size();
      }
    }
  }
  int64_t freed() const { return driver_.freed(); }
  RowDriver& driver() { return driver_; }
  /// The sequences one after the other, [kRows, length].
  std::vector<int64_t> all_ids() const {
    std::vector<int64_t> all;
    for (const std::vector<int64_t>& row : ids_) all.insert(all.end(), row.begin(), row.end());
    return all;
  }

  static constexpr int64_t kRows = 4;

 private:
  /// The whole of a row if the frequencies of its cached tokens changed, else the next few tokens.
  RowChunk chunk_of(int64_t row) {
    const int64_t before = driver_.length(row);
    const int64_t sizes[] = {1, 1, 1, 2, 5, 18, 40};
    const int64_t count = std::min(length_ - before, sizes[random_() % std::size(sizes)]);
    int64_t first = before;
    if (before > 0 && model_.lengths_differ(before, before + count)) {
      driver_.restart(row);
      first = 0;
    }
    const std::vector<int64_t>& all = ids_[static_cast<size_t>(row)];
    return {row, {all.begin() + first, all.begin() + before + count}};
  }
  std::vector<RowChunk> plan() {
    std::vector<int64_t> open;
    for (int64_t row = 0; row < kRows; ++row) {
      if (driver_.length(row) < length_) open.push_back(row);
    }
    std::shuffle(open.begin(), open.end(), random_);
    const bool one_each = random_() % 2 == 0;
    std::vector<RowChunk> chunks;
    for (const int64_t row : open) {
      if (!chunks.empty() && random_() % 4 == 0) continue;  // this row gets no token in this step
      if (one_each && driver_.length(row) > 0 && !model_.depends_on_length()) {
        chunks.push_back({row, {ids_[static_cast<size_t>(row)][static_cast<size_t>(driver_.length(row))]}});
      } else {
        chunks.push_back(chunk_of(row));
      }
    }
    return chunks;
  }
  std::vector<double> truth_of(const RowChunk& chunk) {
    const std::vector<int64_t>& all = ids_[static_cast<size_t>(chunk.row)];
    const int64_t end = driver_.length(chunk.row);
    const auto count = static_cast<int64_t>(chunk.ids.size());
    const int64_t run = model_.depends_on_length() ? end : length_;
    auto& known = whole_[chunk.row];
    if (known.empty() || model_.depends_on_length()) {
      const std::vector<int64_t> ids(all.begin(), all.begin() + run);
      known = truth_.logits(ids_tensor(ids, 1, truth_.device())).to_vector<double>();
    }
    const auto vocab = truth_.spec().vocab_size;
    return {known.begin() + (end - count) * vocab, known.begin() + end * vocab};
  }

  nn::Model& model_;
  nn::Model& truth_;
  int64_t length_;
  std::mt19937_64 random_;
  RowDriver driver_;
  std::vector<std::vector<int64_t>> ids_;
  std::map<int64_t, std::vector<double>> whole_;  ///< true logits of each whole sequence
};

/// Runs a random schedule in the model's own type against the f64 model `wide`. Rounding errors may be twice those of
/// one forward pass.
inline int64_t expect_rows(nn::Model& model, nn::Model& wide, int64_t length, uint64_t seed, const std::string& what) {
  RowSchedule schedule(model, wide, length, seed);
  const Tensor ids = ids_tensor(schedule.all_ids(), RowSchedule::kRows, model.device());
  const double naive = 2 * naive_error(model, wide, ids);
  double most = 0;
  const double error = schedule.run(most);
  EXPECT_LE(error, 2 * naive + epsilon(DType::f32) * most) << what << ", seed " << seed;
  return schedule.freed();
}

}  // namespace lamina::testing
