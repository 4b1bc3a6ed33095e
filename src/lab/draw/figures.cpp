#include "lamina/lab/draw/figures.h"

#include <cmath>

#include "lamina/arch/plan.h"
#include "lamina/base/error.h"
#include "lamina/base/philox.h"
#include "lamina/lab/run/format.h"
#include "lamina/nn/mixers/attention.h"
#include "lamina/ops/activation/activation.h"
#include "lamina/ops/attention/attention_mask.h"
#include "lamina/ops/norm/layer_norm.h"
#include "lamina/ops/norm/rms_norm.h"
#include "lamina/ops/position/tables.h"

namespace lamina::lab {
namespace {

constexpr int64_t kMostCells = 256;
constexpr size_t kListed = 9;  ///< captions list at most this many values

std::vector<double> values_of(const Tensor& tensor) { return tensor.to_vector<double>(); }

ops::AttentionMask mask_of(const arch::Pattern& pattern, bool causal, int64_t length) {
  ops::AttentionOptions options;
  options.causal = causal;
  options.pattern = nn::attention_pattern(pattern);
  return {options, length, length};
}

/// `count` evenly spaced numbers from low to high.
std::vector<double> evenly_spaced(double low, double high, int64_t count) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(low + (high - low) * static_cast<double>(i) / static_cast<double>(count - 1));
  }
  return values;
}

void check_size(const char* what, int64_t given, int64_t most) {
  LAMINA_CHECK(given >= 1 && given <= most, "draw: ", what, " is ", given, "; expected 1 to ", most);
}

/// A number from the standard normal distribution (Box–Muller transform).
double normal_at(uint64_t index) {
  const auto uniform = [&](uint64_t i) { return (philox_word({7, 0}, i) + 0.5) / 4294967296.0; };
  return std::sqrt(-2 * std::log(uniform(2 * index))) * std::cos(2 * M_PI * uniform(2 * index + 1));
}

/// Variance of q·k over random pairs of vectors.
double product_variance(int64_t width) {
  constexpr int64_t kPairs = 2000;
  double sum = 0;
  double squares = 0;
  for (int64_t pair = 0; pair < kPairs; ++pair) {
    double product = 0;
    for (int64_t i = 0; i < width; ++i) {
      const auto at = static_cast<uint64_t>((pair * width + i) * 2);
      product += normal_at(at) * normal_at(at + 1);
    }
    sum += product;
    squares += product * product;
  }
  const double mean = sum / kPairs;
  return squares / kPairs - mean * mean;
}

}  // namespace

Drawing draw_mask(const arch::Pattern& pattern, bool causal, int64_t length) {
  check_size("length", length, kMostCells);
  const ops::AttentionMask mask = mask_of(pattern, causal, length);
  GridDrawing drawing{"Attention mask", "query", "key", {}, 0, ""};
  int64_t seen = 0;
  for (int64_t query = 0; query < length; ++query) {
    drawing.cells.emplace_back();
    for (int64_t key = 0; key < length; ++key) {
      const bool visible = mask.allows(query, key);
      seen += visible ? 1 : 0;
      drawing.cells.back().push_back(visible ? std::optional<double>(1) : std::nullopt);
    }
  }
  drawing.caption =
      str(seen, " of ", length * length, " pairs are visible (",
          printed("%.1f", 100.0 * static_cast<double>(seen) / static_cast<double>(length * length)), " %)");
  return drawing;
}

Drawing draw_alibi(int64_t n_heads, int64_t head, int64_t length) {
  check_size("heads", n_heads, 1024);
  check_size("length", length, kMostCells);
  LAMINA_CHECK(head >= 0 && head < n_heads, "draw: head ", head, "; expected 0 to ", n_heads - 1);
  const double slope = ops::alibi_slopes(n_heads)[static_cast<size_t>(head)];
  GridDrawing drawing{str("ALiBi bias of head ", head, " of ", n_heads), "query", "key", {}, 2, ""};
  for (int64_t query = 0; query < length; ++query) {
    drawing.cells.emplace_back(static_cast<size_t>(length));
    for (int64_t key = 0; key <= query; ++key) {
      drawing.cells.back()[static_cast<size_t>(key)] = -slope * static_cast<double>(query - key);
    }
  }
  drawing.caption = str("slope ", printed("%.4g", slope), ": the score of a key at distance n is lowered by ",
                        printed("%.4g", slope), " n");
  return drawing;
}

Drawing draw_rope(int64_t head_dim, const std::vector<double>& thetas, int64_t distance) {
  check_size("head_dim", head_dim, 4096);
  check_size("distance", distance, 1 << 20);
  LAMINA_CHECK(head_dim % 2 == 0, "draw: head_dim is ", head_dim, "; expected an even number, RoPE rotates pairs");
  CurvesDrawing drawing{"RoPE: score of equal vectors by distance", "distance", "relative to distance 0", {}, ""};
  constexpr int64_t kPoints = 400;
  for (const double theta : thetas) {
    drawing.curves.push_back({str("base ", theta), {}});
    const std::vector<double> angles = ops::rotary_frequencies(head_dim, theta);
    for (const double at : evenly_spaced(0, static_cast<double>(distance), std::min(distance + 1, kPoints))) {
      const double whole = std::round(at);
      double sum = 0;
      for (const double angle : angles) sum += std::cos(whole * angle);
      drawing.curves.back().points.emplace_back(whole, sum / static_cast<double>(angles.size()));
    }
  }
  drawing.caption = "the further apart two tokens are, the more the frequencies cancel; a larger base cancels later";
  return drawing;
}

Drawing draw_heads(int64_t n_heads, int64_t n_kv_heads) {
  check_size("heads", n_heads, kMostCells);
  check_size("kv heads", n_kv_heads, n_heads);
  LAMINA_CHECK(n_heads % n_kv_heads == 0, "draw: ", n_heads, " heads are not a multiple of ", n_kv_heads, " KV heads");
  const int64_t group = n_heads / n_kv_heads;
  GridDrawing drawing{"Query heads and their key/value head", "query head", "key/value head", {}, 0, ""};
  for (int64_t head = 0; head < n_heads; ++head) {
    drawing.cells.emplace_back(static_cast<size_t>(n_kv_heads));
    drawing.cells.back()[static_cast<size_t>(head / group)] = 1;
  }
  const char* kind = n_kv_heads == n_heads ? "multi-head" : n_kv_heads == 1 ? "multi-query" : "grouped-query";
  drawing.caption =
      str(kind, " attention: the KV cache ",
          group == 1 ? std::string("has one head per query head") : str("is 1/", group, " of multi-head attention's"));
  return drawing;
}

Drawing draw_activations(const std::vector<Activation>& functions) {
  CurvesDrawing drawing{"Activations", "x", "f(x)", {}, ""};
  const std::vector<double> x = evenly_spaced(-4, 4, 161);
  const Tensor input = Tensor::from(x, {static_cast<int64_t>(x.size())}, Device::cpu(1));
  for (const Activation function : functions) {
    const std::vector<double> y = values_of(ops::activation(input, function));
    drawing.curves.push_back({std::string(name_of(function)), {}});
    for (size_t i = 0; i < x.size(); ++i) drawing.curves.back().points.emplace_back(x[i], y[i]);
  }
  return drawing;
}

Drawing draw_soft_caps(const std::vector<double>& caps) {
  constexpr double kMostCap = 1e6;
  CurvesDrawing drawing{"Soft caps: c · tanh(z / c)", "z", "capped", {}, ""};
  for (const double cap : caps) {
    LAMINA_CHECK(cap > 0 && cap <= kMostCap, "draw: the cap is ", cap, "; expected above 0 and at most ", kMostCap);
    drawing.curves.push_back({str("c = ", cap), {}});
    for (const double z : evenly_spaced(-100, 100, 201)) {
      drawing.curves.back().points.emplace_back(z, cap * std::tanh(z / cap));
    }
    drawing.caption += str(drawing.caption.empty() ? "" : "; ", "c = ", cap, ": 100 becomes ",
                           printed("%.2f", cap * std::tanh(100 / cap)));
  }
  return drawing;
}

Drawing draw_tiles(const arch::Pattern& pattern, bool causal, int64_t length, int64_t tile) {
  check_size("tile", tile, length);
  const int64_t tiles = (length + tile - 1) / tile;
  check_size("number of tiles", tiles, kMostCells);
  const ops::AttentionMask mask = mask_of(pattern, causal, length);
  GridDrawing drawing{"Tiles of attention", "tile of queries", "tile of keys", {}, 0, ""};
  int64_t computed = 0;
  for (int64_t q = 0; q < tiles; ++q) {
    drawing.cells.emplace_back();
    for (int64_t k = 0; k < tiles; ++k) {
      const auto coverage =
          mask.coverage(q * tile, std::min(length, (q + 1) * tile), k * tile, std::min(length, (k + 1) * tile));
      const bool skipped = coverage == ops::AttentionMask::Coverage::none;
      computed += skipped ? 0 : 1;
      drawing.cells.back().push_back(
          skipped ? std::nullopt : std::optional<double>(coverage == ops::AttentionMask::Coverage::full ? 2 : 1));
    }
  }
  drawing.caption =
      str(computed, " of ", tiles * tiles, " tiles are computed (2: every pair visible, 1: some). Each keeps ",
          arch::with_commas(tile * tile), " scores in on-chip memory; a stored matrix has ",
          arch::with_commas(length * length), " in device memory");
  return drawing;
}

Drawing draw_memory(bool causal, int64_t length, int64_t head_dim, int64_t tile) {
  check_size("head width", head_dim, 4096);
  check_size("tile", tile, length);
  check_size("length", length, int64_t{1} << 24);
  constexpr double kHalf = 2;  // bytes of a bf16 number
  constexpr double kFloat = 4;
  const auto t = static_cast<double>(length);
  const auto rows = static_cast<double>(tile);
  const auto d = static_cast<double>(head_dim);
  const double tiles = std::ceil(t / rows);
  const double key_tiles = causal ? tiles * (tiles + 1) / 2 : tiles * tiles;  // read, over all tiles of queries
  const double in_tile = rows * d * kHalf;
  const double tensor = t * d * kHalf;
  MemoryDrawing drawing{"Memory of tiled attention, one head", {}, ""};
  drawing.levels = {
      {"on chip, one tile at a time",
       {{"queries", in_tile},
        {"keys", in_tile},
        {"values", in_tile},
        {"scores, f32", rows * rows * kFloat},
        {"row maxima and sums, f32", 2 * rows * kFloat},
        {"output, f32", rows * d * kFloat}},
       false,
       str("reads ", arch::short_bytes(tensor + 2 * key_tiles * in_tile), " (queries once, keys and values ",
           printed("%.3g", key_tiles / tiles), " times), writes ", arch::short_bytes(tensor + t * kFloat))},
      {"device memory",
       {{"queries", tensor},
        {"keys", tensor},
        {"values", tensor},
        {"output", tensor},
        {"log-sum-exp, f32", t * kFloat}},
       false,
       ""},
      {"never stored", {{"scores, T × T", t * t * kHalf}}, true, ""}};
  drawing.caption =
      str("T = ", arch::with_commas(length), ", head width ", head_dim, ", tiles of ", tile,
          ", bf16. With stored scores, four passes over them (product, softmax twice, weighted sum) move ",
          arch::short_bytes(4 * t * t * kHalf));
  return drawing;
}

Drawing draw_norms(int64_t count) {
  check_size("count", count, 4096);
  const std::vector<double> x = evenly_spaced(1, static_cast<double>(count), std::max<int64_t>(count, 2));
  const Tensor input = Tensor::from(x, {1, static_cast<int64_t>(x.size())}, Device::cpu(1));
  CurvesDrawing drawing{str("Norms of the numbers 1 … ", count), "number", "after the norm", {}, ""};
  const std::vector<std::pair<const char*, Tensor>> normed = {{"layer norm", ops::layer_norm(input, {}, {}, 0.0)},
                                                              {"RMS norm", ops::rms_norm(input, {}, {.eps = 0.0})}};
  for (const auto& [label, tensor] : normed) {
    const std::vector<double> y = values_of(tensor);
    drawing.curves.push_back({label, {}});
    for (size_t i = 0; i < x.size(); ++i) drawing.curves.back().points.emplace_back(x[i], y[i]);
    drawing.caption += str(drawing.caption.empty() ? "" : "; ", label, ":");
    const bool all = y.size() <= kListed;
    for (size_t i = 0; i < y.size(); ++i) {
      if (all || i == 0 || i + 1 == y.size()) drawing.caption += printed(std::abs(y[i]) < 5e-4 ? " 0" : " %.3f", y[i]);
      if (!all && i == 0) drawing.caption += " …";
    }
  }
  return drawing;
}

Drawing draw_score_variance(int64_t largest_width) {
  check_size("width", largest_width, 512);
  CurvesDrawing drawing{"Variance of q · k for random vectors", "width d", "variance", {}, ""};
  drawing.curves = {{"q · k", {}}, {"q · k / √d", {}}};
  for (int64_t width = 1; width <= largest_width; width *= 2) {
    const double variance = product_variance(width);
    const auto d = static_cast<double>(width);
    drawing.curves[0].points.emplace_back(d, variance);
    drawing.curves[1].points.emplace_back(d, variance / d);
  }
  drawing.caption = str("2,000 random pairs per width; at d = ", drawing.curves[0].points.back().first,
                        " the variance is ", printed("%.0f", drawing.curves[0].points.back().second),
                        ", of q · k / √d ", printed("%.2f", drawing.curves[1].points.back().second));
  return drawing;
}

}  // namespace lamina::lab
