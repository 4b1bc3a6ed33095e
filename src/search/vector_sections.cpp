#include "lamina/search/vector_sections.h"

#include <array>
#include <cmath>

namespace lamina::search {
namespace {

using Pair = std::array<int64_t, 2>;

}  // namespace

void write_vectors(SectionWriter& out, const VectorsView& vectors) {
  const auto count = static_cast<size_t>(vectors.count);
  const Pair info{static_cast<int64_t>(vectors.dtype), vectors.dim};
  out.add<int64_t>("vec.info", info);
  out.add<std::byte>("vec.data", {static_cast<const std::byte*>(vectors.data),
                                  count * static_cast<size_t>(vectors.dim) * size_of(vectors.dtype)});
  out.add<float>("vec.norms", {vectors.squared_norms, count});
  if (vectors.dtype == DType::u8) out.add<float>("vec.scales", {vectors.scales, count});
}

VectorsView read_vectors(const SectionFile& file) {
  const std::span<const int64_t> info = file.section_of<int64_t>("vec.info", 2);
  const std::span<const float> norms = file.section<float>("vec.norms");
  VectorsView vectors;
  for (const DType dtype : {DType::f32, DType::f16, DType::u8}) {
    if (info[0] == static_cast<int64_t>(dtype)) vectors.dtype = dtype;
  }
  LAMINA_CHECK(info[0] == static_cast<int64_t>(vectors.dtype) && info[1] >= 1 && info[1] <= 65536, file.name(),
               ": vectors of type ", info[0], " and ", info[1],
               " dimensions; expected f32, f16 or u8 and at most 65536. Build the index again");
  vectors.dim = info[1];
  vectors.count = static_cast<int64_t>(norms.size());
  vectors.squared_norms = norms.data();
  const size_t bytes = norms.size() * static_cast<size_t>(vectors.dim) * size_of(vectors.dtype);
  vectors.data = file.section_of<std::byte>("vec.data", bytes).data();
  const auto check_finite = [&](std::span<const float> values) {
    for (const float value : values) {
      LAMINA_CHECK(std::isfinite(value) && value >= 0, file.name(), ": a vector has the norm or scale ", value,
                   "; build the index again");
    }
  };
  check_finite(norms);
  if (vectors.dtype == DType::u8) {
    const std::span<const float> scales = file.section_of<float>("vec.scales", norms.size());
    check_finite(scales);
    vectors.scales = scales.data();
  }
  return vectors;
}

void write_graph(SectionWriter& out, const HnswView& graph) {
  const Pair info{graph.links, graph.entry};
  out.add<int64_t>("graph.info", info);
  out.add<uint8_t>("graph.levels", graph.levels);
  out.add<uint32_t>("graph.base", graph.base);
  out.add<uint32_t>("graph.upper", graph.upper);
  out.add<uint32_t>("graph.starts", graph.upper_starts);
}

std::optional<HnswView> read_graph(const SectionFile& file, int64_t count) {
  if (!file.has("graph.info")) return {};
  const std::span<const int64_t> info = file.section_of<int64_t>("graph.info", 2);
  HnswView graph;
  graph.count = count;
  graph.links = info[0];
  graph.entry = info[1];
  graph.levels = file.section<uint8_t>("graph.levels");
  graph.base = file.section<uint32_t>("graph.base");
  graph.upper = file.section<uint32_t>("graph.upper");
  graph.upper_starts = file.section<uint32_t>("graph.starts");
  check_hnsw(graph, file.name());
  return graph;
}

}  // namespace lamina::search
