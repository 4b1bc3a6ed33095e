#include "lamina/search/segment.h"

#include <algorithm>

namespace lamina::search {
namespace {

constexpr std::string_view kSegmentKind = "SEGM";

}  // namespace

void SegmentBuilder::add(std::string_view name, std::string_view text, const std::vector<Chunk>& chunks) {
  names_ += name;
  name_starts_.push_back(names_.size());
  for (const Chunk& chunk : chunks) {
    const std::string_view passage = text.substr(chunk.begin, chunk.end - chunk.begin);
    text_ += passage;
    text_starts_.push_back(text_.size());
    begins_.push_back(chunk.begin);
    pending_.emplace_back(passage);
  }
  document_chunks_.push_back(static_cast<uint32_t>(begins_.size()));
}

void SegmentBuilder::copy(const Segment& from, int64_t document) {
  names_ += from.document_name(document);
  name_starts_.push_back(names_.size());
  for (int64_t chunk = from.first_chunk(document); chunk < from.first_chunk(document + 1); ++chunk) {
    text_ += from.text(chunk);
    text_starts_.push_back(text_.size());
    begins_.push_back(from.begin(chunk));
    if (!from.vectors()) continue;
    if (!vectors_) vectors_.emplace(from.vectors()->dtype, from.vectors()->dim);
    vectors_->append_row(*from.vectors(), chunk);
  }
  document_chunks_.push_back(static_cast<uint32_t>(begins_.size()));
}

void SegmentBuilder::add_vectors(std::span<const float> vectors, DType dtype, int64_t dim) {
  LAMINA_CHECK(vectors.size() == pending_.size() * static_cast<size_t>(dim), "index: ", vectors.size(), " values for ",
               pending_.size(), " passages of ", dim, " dimensions");
  if (!vectors_) vectors_.emplace(dtype, dim);
  vectors_->append(vectors);
  pending_.clear();
}

void SegmentBuilder::write(const std::string& path, const WriteOptions& options, const Threads& threads) const {
  SectionWriter out(path, kSegmentKind);
  out.add<char>("docs.names", names_);
  out.add<uint64_t>("docs.starts", name_starts_);
  out.add<uint32_t>("docs.chunks", document_chunks_);
  out.add<char>("text", text_);
  out.add<uint64_t>("text.starts", text_starts_);
  out.add<uint64_t>("text.begins", begins_);
  if (options.bm25) {
    Bm25Builder words;
    for (size_t i = 0; i < begins_.size(); ++i) {
      words.add(std::string_view(text_).substr(text_starts_[i], text_starts_[i + 1] - text_starts_[i]));
    }
    words.write(out);
  }
  if (vectors_) {
    write_vectors(out, vectors_->view());
    if (options.graph_from > 0 && vectors_->count() >= options.graph_from) {
      write_graph(out, build_hnsw(vectors_->view(), options.metric, options.graph, threads).view());
    }
  }
  out.publish();
}

Segment Segment::open(const std::string& path) { return parse(SectionFile::open(path, kSegmentKind)); }

Segment Segment::parse(SectionFile file) {
  Segment segment;
  segment.file_ = std::move(file);
  const SectionFile& from = segment.file_;
  segment.names_ = from.section<char>("docs.names");
  segment.name_starts_ = from.section<uint64_t>("docs.starts", 1);
  segment.document_chunks_ = from.section_of<uint32_t>("docs.chunks", segment.name_starts_.size());
  segment.text_ = from.section<char>("text");
  segment.text_starts_ = from.section<uint64_t>("text.starts", 1);
  const size_t count = segment.text_starts_.size() - 1;
  segment.begins_ = from.section_of<uint64_t>("text.begins", count);
  check_starts(segment.name_starts_, segment.names_.size(), from.name(), "docs.starts");
  check_starts(segment.document_chunks_, count, from.name(), "docs.chunks");
  check_starts(segment.text_starts_, segment.text_.size(), from.name(), "text.starts");
  if (from.has("bm25.lengths")) {
    segment.bm25_.emplace(from);
    LAMINA_CHECK(segment.bm25_->lengths().size() == count, from.name(), ": words of ", segment.bm25_->lengths().size(),
                 " passages, there are ", count, "; build the index again");
  }
  if (from.has("vec.info")) {
    segment.vectors_ = read_vectors(from);
    LAMINA_CHECK(segment.vectors_->count == static_cast<int64_t>(count), from.name(), ": vectors of ",
                 segment.vectors_->count, " passages, there are ", count, "; build the index again");
    segment.graph_ = read_graph(from, segment.vectors_->count);
  }
  return segment;
}

std::string_view Segment::document_name(int64_t document) const {
  const auto i = static_cast<size_t>(document);
  return {names_.data() + name_starts_[i], static_cast<size_t>(name_starts_[i + 1] - name_starts_[i])};
}

int64_t Segment::document_of(int64_t chunk) const {
  const auto after = std::upper_bound(document_chunks_.begin(), document_chunks_.end(), static_cast<uint64_t>(chunk));
  return after - document_chunks_.begin() - 1;
}

std::string_view Segment::text(int64_t chunk) const {
  const auto i = static_cast<size_t>(chunk);
  return {text_.data() + text_starts_[i], static_cast<size_t>(text_starts_[i + 1] - text_starts_[i])};
}

}  // namespace lamina::search
