#include "lamina/arch/picture.h"

#include <algorithm>

#include "lamina/arch/block_picture.h"
#include "lamina/arch/labels.h"
#include "lamina/arch/layers.h"
#include "lamina/base/error.h"

namespace lamina::arch {
namespace {

constexpr double kModelWidth = 230;
constexpr size_t kMostBlocks = 12;

/// The different blocks of an architecture, and for each written block the index of its kind.
struct Kinds {
  std::vector<Block> blocks;
  std::vector<std::string> cross_titles;  ///< titles of the blocks' cross-attention
  std::vector<size_t> of_written;
};

Kinds find_kinds(const ArchSpec& spec) {
  Kinds kinds;
  for (const WrittenBlock& written : written_blocks(spec)) {
    Block block = *written.block;
    block.repeat = 1;
    const auto found = std::find(kinds.blocks.begin(), kinds.blocks.end(), block);
    kinds.of_written.push_back(static_cast<size_t>(found - kinds.blocks.begin()));
    if (found != kinds.blocks.end()) continue;
    kinds.blocks.push_back(block);
    kinds.cross_titles.emplace_back(!spec.retrieval      ? "cross-attention to the encoder"
                                    : written.in_encoder ? "cross-attention to the chunk"
                                                         : "chunked cross-attention to neighbours");
  }
  return kinds;
}

std::string letter(size_t kind) {
  return kind < 26 ? std::string(1, static_cast<char>('A' + kind)) : str("#", kind + 1);
}

/// Layer groups as text like "4 x (5 A, B)". `written` is the index of their first block among all written blocks.
std::vector<std::string> group_lines(const std::vector<LayerGroup>& layers, size_t written, const Kinds& kinds) {
  std::vector<std::string> lines;
  for (const LayerGroup& group : layers) {
    std::string inside;
    for (const Block& block : group.pattern) {
      inside += str(inside.empty() ? "" : ", ", block.repeat > 1 ? str(block.repeat, " ") : "",
                    letter(kinds.of_written[written++]));
      if (inside.size() > 60) inside = inside.substr(0, 57) + "...";
    }
    lines.push_back(str(group.repeat, " x (", inside, ")"));
    if (lines.size() == kMostBlocks) break;
  }
  return lines;
}

double constant_of(const Scale& scale) {
  const auto* constant = std::get_if<ConstantScale>(&scale);
  return constant == nullptr ? 1.0 : constant->value;
}

std::vector<std::string> head_lines(const ArchSpec& spec) {
  std::vector<std::string> lines{spec.head.tied ? "head, tied to the embedding" : "head",
                                 str(*spec.embedding.d_embed, " to ", spec.vocab_size, spec.head.bias ? ", bias" : "")};
  if (constant_of(spec.head.scale) != 1.0) lines.push_back(str("logits x ", constant_of(spec.head.scale)));
  if (spec.head.soft_cap) lines.push_back(str("capped at ", *spec.head.soft_cap));
  return lines;
}

template <class E>
std::string enumerator(E value) {
  return std::string(names_of(value)[static_cast<size_t>(value)]);
}

std::vector<std::string> pooling_lines(const Pooling& pooling) {
  const bool token = pooling.of == PoolingKind::first || pooling.of == PoolingKind::last;
  std::vector<std::string> lines{enumerator(pooling.of) + (token ? " token" : " over tokens")};
  if (pooling.dense) lines.push_back(str("dense, ", enumerator(pooling.activation)));
  if (pooling.unit_length) lines.emplace_back("unit length");
  return lines;
}

std::string neighbour_label(const Retrieval& retrieval) {
  return str(retrieval.neighbours, " x ", retrieval.length, " tokens for each chunk of ", retrieval.chunk);
}

/// Draws a column of boxes with arrows between them, and keeps track of its top.
class Column {
 public:
  Column(Diagram& diagram, double centre) : diagram_(diagram), centre_(centre) {}
  void add(Diagram::Tone tone, const std::vector<std::string>& lines) {
    if (top_ > 0) {
      diagram_.arrow({{centre_, top_}, {centre_, top_ + 18}});
      top_ += 18;
    }
    const double height = Diagram::box_height(lines.size());
    diagram_.box(centre_, top_, kModelWidth, height, tone, lines);
    top_ += height;
  }
  double top() const { return top_; }

 private:
  Diagram& diagram_;
  double centre_;
  double top_ = 0;
};

/// Draws tokens, embedding, layers and final norm of one stack. Returns the height at which its layers begin.
double draw_stack(const ArchSpec& stack, const std::string& tokens, size_t first_written, const Kinds& kinds,
                  Column& column) {
  std::vector<std::string> embedding{"embedding", str(stack.vocab_size, " x ", *stack.embedding.d_embed)};
  if (*stack.embedding.d_embed != stack.d_model) embedding.push_back(str("projected to ", stack.d_model));
  if (constant_of(stack.embedding.scale) != 1.0) embedding.push_back(str("x ", constant_of(stack.embedding.scale)));
  if (stack.embedding.segments) embedding.push_back(str("+ segments, ", *stack.embedding.segments));
  const bool added = std::holds_alternative<LearnedPosition>(stack.position) ||
                     std::holds_alternative<SinusoidalPosition>(stack.position);
  column.add(Diagram::Tone::plain, {tokens});
  column.add(Diagram::Tone::outer, embedding);
  if (added) column.add(Diagram::Tone::outer, {"+ " + position_label(stack.position)});
  if (stack.embedding.norm) column.add(Diagram::Tone::norm, {norm_label(*stack.embedding.norm)});
  std::vector<std::string> layers{str(layer_blocks(stack).size(), " layers, width ", stack.d_model)};
  for (const std::string& line : group_lines(stack.layers, first_written, kinds)) layers.push_back(line);
  const double begin = column.top();
  column.add(Diagram::Tone::plain, layers);
  if (*stack.final_norm) column.add(Diagram::Tone::norm, {norm_label(stack.norm)});
  return (begin + column.top()) / 2;
}

struct ModelSize {
  double width;
  double height;
};

ModelSize draw_model(const ArchSpec& spec, const Kinds& kinds, Diagram& diagram) {
  constexpr double kBetween = 60;
  double left = 0;
  double encoder_top = 0;
  size_t written = 0;
  const bool two_stacks = spec.encoder || spec.retrieval;
  if (two_stacks) {
    Column encoder(diagram, kModelWidth / 2);
    const ArchSpec stack = spec.encoder ? encoder_stack(spec) : neighbour_stack(spec);
    draw_stack(stack, spec.encoder ? "source tokens" : neighbour_label(*spec.retrieval), 0, kinds, encoder);
    for (const LayerGroup& group : stack.layers) written += group.pattern.size();
    encoder_top = encoder.top();
    left = kModelWidth + kBetween;
  }
  Column column(diagram, left + kModelWidth / 2);
  const double layers = draw_stack(spec, "tokens", written, kinds, column);
  if (two_stacks) {
    const double middle = kModelWidth + kBetween / 2;
    diagram.arrow({{kModelWidth / 2, encoder_top},
                   {kModelWidth / 2, encoder_top + 18},
                   {middle, encoder_top + 18},
                   {middle, layers},
                   {left, layers}});
  }
  if (spec.pooling) column.add(Diagram::Tone::outer, pooling_lines(*spec.pooling));
  if (spec.classifier) column.add(Diagram::Tone::outer, {"classifier", str(spec.classifier->classes, " classes")});
  if (!spec.pooling && spec.head.transform) {
    column.add(Diagram::Tone::outer, {"dense", str(enumerator(spec.head.transform->activation), ", then ",
                                                   norm_label(*spec.head.transform->norm))});
  }
  if (!spec.pooling) column.add(Diagram::Tone::outer, head_lines(spec));
  column.add(Diagram::Tone::plain, {!spec.pooling || spec.classifier ? "logits" : "vector"});
  return {left + kModelWidth, std::max(column.top(), encoder_top + 18)};
}

std::string plain_ascii(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, 160)) out += c >= 0x20 && c < 0x7f ? c : ' ';
  return out;
}

}  // namespace

std::vector<Picture> draw_parts(const ArchSpec& resolved) {
  const Kinds kinds = find_kinds(resolved);
  std::vector<Picture> pictures;
  Diagram model;
  draw_model(resolved, kinds, model);
  pictures.push_back({"model", model.finish()});
  for (size_t i = 0; i < std::min(kinds.blocks.size(), kMostBlocks); ++i) {
    const std::string name = str("block ", letter(i));
    Diagram block;
    draw_block(kinds.blocks[i], name, kinds.cross_titles[i], 0, block);
    pictures.push_back({name, block.finish()});
  }
  return pictures;
}

std::string draw_text(const ArchSpec& resolved, const std::string& title) {
  const Kinds kinds = find_kinds(resolved);
  Diagram model;
  draw_model(resolved, kinds, model);
  std::string text = plain_ascii(title) + "\n\n" + model.finish_text();
  for (size_t i = 0; i < std::min(kinds.blocks.size(), kMostBlocks); ++i) {
    Diagram block;
    draw_block(kinds.blocks[i], str("block ", letter(i)), kinds.cross_titles[i], 0, block);
    text += "\n" + block.finish_text();
  }
  return text;
}

std::string draw(const ArchSpec& resolved, const std::string& title) {
  Diagram diagram;
  const Kinds kinds = find_kinds(resolved);
  const ModelSize model = draw_model(resolved, kinds, diagram);
  double top = model.height;
  double left = model.width + 40;
  for (size_t i = 0; i < std::min(kinds.blocks.size(), kMostBlocks); ++i) {
    const BlockSize size = draw_block(kinds.blocks[i], str("block ", letter(i)), kinds.cross_titles[i], left, diagram);
    left += size.width + 24;
    top = std::max(top, size.height);
  }
  diagram.text(0, top + 18, plain_ascii(title), true, plot::Anchor::start);
  return diagram.finish();
}

}  // namespace lamina::arch
