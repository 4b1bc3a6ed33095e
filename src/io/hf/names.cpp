#include "lamina/io/hf/names.h"

#include <map>
#include <set>

#include "lamina/arch/layers.h"
#include "lamina/arch/weights.h"
#include "lamina/io/hf/transpose.h"

namespace lamina::io::hf {
namespace {

constexpr std::string_view kEnds[] = {"weight", "bias"};

std::string replaced(std::string_view pattern, std::string_view mark, const std::string& with) {
  std::string text(pattern);
  const size_t at = text.find(mark);
  return at == std::string::npos ? text : text.replace(at, mark.size(), with);
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> list;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    list.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return list;
}

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

const std::string kEncoder = "encoder.";

/// The weights of one layer. Layer -1 stands for the weights outside the layers.
struct Place {
  int64_t layer = -1;
  const arch::Block* block = nullptr;
  std::vector<WeightSlot> slots;  ///< without the layer prefix; names of an encoder begin with "encoder."

  const WeightSlot* find(const std::string& name) const {
    for (const WeightSlot& slot : slots) {
      if (slot.name == name) return &slot;
    }
    return nullptr;
  }
  std::string full(const std::string& name) const {
    if (layer < 0) return name;
    if (!name.starts_with(kEncoder)) return str("layers.", layer, ".", name);
    return str(kEncoder, "layers.", layer, ".", name.substr(kEncoder.size()));
  }
};

bool applies(const NameEntry& entry, const Place& place) {
  const bool in_layer = has(entry.hf, "{l}") || has(entry.hf, "{p}");
  if (in_layer != (place.layer >= 0)) return false;
  if (entry.when == When::always || place.block == nullptr) return entry.when == When::always;
  if (entry.when == When::plain_ffn) return std::holds_alternative<arch::PlainFfn>(place.block->ffn);
  if (entry.when == When::gated_ffn) return std::holds_alternative<arch::GatedFfn>(place.block->ffn);
  if (entry.when == When::first_of_pair) return place.layer % 2 == 0;
  if (entry.when == When::second_of_pair) return place.layer % 2 == 1;
  if (entry.when == When::no_attention) return arch::attention_of(place.block->mixer) == nullptr;
  const bool parallel = std::holds_alternative<arch::ParallelWiring>(place.block->wiring);
  return parallel == (entry.when == When::parallel);
}

int64_t head_dim_of(const Place& place) {
  const auto* a = place.block == nullptr ? nullptr : arch::attention_of(place.block->mixer);
  return a == nullptr ? 1 : *a->head_dim;
}

int64_t kv_heads_of(const Place& place) {
  if (place.block == nullptr) return 1;
  if (const auto* a = arch::attention_of(place.block->mixer)) return *a->n_kv_heads;
  if (const auto* delta = std::get_if<arch::GatedDelta>(&place.block->mixer)) return *delta->n_key_heads;
  const auto* lightning = std::get_if<arch::Lightning>(&place.block->mixer);
  return lightning == nullptr ? 1 : lightning->n_heads;
}

int64_t heads_of(const Place& place) {
  const auto* a = place.block == nullptr ? nullptr : arch::attention_of(place.block->mixer);
  return a == nullptr ? 1 : a->n_heads;
}

int64_t groups_of(const NameEntry& entry, const Place& place, int64_t rows) {
  switch (entry.rows) {
    case Rows::kv_heads: return kv_heads_of(place);
    case Rows::heads: return heads_of(place);
    case Rows::four: return 4;
    case Rows::single: return rows;
    case Rows::whole: break;
  }
  return 1;
}

/// Shape of a weight or, if `stored` holds one expert or one head of a per-head norm, of that piece.
Shape piece_shape(const Shape& shape, const Stored& stored) {
  if (stored.piece < 0) return shape;
  if (shape.rank() == 1) return {shape[0] / stored.pieces};
  Shape result;
  for (int axis = 1; axis < shape.rank(); ++axis) result.push_back(shape[axis]);
  return result;
}

Shape stored_shape(const Stored& stored, int64_t head_dim) {
  const int row_axis = stored.batched ? 1 : 0;
  Shape shape = piece_shape(stored.weights.front().shape, stored);
  for (size_t p = 1; p < stored.weights.size(); ++p) {
    shape[row_axis] += piece_shape(stored.weights[p].shape, stored)[row_axis];
  }
  if (stored.form == Form::transposed) std::swap(shape[-1], shape[-2]);
  if (stored.form == Form::conv) return {shape[0], 1, shape[1]};
  if (stored.form == Form::per_head) return {shape[0] / head_dim, head_dim};
  if (stored.form == Form::row) return {1, shape[0]};
  if (stored.form == Form::plane) return {1, 1, shape[0]};
  return shape;
}

void add_stored(const NameEntry& entry, const std::string& end, const Place& place, std::vector<Stored>& list) {
  Stored stored;
  for (const std::string_view ours : words(entry.ours)) {
    const std::string name = replaced(ours, "*", end);
    const WeightSlot* slot = place.find(name);
    LAMINA_CHECK(slot != nullptr, "'", place.full(replaced(words(entry.ours).front(), "*", end)), "' is there and '",
                 place.full(name), "' is not; this family stores them as one tensor");
    stored.weights.push_back({place.full(name), slot->shape});
  }
  const Shape first = stored.weights.front().shape;
  const bool experts = has(entry.ours, ".experts.");
  const bool pieces = has(entry.hf, "{e}");
  stored.batched = experts && !pieces;
  if (pieces) stored.pieces = experts ? first[0] : first[0] / head_dim_of(place);
  stored.piece = pieces ? 0 : -1;
  const int matrix_rank = first.rank() - (experts ? 1 : 0);
  stored.form = entry.form == Form::transposed && matrix_rank < 2 ? Form::same : entry.form;
  if (entry.form == Form::conv && matrix_rank < 2) stored.form = Form::same;
  stored.groups = groups_of(entry, place, first[stored.batched ? 1 : 0]);
  for (const WeightSlot& weight : stored.weights) {
    const int64_t rows = weight.shape[stored.batched ? 1 : 0];
    LAMINA_CHECK(rows % stored.groups == 0, "'", weight.name, "' has ", rows, " rows, which do not make ",
                 stored.groups, " groups as this family stores them");
  }
  stored.shape = stored_shape(stored, head_dim_of(place));
  const std::string name =
      replaced(replaced(replaced(entry.hf, "{l}", str(place.layer)), "{p}", str(place.layer / 2)), "*", end);
  for (int64_t piece = 0; piece < stored.pieces; ++piece) {
    if (pieces) stored.piece = piece;
    stored.name = replaced(name, "{e}", str(piece));
    list.push_back(stored);
  }
}

/// Finds the entry that covers the weight. Sets `end` to the text that its "*" matches.
const NameEntry* entry_for(const NameMap& names, const Place& place, const std::string& weight, std::string& end) {
  for (const NameEntry& entry : names) {
    if (!applies(entry, place)) continue;
    for (const std::string_view ours : words(entry.ours)) {
      for (const std::string_view candidate : kEnds) {
        end = has(ours, "*") ? candidate : "";
        if (replaced(ours, "*", end) == weight) return &entry;
      }
    }
  }
  return nullptr;
}

std::vector<Place> places_of(const arch::ArchSpec& resolved) {
  std::vector<Place> places;
  const auto add = [&](const std::string& prefix, int64_t layer, const arch::Block* block,
                       const std::vector<arch::Weight>& weights) {
    Place& place = places.emplace_back(Place{layer, block, {}});
    for (const arch::Weight& weight : weights) {
      place.slots.push_back({prefix + weight.name, Shape(std::span<const int64_t>(weight.shape))});
    }
  };
  const auto add_layers = [&](const std::string& prefix, const std::vector<const arch::Block*>& blocks) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      add(prefix, static_cast<int64_t>(i), blocks[i], arch::block_weights(resolved, *blocks[i]));
    }
  };
  add("", -1, nullptr, arch::outer_weights(resolved));
  if (resolved.encoder) {
    add(kEncoder, -1, nullptr, arch::encoder_outer_weights(resolved));
    add_layers(kEncoder, arch::layer_blocks(resolved.encoder->layers));
  }
  add_layers("", arch::layer_blocks(resolved.layers));
  return places;
}

/// Reshapes a stored tensor, or one of its weights, to [lead, groups, rows per group, …].
Tensor by_groups(const Tensor& tensor, const Stored& stored) {
  Shape shape;
  const int row_axis = stored.batched ? 1 : 0;
  if (stored.batched) shape.push_back(tensor.dim(0));
  shape.push_back(stored.groups);
  shape.push_back(tensor.dim(row_axis) / stored.groups);
  for (int axis = row_axis + 1; axis < tensor.rank(); ++axis) shape.push_back(tensor.dim(axis));
  return tensor.reshape(shape);
}

Tensor piece_of(const Tensor& weight, const Stored& stored) {
  if (stored.piece < 0) return weight;
  Shape shape{stored.pieces};
  for (const int64_t extent : piece_shape(weight.shape(), stored)) shape.push_back(extent);
  return weight.reshape(shape).slice(0, stored.piece, 1).reshape(piece_shape(weight.shape(), stored));
}

/// Copies between a stored tensor and whole weights, in either direction.
void move(const Stored& stored, const Tensor& tensor, const std::vector<Tensor>& weights, bool into_weights) {
  const bool simple = stored.form == Form::transposed && stored.groups == 1 && !stored.batched;
  Tensor rows = tensor;
  if (stored.form == Form::transposed && !simple) rows = tensor.transpose(-1, -2);
  const bool reshaped = stored.form == Form::conv || stored.form == Form::per_head || stored.form == Form::row ||
                        stored.form == Form::plane;
  if (reshaped) rows = tensor.reshape(weights.front().shape());
  if (!simple) rows = by_groups(rows, stored);
  const int axis = simple ? 1 : stored.batched ? 2 : 1;
  int64_t begin = 0;
  for (const Tensor& weight : weights) {
    Tensor ours = piece_of(weight, stored);
    if (!simple) ours = by_groups(ours, stored);
    const int64_t length = simple ? ours.dim(0) : ours.dim(axis);
    Tensor theirs = rows.slice(axis, begin, length);
    // A weight that is a transposed view of a mapped file already has the layout of the stored tensor.
    const bool turned = simple && ours.strides()[1] != 1;
    if (turned) ours = ours.transpose(0, 1);
    Tensor& to = into_weights ? ours : theirs;
    const Tensor& from = into_weights ? theirs : ours;
    simple && !turned ? copy_transposed(from, to) : static_cast<void>(to.copy_(from));
    begin += length;
  }
}

}  // namespace

std::vector<Stored> stored_tensors(const NameMap& names, const arch::ArchSpec& resolved) {
  std::vector<Stored> list;
  for (const Place& place : places_of(resolved)) {
    std::set<std::string> covered;
    for (const WeightSlot& slot : place.slots) {
      if (covered.count(place.full(slot.name)) > 0) continue;
      std::string end;
      const NameEntry* entry = entry_for(names, place, slot.name, end);
      LAMINA_CHECK(entry != nullptr, "'", place.full(slot.name), "' has no place in files of this family");
      add_stored(*entry, end, place, list);
      for (const WeightSlot& weight : list.back().weights) covered.insert(weight.name);
    }
  }
  return list;
}

bool is_view(const Stored& stored) {
  if (stored.piece >= 0 || (stored.form == Form::transposed && stored.batched)) return false;
  return stored.weights.size() == 1 || (stored.groups == 1 && !stored.batched);
}

std::vector<Tensor> views_of(const Stored& stored, const Tensor& tensor) {
  std::vector<Tensor> views;
  const Tensor rows = stored.form == Form::transposed ? tensor.transpose(0, 1) : tensor;
  if (stored.weights.size() == 1) return {rows.reshape(stored.weights.front().shape)};
  int64_t begin = 0;
  for (const WeightSlot& weight : stored.weights) {
    views.push_back(rows.slice(0, begin, weight.shape[0]));
    begin += weight.shape[0];
  }
  return views;
}

void unpack(const Stored& stored, const Tensor& tensor, std::vector<Tensor>& weights) {
  move(stored, tensor, weights, true);
}

Tensor pack(const Stored& stored, const std::vector<Tensor>& weights) {
  if (weights.size() == 1 && stored.form != Form::transposed) {
    return piece_of(weights.front(), stored).reshape(stored.shape);
  }
  Tensor tensor = Tensor::empty(stored.shape, weights.front().dtype(), weights.front().device());
  move(stored, tensor, weights, false);
  return tensor;
}

}  // namespace lamina::io::hf
