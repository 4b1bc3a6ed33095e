#pragma once

#include <optional>

#include "lamina/search/hnsw.h"
#include "lamina/search/section_file.h"
#include "lamina/search/vectors.h"

namespace lamina::search {

/// Writes the sections "vec.…".
void write_vectors(SectionWriter& out, const VectorsView& vectors);
/// Reads and checks these sections. The view points into the file. Throws an Error if the sections are inconsistent.
VectorsView read_vectors(const SectionFile& file);

/// Writes the sections "graph.…".
void write_graph(SectionWriter& out, const HnswView& graph);
/// Reads the graph over `count` rows, and checks every link. Empty if the file has no graph.
std::optional<HnswView> read_graph(const SectionFile& file, int64_t count);

}  // namespace lamina::search
