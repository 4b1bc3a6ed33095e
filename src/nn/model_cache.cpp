#include "lamina/nn/model_cache.h"

#include <algorithm>
#include <optional>

namespace lamina::nn {

DType cache_dtype_named(std::string_view name) {
  if (name == "q8") return DType::u8;
  const std::optional<DType> dtype = dtype_from_name(name);
  LAMINA_CHECK(dtype && is_floating(*dtype), "cache: unknown dtype '", name, "'; expected f32, bf16, f16, f64 or q8");
  return *dtype;
}

ModelCache::ModelCache(std::vector<std::unique_ptr<LayerCache>> layers, int64_t batch, int64_t capacity, DType dtype,
                       bool keeps_ids)
    : layers_(std::move(layers)), capacity_(capacity), dtype_(dtype), keeps_ids_(keeps_ids) {
  for (int64_t row = 0; row < batch; ++row) rows_.push_back(std::make_shared<Row>());
}

ModelCache::Row& ModelCache::row(const char* what, int64_t index) const {
  LAMINA_CHECK(index >= 0 && index < batch(), "cache: ", what, " of row ", index, "; expected one in [0, ", batch(),
               ")");
  return *rows_[static_cast<size_t>(index)];
}

std::vector<int64_t> ModelCache::lengths() const {
  std::vector<int64_t> lengths;
  for (const auto& row : rows_) lengths.push_back(row->length);
  return lengths;
}

std::vector<int64_t> ModelCache::source_lengths() const {
  std::vector<int64_t> lengths;
  if (sources_.empty()) return lengths;
  for (const auto& row : rows_) lengths.push_back(row->source_length);
  return lengths;
}

int64_t ModelCache::bytes() const {
  int64_t total = 0;
  for (const auto& layer : layers_) total += layer ? layer->bytes() : 0;
  for (const auto& source : sources_) total += source ? source->bytes() : 0;
  return total;
}

void ModelCache::reset(int64_t index) {
  Row& emptied = row("reset", index);
  const int64_t source_length = emptied.source_length;
  emptied = {};
  emptied.source_length = source_length;
  for (const auto& layer : layers_) {
    if (layer) layer->reset(index);
  }
}

bool ModelCache::can_truncate() const {
  const auto can = [](const auto& layer) { return !layer || layer->can_truncate(); };
  return std::all_of(layers_.begin(), layers_.end(), can) && std::all_of(sources_.begin(), sources_.end(), can);
}

void ModelCache::truncate(int64_t index, int64_t length) {
  Row& cut = row("truncate", index);
  LAMINA_CHECK(length >= 0 && length <= cut.length, "cache: row ", index, " holds ", cut.length,
               " tokens and cannot be cut to ", length, "; expected a length in [0, ", cut.length, "]");
  if (length == cut.length) return;
  LAMINA_CHECK(
      can_truncate(),
      "cache: a layer of this model keeps a recurrent state or neighbours of a chunk, which cannot be rewound from ",
      cut.length, " to ", length, " tokens; reset the row and feed it again");
  for (const auto& layer : layers_) {
    const int64_t shortest = layer ? layer->shortest(index) : 0;
    LAMINA_CHECK(length == 0 || length >= shortest, "cache: row ", index,
                 " has dropped tokens outside the sliding window "
                 "and can be cut to ",
                 shortest, " tokens or more, not to ", length, "; reset the row and feed it again");
  }
  for (const auto& source : sources_) {
    if (source) source->reset(index);  // clears states of chunks; keys and values of an encoder stay
  }
  cut.length = length;
  if (keeps_ids_) cut.ids.resize(static_cast<size_t>(length));
}

void ModelCache::reorder(std::span<const int64_t> sources) {
  LAMINA_CHECK(static_cast<int64_t>(sources.size()) == batch(), "cache: ", sources.size(), " source rows for ", batch(),
               " rows; give one for each");
  std::vector<Row> moved;
  moved.reserve(sources.size());
  for (const int64_t source : sources) moved.push_back(row("reorder", source));
  for (size_t i = 0; i < moved.size(); ++i) *rows_[i] = std::move(moved[i]);
  for (const auto& layer : layers_) {
    if (layer) layer->reorder(sources);
  }
  for (const auto& source : sources_) {
    if (source) source->reorder(sources);
  }
}

ModelCache ModelCache::rows(int64_t begin, int64_t count) const {
  LAMINA_CHECK(begin >= 0 && count >= 0 && begin <= batch() - count, "cache: rows [", begin, ", ", begin, " + ", count,
               ") of ", batch(), "; expected a range inside");
  ModelCache part;
  for (const auto& layer : layers_) part.layers_.push_back(layer ? layer->rows(begin, count) : nullptr);
  for (const auto& source : sources_) part.sources_.push_back(source ? source->rows(begin, count) : nullptr);
  part.rows_.assign(rows_.begin() + begin, rows_.begin() + begin + count);
  part.capacity_ = capacity_;
  part.dtype_ = dtype_;
  part.keeps_ids_ = keeps_ids_;
  return part;
}

void ModelCache::append(int64_t index, std::span<const int64_t> ids) {
  Row& grown = row("append", index);
  grown.length += static_cast<int64_t>(ids.size());
  grown.made_at = std::max(grown.made_at, grown.length);
  if (keeps_ids_) grown.ids.insert(grown.ids.end(), ids.begin(), ids.end());
}

}  // namespace lamina::nn
