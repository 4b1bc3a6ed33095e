#pragma once

#include <optional>

#include "lamina/search/hnsw.h"
#include "lamina/search/section_file.h"
#include "lamina/search/vectors.h"

namespace lamina::search {

/// Sections "vec.…".
void write_vectors(SectionWriter& out, const VectorsView& vectors);
/// Checks sizes; the view points into the file. Throws Error if the sections are inconsistent.
VectorsView read_vectors(const SectionFile& file);

/// Sections "graph.…".
void write_graph(SectionWriter& out, const HnswView& graph);
/// The graph over `count` rows with every link checked; empty if the file has none.
std::optional<HnswView> read_graph(const SectionFile& file, int64_t count);

}  // namespace lamina::search
