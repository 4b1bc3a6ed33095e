#include "lamina/arch/text_diagram.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace lamina::arch {
namespace {

// A character cell. The shortest arrow is two rows, a box of one line three.
constexpr double kColumn = 5;
constexpr double kRow = 8;
constexpr double kPlusRadius = 9.5;  // arrows to an addition end at its circle

enum Link : uint8_t { kUp = 1, kDown = 2, kLeft = 4, kRight = 8 };
constexpr const char* kGlyphs[16] = {" ", "│", "│", "│", "─", "┘", "┐", "┤", "─", "└", "┌", "├", "─", "┴", "┬", "┼"};

struct Cell {
  int column = 0;
  int row = 0;
};

class TextGrid {
 public:
  TextGrid(const DiagramShapes& shapes, double width, double height)
      : shapes_(shapes),
        columns_(static_cast<int>(std::ceil(width / kColumn)) + 2),
        rows_(static_cast<int>(std::ceil(height / kRow)) + 1),
        links_(size(), 0),
        glyphs_(size(), " "),
        taken_(size(), false) {}

  std::string draw() {
    for (const DiagramShapes::Line& line : shapes_.lines) link(line);
    for (size_t i = 0; i < links_.size(); ++i) glyphs_[i] = kGlyphs[links_[i]];
    for (const DiagramShapes::Box& box : shapes_.boxes) fill(box);
    for (const auto& [x, y] : shapes_.additions) put(cell(x, y), "⊕");
    for (const DiagramShapes::Line& line : shapes_.lines) {
      if (line.arrow) head(line);
    }
    for (const DiagramShapes::Text& text : shapes_.texts) write(text);
    std::string drawn;
    for (int row = 0; row < rows_; ++row) {
      if (only_continues(row) && row + 1 < rows_) continue;
      std::string line;
      for (int column = 0; column < columns_; ++column) line += glyphs_[index({column, row})];
      drawn += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return drawn;
  }

 private:
  size_t size() const { return static_cast<size_t>(columns_) * static_cast<size_t>(rows_); }
  size_t index(Cell at) const {
    const int column = std::clamp(at.column, 0, columns_ - 1);
    const int row = std::clamp(at.row, 0, rows_ - 1);
    return static_cast<size_t>(row) * static_cast<size_t>(columns_) + static_cast<size_t>(column);
  }
  /// Whether a row only continues vertical lines, so that the drawing says the same without it.
  bool only_continues(int row) const {
    for (int column = 0; column < columns_; ++column) {
      const std::string& glyph = glyphs_[index({column, row})];
      if (glyph != " " && glyph != "│") return false;
    }
    return true;
  }
  void put(Cell at, const std::string& glyph) {
    glyphs_[index(at)] = glyph;
    taken_[index(at)] = true;
  }
  /// The cell of a point; for a point on the circle of an addition that of the circle's centre.
  Cell cell(double x, double y) const {
    for (const auto& [px, py] : shapes_.additions) {
      if (std::hypot(px - x, py - y) > kPlusRadius) continue;
      x = px;
      y = py;
    }
    return {static_cast<int>(std::lround(x / kColumn)), rows_ - 1 - static_cast<int>(std::lround(y / kRow))};
  }

  void link(const DiagramShapes::Line& line) {
    for (size_t i = 1; i < line.points.size(); ++i) {
      Cell at = cell(line.points[i - 1].first, line.points[i - 1].second);
      const Cell end = cell(line.points[i].first, line.points[i].second);
      const int across = (end.column > at.column) - (end.column < at.column);
      const int down = (end.row > at.row) - (end.row < at.row);
      while (at.column != end.column) {
        links_[index(at)] |= across > 0 ? kRight : kLeft;
        at.column += across;
        links_[index(at)] |= across > 0 ? kLeft : kRight;
      }
      while (at.row != end.row) {
        links_[index(at)] |= down > 0 ? kDown : kUp;
        at.row += down;
        links_[index(at)] |= down > 0 ? kUp : kDown;
      }
    }
  }

  /// The arrowhead is in the last cell, or before it if that belongs to a box or an addition.
  void head(const DiagramShapes::Line& line) {
    const auto& [x0, y0] = line.points[line.points.size() - 2];
    const auto& [x1, y1] = line.points.back();
    Cell at = cell(x1, y1);
    const bool across = std::abs(x1 - x0) > std::abs(y1 - y0);
    const int back = (across ? x1 > x0 : y1 < y0) ? -1 : 1;
    if (taken_[index(at)]) (across ? at.column : at.row) += back;
    if (taken_[index(at)]) return;
    glyphs_[index(at)] = across ? (x1 > x0 ? "▶" : "◀") : (y1 > y0 ? "▲" : "▼");
  }

  void fill(const DiagramShapes::Box& box) {
    const Cell low = cell(box.left, box.bottom);
    const Cell high = cell(box.left + box.width, box.bottom + box.height);
    for (int row = high.row; row <= low.row; ++row) {
      for (int column = low.column; column <= high.column; ++column) {
        const bool side = column == low.column || column == high.column;
        const bool edge = row == high.row || row == low.row;
        put({column, row}, edge ? "─" : side ? "│" : " ");
      }
    }
    put({low.column, high.row}, "┌");
    put({high.column, high.row}, "┐");
    put({low.column, low.row}, "└");
    put({high.column, low.row}, "┘");
    const int inside = low.row - high.row - 1;
    int row = high.row + 1 + std::max(0, (inside - static_cast<int>(box.lines.size())) / 2);
    const int room = high.column - low.column - 1;
    for (const std::string& line : box.lines) {
      const std::vector<std::string> characters = characters_of(line);
      const int length = std::min(static_cast<int>(characters.size()), room);
      const int first = low.column + 1 + (room - length) / 2;
      for (int i = 0; i < length; ++i) put({first + i, row}, characters[static_cast<size_t>(i)]);
      if (++row >= low.row) break;
    }
  }

  void write(const DiagramShapes::Text& text) {
    const std::vector<std::string> characters = characters_of(text.text);
    Cell at = cell(text.x, text.y);
    at.row = std::max(0, at.row - 1);  // above the line that ends there
    if (text.centred) at.column = std::max(0, at.column - static_cast<int>(characters.size()) / 2);
    for (const std::string& character : characters) {
      if (at.column < columns_) put(at, character);
      ++at.column;
    }
  }

  static std::vector<std::string> characters_of(const std::string& text) {
    std::vector<std::string> characters;
    for (const char c : text) {
      if ((static_cast<unsigned char>(c) & 0xC0U) == 0x80U && !characters.empty()) {
        characters.back() += c;
      } else {
        characters.emplace_back(1, c);
      }
    }
    return characters;
  }

  const DiagramShapes& shapes_;
  int columns_;
  int rows_;
  std::vector<uint8_t> links_;
  std::vector<std::string> glyphs_;
  std::vector<bool> taken_;
};

}  // namespace

std::string text_diagram(const DiagramShapes& shapes, double width, double height) {
  return TextGrid(shapes, width, height).draw();
}

}  // namespace lamina::arch
