#include "lamina/arch/block_picture.h"

#include <algorithm>

#include "lamina/arch/labels.h"
#include "lamina/arch/layers.h"
#include "lamina/base/error.h"

namespace lamina::arch {
namespace {

constexpr double kBox = 230;  // width of a box
constexpr double kGap = 16;   // length of an arrow
constexpr double kSide = 26;  // from a box to the residual line next to it
constexpr double kTitle = 22;

/// A sublayer with the norms of its branch.
struct Branch {
  Diagram::Tone tone;
  std::vector<std::string> lines;
  bool norm_before;
  bool norm_after;
};

class BlockDrawing {
 public:
  BlockDrawing(const Block& block, const std::string& cross_title, Diagram& diagram)
      : block_(block), cross_title_(cross_title), diagram_(diagram), norm_(norm_label(*block.norm)) {}

  double serial(double centre) {
    double y = 0;
    if (has_mixer(block_)) {
      Branch mixer = branch(Diagram::Tone::mixer, mixer_labels(block_.mixer));
      mixer.norm_before = mixer.norm_before && block_.mixer_norm;
      y = sublayer(centre, y, mixer);
    }
    if (block_.cross) y = cross(centre, y);
    if (has_ffn(block_)) y = sublayer(centre, y, branch(Diagram::Tone::ffn, ffn_labels(block_.ffn)));
    return leave(centre, y);
  }

  /// A parallel block: both branches start at one fork; their outputs are added to each other and then to the residual.
  double parallel(double left_centre, double right_centre) {
    const bool shared = std::get<ParallelWiring>(block_.wiring).shared_norm;
    const bool before = block_.placement != Placement::post && block_.placement != Placement::branch_post;
    const double middle = (left_centre + right_centre) / 2;
    const double residual = left_centre - kBox / 2 - kSide;
    double y = kGap;
    diagram_.line({{middle, 0}, {middle, y}});
    double fork = y;
    if (shared && before) {
      y = box(middle, y + kGap, Diagram::Tone::norm, {norm_});
      diagram_.arrow({{middle, fork}, {middle, fork + kGap}});
      if (block_.placement == Placement::residual_after_norm) fork = y + 4;
    }
    const double split = y + 10;
    diagram_.line({{middle, y}, {middle, split}});
    const bool own = !shared && before;
    const Branch mixer{Diagram::Tone::mixer, mixer_labels(block_.mixer), own, output_norm()};
    const Branch ffn{Diagram::Tone::ffn, ffn_labels(block_.ffn), own, output_norm()};
    const double tops[] = {climb(middle, left_centre, split, mixer), climb(middle, right_centre, split, ffn)};
    const double join = std::max(tops[0], tops[1]) + kGap + 9;
    diagram_.arrow({{left_centre, tops[0]}, {left_centre, join}, {middle - 9, join}});
    diagram_.arrow({{right_centre, tops[1]}, {right_centre, join}, {middle + 9, join}});
    diagram_.plus(middle, join);
    const double sum = join + 36;
    diagram_.arrow({{middle, join + 9}, {middle, sum - 9}});
    diagram_.arrow({{middle, fork}, {residual, fork}, {residual, sum}, {middle - 9, sum}});
    diagram_.plus(middle, sum);
    double top = sum + 9;
    if (block_.placement == Placement::post) top = step(middle, top, Diagram::Tone::norm, {norm_});
    return leave(middle, block_.cross ? cross(middle, top) : top);
  }

 private:
  bool output_norm() const {
    return block_.placement == Placement::sandwich || block_.placement == Placement::branch_post;
  }

  double cross(double centre, double y) {
    return sublayer(centre, y, branch(Diagram::Tone::mixer, cross_labels(*block_.cross, cross_title_)));
  }

  Branch branch(Diagram::Tone tone, std::vector<std::string> lines) const {
    const bool before = block_.placement == Placement::pre || block_.placement == Placement::sandwich;
    return {tone, std::move(lines), before, output_norm()};
  }

  double box(double centre, double bottom, Diagram::Tone tone, const std::vector<std::string>& lines) {
    const double height = Diagram::box_height(lines.size());
    diagram_.box(centre, bottom, kBox, height, tone, lines);
    return bottom + height;
  }

  double step(double centre, double y, Diagram::Tone tone, const std::vector<std::string>& lines) {
    diagram_.arrow({{centre, y}, {centre, y + kGap}});
    return box(centre, y + kGap, tone, lines);
  }

  double inside(double centre, double y, const Branch& branch) {
    if (branch.norm_before) y = step(centre, y, Diagram::Tone::norm, {norm_});
    std::vector<std::string> lines = branch.lines;
    if (block_.residual_scale != 1.0) lines.push_back(str("x ", block_.residual_scale));
    if (block_.skip_scale != 1.0) lines.push_back(str("residual x ", block_.skip_scale));
    y = step(centre, y, branch.tone, lines);
    if (branch.norm_after) y = step(centre, y, Diagram::Tone::norm, {norm_});
    return y;
  }

  /// Draws one branch of a parallel block, starting at the fork. Returns the y coordinate of the branch's top.
  double climb(double from, double centre, double y, const Branch& branch) {
    diagram_.line({{from, y}, {centre, y}});
    return inside(centre, y, branch);
  }

  /// Draws one residual unit of a serial block, starting at height y. Returns the y coordinate of its top.
  double sublayer(double centre, double y, const Branch& branch) {
    const double residual = centre - kBox / 2 - kSide;
    if (block_.placement == Placement::residual_after_norm) y = step(centre, y, Diagram::Tone::norm, {norm_});
    const double fork = y + 8;
    diagram_.line({{centre, y}, {centre, fork}});
    y = inside(centre, fork, branch);
    const double join = y + kGap + 9;
    diagram_.arrow({{centre, y}, {centre, join - 9}});
    diagram_.arrow({{centre, fork}, {residual, fork}, {residual, join}, {centre - 9, join}});
    diagram_.plus(centre, join);
    y = join + 9;
    return block_.placement == Placement::post ? step(centre, y, Diagram::Tone::norm, {norm_}) : y;
  }

  double leave(double centre, double y) {
    diagram_.arrow({{centre, y}, {centre, y + kGap}});
    return y + kGap;
  }

  const Block& block_;
  const std::string& cross_title_;
  Diagram& diagram_;
  std::string norm_;
};

}  // namespace

BlockSize draw_block(const Block& block, const std::string& title, const std::string& cross_title, double left,
                     Diagram& diagram) {
  const bool parallel = std::holds_alternative<ParallelWiring>(block.wiring);
  const double first = left + kSide + 14 + kBox / 2;
  const double second = first + kBox + 24;
  BlockDrawing drawing(block, cross_title, diagram);
  const double top = parallel ? drawing.parallel(first, second) : drawing.serial(first);
  const double right = (parallel ? second : first) + kBox / 2 + 14;
  const auto placement = names_of(block.placement)[static_cast<size_t>(block.placement)];
  diagram.text((left + right) / 2, top + 6, str(title, ": ", kind_of(block.wiring), ", ", placement), true);
  return {right - left, top + kTitle};
}

}  // namespace lamina::arch
