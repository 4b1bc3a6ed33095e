#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/search/bm25.h"
#include "lamina/search/chunks.h"
#include "lamina/search/vector_sections.h"

namespace lamina::search {

/// Collects documents and writes them as one segment of an index.
class SegmentBuilder {
 public:
  /// Adds a document that is already divided into passages.
  void add(std::string_view name, std::string_view text, const std::vector<Chunk>& chunks);
  /// Copies a document of another segment, with its vectors if it has any.
  void copy(const class Segment& from, int64_t document);

  std::vector<std::string>& pending() { return pending_; }  ///< passages that have no vectors yet
  /// Sets the vectors of the pending passages, [pending, dim].
  void add_vectors(std::span<const float> vectors, DType dtype, int64_t dim);

  int64_t count() const { return static_cast<int64_t>(begins_.size()); }
  size_t text_bytes() const { return text_.size(); }

  struct WriteOptions {
    bool bm25 = true;
    Metric metric = Metric::cosine;
    int64_t graph_from = 0;  ///< number of passages from which a graph is built; 0: never
    HnswOptions graph;
  };
  void write(const std::string& path, const WriteOptions& options, const Threads& threads) const;

 private:
  std::string names_;
  std::vector<uint64_t> name_starts_{0};
  std::vector<uint32_t> document_chunks_{0};
  std::string text_;
  std::vector<uint64_t> text_starts_{0};
  std::vector<uint64_t> begins_;
  std::vector<std::string> pending_;
  std::optional<Vectors> vectors_;
};

/// A memory-mapped segment: documents in order, each with consecutive passages.
class Segment {
 public:
  static Segment open(const std::string& path);
  /// Like open(), for bytes in memory. Throws an Error if anything is inconsistent.
  static Segment parse(SectionFile file);

  int64_t document_count() const { return static_cast<int64_t>(name_starts_.size()) - 1; }
  int64_t count() const { return static_cast<int64_t>(begins_.size()); }  ///< number of passages
  std::string_view document_name(int64_t document) const;
  /// The first passage of a document. For document_count(): the number of passages.
  int64_t first_chunk(int64_t document) const { return document_chunks_[static_cast<size_t>(document)]; }
  int64_t document_of(int64_t chunk) const;
  std::string_view text(int64_t chunk) const;
  /// Offset of the passage in its document, in bytes.
  uint64_t begin(int64_t chunk) const { return begins_[static_cast<size_t>(chunk)]; }
  const std::optional<Bm25View>& bm25() const { return bm25_; }
  const std::optional<VectorsView>& vectors() const { return vectors_; }
  const std::optional<HnswView>& graph() const { return graph_; }
  size_t bytes() const { return file_.bytes(); }

 private:
  SectionFile file_;
  std::span<const char> names_;
  std::span<const uint64_t> name_starts_;
  std::span<const uint32_t> document_chunks_;
  std::span<const char> text_;
  std::span<const uint64_t> text_starts_;
  std::span<const uint64_t> begins_;
  std::optional<Bm25View> bm25_;
  std::optional<VectorsView> vectors_;
  std::optional<HnswView> graph_;
};

}  // namespace lamina::search
