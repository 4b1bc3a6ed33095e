#include <algorithm>
#include <array>
#include <cmath>

#include "lamina/base/error.h"
#include "lamina/lab/report/figures.h"

namespace lamina::lab::report {
namespace {

// Cividis colour map (Nuñez, Anderton & Renslow 2018): its brightness order is safe for colour-blind readers.
plot::Colour heat(double share) {
  constexpr std::array<plot::Colour, 6> kStops{
      {{0, 32, 77}, {59, 72, 108}, {105, 105, 112}, {149, 143, 120}, {202, 186, 106}, {255, 234, 70}}};
  const double at = std::clamp(share, 0.0, 1.0) * (kStops.size() - 1);
  const auto below = std::min(static_cast<size_t>(at), kStops.size() - 2);
  const double rest = at - static_cast<double>(below);
  const auto mix = [rest](unsigned char a, unsigned char b) {
    return static_cast<unsigned char>(std::lround(a + rest * (b - a)));
  };
  const plot::Colour a = kStops[below];
  const plot::Colour b = kStops[below + 1];
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

constexpr double kCellWidth = 52;
constexpr double kCellHeight = 26;
constexpr plot::Colour kLight{255, 255, 254};  // not the page's white, because the dark theme replaces that
constexpr plot::Colour kDark{1, 1, 1};

/// The heat map of a variant: depth is vertical, length is horizontal.
struct HeatMap {
  std::string label;
  std::vector<double> lengths;
  std::vector<double> depths;
  std::map<std::pair<double, double>, Number> cells;  ///< (length, depth)
  double width() const { return 60 + kCellWidth * static_cast<double>(lengths.size()); }
  double height() const { return 76 + kCellHeight * static_cast<double>(depths.size()); }
};

std::vector<HeatMap> heat_maps(const Study& study) {
  std::vector<HeatMap> maps;
  for (const PasskeyRow& row : study.stretch->passkey) {
    const std::string label = study.label_of(row.variant);
    auto map = std::find_if(maps.begin(), maps.end(), [&label](const HeatMap& each) { return each.label == label; });
    if (map == maps.end()) map = maps.insert(maps.end(), HeatMap{label, {}, {}, {}});
    map->lengths.push_back(row.length);
    for (size_t i = 0; i < row.depths.size(); ++i) {
      map->depths.push_back(row.depths[i]);
      map->cells[{row.length, row.depths[i]}] = row.accuracy[i];
    }
  }
  for (HeatMap& map : maps) {
    for (std::vector<double>* values : {&map.lengths, &map.depths}) {
      std::sort(values->begin(), values->end());
      values->erase(std::unique(values->begin(), values->end()), values->end());
    }
  }
  return maps;
}

void draw_map(plot::Canvas& canvas, const HeatMap& map, double left, double top) {
  const double cells = left + 52;
  canvas.text(cells, top + 18, map.label, {.size = 13, .bold = true});
  for (size_t row = 0; row < map.depths.size(); ++row) {
    const double y = top + 28 + kCellHeight * static_cast<double>(row);
    canvas.text(cells - 6, y + 17, str(std::lround(100 * map.depths[row]), " %"),
                {.size = 11, .anchor = plot::Anchor::end, .colour = plot::kFaint});
    for (size_t column = 0; column < map.lengths.size(); ++column) {
      const double x = cells + kCellWidth * static_cast<double>(column);
      const auto found = map.cells.find({map.lengths[column], map.depths[row]});
      const Number value = found == map.cells.end() ? Number{} : found->second;
      const plot::Colour fill = value ? heat(*value) : plot::kGrid;
      canvas.box(x + 1, y + 1, kCellWidth - 2, kCellHeight - 2, fill);
      const std::string text = value ? str(std::lround(100 * *value)) : "–";
      canvas.text(x + kCellWidth / 2, y + 17, text,
                  {.size = 11,
                   .anchor = plot::Anchor::middle,
                   .colour = !value         ? plot::kFaint
                             : *value < 0.6 ? kLight
                                            : kDark});
    }
  }
  const double bottom = top + 28 + kCellHeight * static_cast<double>(map.depths.size());
  for (size_t column = 0; column < map.lengths.size(); ++column) {
    canvas.text(cells + kCellWidth * (static_cast<double>(column) + 0.5), bottom + 15,
                str(static_cast<int64_t>(map.lengths[column])),
                {.size = 11, .anchor = plot::Anchor::middle, .colour = plot::kFaint});
  }
}

}  // namespace

Figure passkey_figure(const Study& study) {
  if (!study.stretch || study.stretch->passkey.empty()) return {};
  const std::vector<HeatMap> maps = heat_maps(study);
  double x = 0;
  double y = 0;
  double line = 0;
  std::vector<std::pair<double, double>> places;
  for (const HeatMap& map : maps) {
    if (x > 0 && x + map.width() > kPictureWidth) {
      x = 0;
      y += line;
      line = 0;
    }
    places.emplace_back(x, y);
    x += map.width() + 24;
    line = std::max(line, map.height());
  }
  const double height = y + line;
  Figure figure{"passkey", study.words()("figure.passkey.title"),       study.words()("figure.passkey.caption"),
                "",        study.words()("figure.passkey.alternative"), ""};
  plot::SvgCanvas canvas(kPictureWidth, height, {.title = figure.alternative});
  canvas.box(0, 0, kPictureWidth, height, plot::kPaper);
  for (size_t i = 0; i < maps.size(); ++i) draw_map(canvas, maps[i], places[i].first, places[i].second);
  figure.svg = canvas.finish();
  return figure;
}

}  // namespace lamina::lab::report
