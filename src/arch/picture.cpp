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

/// The different blocks of an architecture, and which of them each written block is.
struct Kinds {
  std::vector<Block> blocks;
  std::vector<size_t> of_written;
};

Kinds find_kinds(const ArchSpec& spec) {
  Kinds kinds;
  for (const WrittenBlock& written : written_blocks(spec)) {
    Block block = *written.block;
    block.repeat = 1;
    const auto found = std::find(kinds.blocks.begin(), kinds.blocks.end(), block);
    kinds.of_written.push_back(static_cast<size_t>(found - kinds.blocks.begin()));
    if (found == kinds.blocks.end()) kinds.blocks.push_back(block);
  }
  return kinds;
}

std::string letter(size_t kind) {
  return kind < 26 ? std::string(1, static_cast<char>('A' + kind)) : str("#", kind + 1);
}

/// Groups as "4 x (5 A, B)".
std::vector<std::string> group_lines(const ArchSpec& spec, const Kinds& kinds) {
  std::vector<std::string> lines;
  size_t written = 0;
  for (const LayerGroup& group : spec.layers) {
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

/// A column of boxes with arrows between them; returns its top.
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

double draw_model(const ArchSpec& spec, const Kinds& kinds, Diagram& diagram) {
  Column column(diagram, kModelWidth / 2);
  std::vector<std::string> embedding{"embedding", str(spec.vocab_size, " x ", *spec.embedding.d_embed)};
  if (*spec.embedding.d_embed != spec.d_model) embedding.push_back(str("projected to ", spec.d_model));
  if (constant_of(spec.embedding.scale) != 1.0) embedding.push_back(str("x ", constant_of(spec.embedding.scale)));
  const bool added = std::holds_alternative<LearnedPosition>(spec.position) ||
                     std::holds_alternative<SinusoidalPosition>(spec.position);
  column.add(Diagram::Tone::plain, {"tokens"});
  column.add(Diagram::Tone::outer, embedding);
  if (spec.embedding.norm) column.add(Diagram::Tone::norm, {norm_label(*spec.embedding.norm)});
  if (added) column.add(Diagram::Tone::outer, {"+ " + position_label(spec.position)});
  std::vector<std::string> layers{str(layer_count(spec), " layers, width ", spec.d_model)};
  for (const std::string& line : group_lines(spec, kinds)) layers.push_back(line);
  column.add(Diagram::Tone::plain, layers);
  if (*spec.final_norm) column.add(Diagram::Tone::norm, {norm_label(spec.norm)});
  column.add(Diagram::Tone::outer, head_lines(spec));
  column.add(Diagram::Tone::plain, {"logits"});
  return column.top();
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
    draw_block(kinds.blocks[i], name, 0, block);
    pictures.push_back({name, block.finish()});
  }
  return pictures;
}

std::string draw(const ArchSpec& resolved, const std::string& title) {
  Diagram diagram;
  const Kinds kinds = find_kinds(resolved);
  double top = draw_model(resolved, kinds, diagram);
  double left = kModelWidth + 40;
  for (size_t i = 0; i < std::min(kinds.blocks.size(), kMostBlocks); ++i) {
    const BlockSize size = draw_block(kinds.blocks[i], str("block ", letter(i)), left, diagram);
    left += size.width + 24;
    top = std::max(top, size.height);
  }
  diagram.text(0, top + 18, plain_ascii(title), true, plot::Anchor::start);
  return diagram.finish();
}

}  // namespace lamina::arch
