#include "lamina/search/index.h"

#include <algorithm>
#include <map>

#include "lamina/search/words.h"

namespace lamina::search {
namespace {

constexpr double kFusionConstant = 60;  // constant of the paper

/// Deleted passages of a segment. Empty if there are none.
std::vector<bool> deleted_passages(const Segment& segment, const SegmentRecord& record) {
  if (record.deleted.empty()) return {};
  LAMINA_CHECK(record.deleted.back().second <= segment.document_count(), record.file, ": document ",
               record.deleted.back().second - 1, " is marked as deleted, there are ", segment.document_count(),
               "; build the index again");
  std::vector<bool> deleted(static_cast<size_t>(segment.count()));
  for (const auto& [begin, end] : record.deleted) {
    std::fill(deleted.begin() + segment.first_chunk(begin), deleted.begin() + segment.first_chunk(end), true);
  }
  return deleted;
}

/// Postings do not tell which words a passage has. So the texts of deleted passages are read again.
Bm25Segment bm25_segment(const Segment& segment, const std::vector<bool>& deleted) {
  Bm25Segment result{&*segment.bm25(), deleted, {}};
  for (size_t i = 0; i < deleted.size(); ++i) {
    if (!deleted[i]) continue;
    std::vector<std::string> words = words_of(segment.text(static_cast<int64_t>(i)));
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    for (const std::string& word : words) ++result.deleted_df[word];
  }
  return result;
}

/// Opens the segments of the manifest. An update may remove files after the manifest was read; then the manifest has
/// changed and is read again.
std::vector<Segment> open_segments(const std::string& folder, Manifest& manifest) {
  for (int attempt = 0;; ++attempt) {
    try {
      std::vector<Segment> segments;
      for (const SegmentRecord& record : manifest.segments) {
        segments.push_back(Segment::open(folder + "/" + record.file));
      }
      return segments;
    } catch (const Error&) {
      Manifest newer = Manifest::read(folder);
      if (attempt == 10 || newer.next == manifest.next) throw;
      manifest = std::move(newer);
    }
  }
}

}  // namespace

std::vector<Hit> fuse_ranks(const std::vector<Neighbor>& bm25, const std::vector<Neighbor>& dense, int64_t top) {
  std::map<int64_t, Hit> hits;
  const auto add = [&](const std::vector<Neighbor>& list, int64_t Hit::*rank) {
    for (size_t i = 0; i < list.size(); ++i) {
      Hit& hit = hits[list[i].row];
      hit.row = list[i].row;
      hit.*rank = static_cast<int64_t>(i) + 1;
      hit.score += 1 / (kFusionConstant + static_cast<double>(i) + 1);
    }
  };
  add(bm25, &Hit::bm25_rank);
  add(dense, &Hit::dense_rank);
  std::vector<Hit> sorted;
  for (const auto& [row, hit] : hits) sorted.push_back(hit);
  std::stable_sort(sorted.begin(), sorted.end(), [](const Hit& a, const Hit& b) { return a.score > b.score; });
  if (static_cast<int64_t>(sorted.size()) > top) sorted.resize(static_cast<size_t>(top));
  return sorted;
}

Index Index::open(const std::string& folder) {
  Index index;
  index.manifest_ = Manifest::read(folder);
  index.segments_ = open_segments(folder, index.manifest_);
  std::vector<Bm25Segment> words;
  index.first_rows_.push_back(0);
  for (size_t i = 0; i < index.segments_.size(); ++i) {
    const Segment& segment = index.segments_[i];
    const std::string& file = index.manifest_.segments[i].file;
    const std::optional<VectorSettings>& vectors = index.settings().vectors;
    LAMINA_CHECK(segment.bm25().has_value() == index.settings().bm25 &&
                     segment.vectors().has_value() == vectors.has_value() &&
                     (!vectors || segment.vectors()->dim == vectors->dim),
                 folder, "/", file, ": does not have what ", kManifestFile, " says; build the index again");
    std::vector<bool> deleted = deleted_passages(segment, index.manifest_.segments[i]);
    const auto gone = std::count(deleted.begin(), deleted.end(), true);
    index.deleted_ += gone;
    index.passages_ += segment.count() - gone;
    index.documents_ += segment.document_count();
    for (const auto& [begin, end] : index.manifest_.segments[i].deleted) index.documents_ -= end - begin;
    index.first_rows_.push_back(index.first_rows_.back() + segment.count());
    if (segment.bm25()) words.push_back(bm25_segment(segment, deleted));
    if (segment.vectors()) {
      index.flat_.emplace_back(*segment.vectors(), vectors->metric, deleted);
      index.graphs_.emplace_back();
      if (segment.graph()) {
        index.graphs_.back().emplace(*segment.vectors(), *segment.graph(), vectors->metric, deleted);
      }
    }
    index.skipped_.push_back(std::move(deleted));
  }
  if (index.settings().bm25) index.bm25_ = std::make_unique<Bm25Search>(std::move(words));
  return index;
}

size_t Index::bytes() const {
  size_t bytes = 0;
  for (const Segment& segment : segments_) bytes += segment.bytes();
  return bytes;
}

std::vector<Neighbor> Index::dense(const std::vector<float>& query, int64_t k, const SearchOptions& options,
                                   const Threads& threads) const {
  std::vector<Neighbor> all;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const auto found = graphs_[i] && !options.exact ? graphs_[i]->search(query, k, std::max(k, options.beam), threads)
                                                    : flat_[i].search(query, k, threads);
    for (const Neighbor& neighbor : found[0]) all.push_back({first_rows_[i] + neighbor.row, neighbor.score});
  }
  std::sort(all.begin(), all.end(), is_better);
  if (static_cast<int64_t>(all.size()) > k) all.resize(static_cast<size_t>(k));
  return all;
}

std::vector<Hit> Index::search(const Query& query, const SearchOptions& options, const Threads& threads) const {
  LAMINA_CHECK(options.top >= 1, "search: the best ", options.top, " were asked for; expected at least 1");
  const bool by_words = options.by != RankBy::dense;
  const bool by_vector = options.by != RankBy::bm25;
  LAMINA_CHECK(!by_words || bm25_,
               "search: the index has no BM25 part; search by dense, or build it without --no-bm25");
  LAMINA_CHECK(!by_vector || settings().vectors,
               "search: the index has no vectors; search by bm25, or build it with --model MODEL");
  LAMINA_CHECK(!by_vector || static_cast<int64_t>(query.vector.size()) == settings().vectors->dim,
               "search: the query has ", query.vector.size(), " dimensions, the index ",
               by_vector ? settings().vectors->dim : 0, "; use the model that the index was built with");
  const int64_t k = options.by == RankBy::both ? std::max(options.top, options.candidates) : options.top;
  const std::vector<Neighbor> words = by_words ? bm25_->search(query.text, k) : std::vector<Neighbor>();
  const std::vector<Neighbor> vectors = by_vector ? dense(query.vector, k, options, threads) : std::vector<Neighbor>();
  std::vector<Hit> hits = fuse_ranks(words, vectors, options.top);
  if (options.by == RankBy::both) return hits;
  const std::vector<Neighbor>& only = by_words ? words : vectors;
  for (size_t i = 0; i < hits.size(); ++i) hits[i].score = only[i].score;
  return hits;
}

Index::Place Index::place(int64_t row) const {
  LAMINA_CHECK(row >= 0 && row < first_rows_.back(), "index: passage ", row, " of ", first_rows_.back());
  const auto after = std::upper_bound(first_rows_.begin(), first_rows_.end(), row);
  const auto segment = static_cast<size_t>(after - first_rows_.begin()) - 1;
  return {&segments_[segment], row - first_rows_[segment]};
}

std::string_view Index::text(int64_t row) const {
  const Place found = place(row);
  return found.segment->text(found.chunk);
}

std::string_view Index::document(int64_t row) const {
  const Place found = place(row);
  return found.segment->document_name(found.segment->document_of(found.chunk));
}

uint64_t Index::begin(int64_t row) const {
  const Place found = place(row);
  return found.segment->begin(found.chunk);
}

void Index::each(const std::function<void(std::string_view name, int64_t row)>& take) const {
  for (size_t i = 0; i < segments_.size(); ++i) {
    for (int64_t chunk = 0; chunk < segments_[i].count(); ++chunk) {
      if (!skipped_[i].empty() && skipped_[i][static_cast<size_t>(chunk)]) continue;
      take(segments_[i].document_name(segments_[i].document_of(chunk)), first_rows_[i] + chunk);
    }
  }
}

}  // namespace lamina::search
