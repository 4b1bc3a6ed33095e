#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/base/threads.h"
#include "lamina/search/section_file.h"
#include "lamina/search/vectors.h"

namespace lamina::search {

/// Parameters of the BM25 score
///   Σ over query words w: idf(w) · tf · (k1 + 1) / (tf + k1 · (1 − b + b · length / mean length)),
///   idf(w) = ln(1 + (N − df + 0.5) / (df + 0.5)),
/// where tf is the number of occurrences of w in the passage, df the number of passages with w, and N the number of all
/// passages (Robertson & Zaragoza 2009, with the idf of Lucene, which is never negative). A word that occurs twice in
/// the query counts twice.
struct Bm25Options {
  double k1 = 1.2;  ///< influence of repetitions of a word; 0: none
  double b = 0.75;  ///< penalty for long passages; 0 to 1
};

/// Collects the words of passages, for an index on disk.
class Bm25Builder {
 public:
  void add(std::string_view passage);    ///< adds the next passage
  void write(SectionWriter& out) const;  ///< sections "bm25.…"
  int64_t count() const { return static_cast<int64_t>(lengths_.size()); }

 private:
  struct Posting {
    uint32_t row;
    uint16_t tf;
  };
  std::map<std::string, std::vector<Posting>, std::less<>> postings_;
  std::vector<uint32_t> lengths_;
};

/// Postings of one segment, in a mapped file. Words are sorted; the rows of a word are in ascending order. For every
/// kBlock postings there is a bound on their scores: the largest tf and the shortest length among them.
class Bm25View {
 public:
  static constexpr size_t kBlock = 128;

  Bm25View() = default;
  /// Reads the sections and checks them completely. Throws an Error if they are inconsistent. The file must outlive
  /// this view.
  explicit Bm25View(const SectionFile& file);

  /// Postings of one word.
  struct List {
    std::span<const uint32_t> rows;
    std::span<const uint16_t> tfs;
    std::span<const uint16_t> block_tfs;
    std::span<const uint32_t> block_lengths;
  };
  List find(std::string_view word) const;                         ///< empty if no passage has the word
  std::span<const uint32_t> lengths() const { return lengths_; }  ///< number of words of each passage
  size_t word_count() const { return posting_starts_.empty() ? 0 : posting_starts_.size() - 1; }

 private:
  std::string_view word(size_t index) const {
    return {words_.data() + word_starts_[index], static_cast<size_t>(word_starts_[index + 1] - word_starts_[index])};
  }

  std::span<const uint32_t> lengths_;
  std::span<const uint64_t> word_starts_;
  std::span<const char> words_;
  std::span<const uint64_t> posting_starts_;
  std::span<const uint32_t> rows_;
  std::span<const uint16_t> tfs_;
  std::span<const uint16_t> block_tfs_;
  std::span<const uint32_t> block_lengths_;
  std::vector<uint64_t> block_starts_;
};

/// A segment in a search.
struct Bm25Segment {
  const Bm25View* view = nullptr;
  std::vector<bool> deleted;  ///< [rows], or empty: passages to ignore
  /// Number of deleted passages that have a word, to be subtracted from its df.
  std::map<std::string, int64_t, std::less<>> deleted_df;
};

/// Searches several segments as if they were one index without the deleted passages. Row numbers count through all
/// segments, including deleted rows. The MaxScore method (Turtle & Flood 1995) skips passages that cannot be among the
/// best, so results are the same as if everything was scored: scores in f64, summed in the order of the query, ties by
/// row.
class Bm25Search {
 public:
  explicit Bm25Search(std::vector<Bm25Segment> segments, Bm25Options options = {});

  std::vector<Neighbor> search(std::string_view query, int64_t k) const;
  /// Runs many queries, divided among threads.
  std::vector<std::vector<Neighbor>> search(std::span<const std::string> queries, int64_t k,
                                            const Threads& threads) const;

 private:
  std::vector<Bm25Segment> segments_;
  Bm25Options options_;
  int64_t count_ = 0;       ///< number of passages that are not deleted
  double mean_length_ = 0;  ///< mean length of these passages
};

}  // namespace lamina::search
