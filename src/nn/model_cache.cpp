#include "lamina/nn/model_cache.h"

#include <algorithm>

namespace lamina::nn {

ModelCache::ModelCache(std::vector<std::unique_ptr<LayerCache>> layers, int64_t batch, int64_t capacity)
    : layers_(std::move(layers)), lengths_(static_cast<size_t>(batch), 0), capacity_(capacity) {}

void ModelCache::check_row(const char* what, int64_t row) const {
  LAMINA_CHECK(row >= 0 && row < batch(), "cache: ", what, " of row ", row, "; expected one in [0, ", batch(), ")");
}

int64_t ModelCache::bytes() const {
  int64_t total = 0;
  for (const auto& layer : layers_) total += layer ? layer->bytes() : 0;
  return total;
}

void ModelCache::reset(int64_t row) {
  check_row("reset", row);
  lengths_[static_cast<size_t>(row)] = 0;
  for (const auto& layer : layers_) {
    if (layer) layer->reset(row);
  }
}

bool ModelCache::can_truncate() const {
  return std::all_of(layers_.begin(), layers_.end(), [](const auto& layer) { return !layer || layer->can_truncate(); });
}

void ModelCache::truncate(int64_t row, int64_t length) {
  check_row("truncate", row);
  const int64_t held = lengths_[static_cast<size_t>(row)];
  LAMINA_CHECK(length >= 0 && length <= held, "cache: row ", row, " holds ", held, " tokens and cannot be cut to ",
               length, "; expected a length in [0, ", held, "]");
  if (length == held) return;
  LAMINA_CHECK(can_truncate(), "cache: a layer of this model keeps a state that cannot go back from ", held, " to ",
               length, " tokens; reset the row and feed it again");
  lengths_[static_cast<size_t>(row)] = length;
}

void ModelCache::reorder(std::span<const int64_t> sources) {
  LAMINA_CHECK(static_cast<int64_t>(sources.size()) == batch(), "cache: ", sources.size(), " source rows for ", batch(),
               " rows; give one for each");
  for (const int64_t source : sources) check_row("reorder", source);
  const std::vector<int64_t> before = lengths_;
  for (size_t i = 0; i < lengths_.size(); ++i) lengths_[i] = before[static_cast<size_t>(sources[i])];
  for (const auto& layer : layers_) {
    if (layer) layer->reorder(sources);
  }
}

ModelCache ModelCache::rows(int64_t begin, int64_t count) const {
  LAMINA_CHECK(begin >= 0 && count >= 0 && begin <= batch() - count, "cache: rows [", begin, ", ", begin, " + ", count,
               ") of ", batch(), "; expected a range inside");
  std::vector<std::unique_ptr<LayerCache>> parts;
  for (const auto& layer : layers_) parts.push_back(layer ? layer->rows(begin, count) : nullptr);
  ModelCache part(std::move(parts), count, capacity_);
  std::copy_n(lengths_.begin() + begin, count, part.lengths_.begin());
  return part;
}

void ModelCache::set_length(int64_t row, int64_t length) {
  check_row("set_length", row);
  LAMINA_CHECK(length >= 0 && length <= capacity_, "cache: row ", row, " cannot hold ", length,
               " tokens; the capacity is ", capacity_);
  lengths_[static_cast<size_t>(row)] = length;
}

}  // namespace lamina::nn
