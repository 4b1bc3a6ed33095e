#include <algorithm>
#include <cmath>
#include <limits>

#include "lamina/search/bm25.h"
#include "lamina/search/words.h"

namespace lamina::search {
namespace {

constexpr uint32_t kNoRow = std::numeric_limits<uint32_t>::max();
/// Bounds are increased by this factor, so that rounding does not lose a passage.
constexpr double kSlack = 1 + 1e-9;

struct QueryWord {
  std::string word;
  double weight = 0;  ///< idf · number of occurrences in the query
};

/// Computes the saturation and length normalization of a posting.
struct TermScore {
  double k1;
  double flat;        ///< k1 · (1 − b)
  double per_length;  ///< k1 · b / mean length

  double operator()(uint32_t tf, uint32_t length) const {
    const double norm = flat + per_length * static_cast<double>(length);
    return static_cast<double>(tf) * (k1 + 1) / (static_cast<double>(tf) + norm);
  }
};

/// Position in the postings of a word.
struct Cursor {
  Bm25View::List list;
  double weight = 0;
  double bound = 0;  ///< upper bound on the score of any posting
  size_t order = 0;  ///< index of the word in the query
  size_t at = 0;

  uint32_t row() const { return at < list.rows.size() ? list.rows[at] : kNoRow; }
  /// Moves to the first row ≥ `wanted`, by doubling steps and then binary search.
  void seek(uint32_t wanted) {
    if (row() >= wanted) return;
    size_t step = 1;
    while (at + step < list.rows.size() && list.rows[at + step] < wanted) step *= 2;
    const auto begin = list.rows.begin() + static_cast<std::ptrdiff_t>(at + step / 2);
    const auto end = list.rows.begin() + static_cast<std::ptrdiff_t>(std::min(at + step + 1, list.rows.size()));
    at = static_cast<size_t>(std::lower_bound(begin, end, wanted) - list.rows.begin());
  }
};

/// The best k results so far. A later result of equal score does not replace an earlier one.
class BestRows {
 public:
  explicit BestRows(int64_t k) : k_(static_cast<size_t>(k)) {}
  double threshold() const { return threshold_; }  ///< a score must exceed this to be among the best
  void offer(const Neighbor& found) {
    if (!(found.score > threshold_)) return;
    heap_.push_back(found);
    std::push_heap(heap_.begin(), heap_.end(), is_better);
    if (heap_.size() > k_) {
      std::pop_heap(heap_.begin(), heap_.end(), is_better);
      heap_.pop_back();
    }
    if (heap_.size() == k_) threshold_ = heap_.front().score;
  }
  std::vector<Neighbor> sorted() {
    std::sort(heap_.begin(), heap_.end(), is_better);
    return std::move(heap_);
  }

 private:
  size_t k_;
  double threshold_ = 0;  // a passage without any word of the query is not a result
  std::vector<Neighbor> heap_;
};

/// The MaxScore search of one segment.
class SegmentScan {
 public:
  SegmentScan(const Bm25Segment& segment, std::span<const QueryWord> words, const TermScore& score)
      : segment_(segment), score_(score), lengths_(segment.view->lengths()), terms_(words.size()) {
    for (size_t i = 0; i < words.size(); ++i) {
      Cursor cursor{segment.view->find(words[i].word), words[i].weight, 0, i, 0};
      for (size_t block = 0; block < cursor.list.block_tfs.size(); ++block) {
        cursor.bound = std::max(cursor.bound, score(cursor.list.block_tfs[block], cursor.list.block_lengths[block]));
      }
      cursor.bound *= cursor.weight * kSlack;
      if (!cursor.list.rows.empty()) cursors_.push_back(cursor);
    }
    std::sort(cursors_.begin(), cursors_.end(), [](const Cursor& a, const Cursor& b) {
      return a.bound != b.bound ? a.bound < b.bound : a.order < b.order;
    });
    double sum = 0;
    for (const Cursor& cursor : cursors_) bounds_.push_back(sum += cursor.bound);
  }

  void run(int64_t first_row, BestRows& best) {
    // The cursors before `first` together cannot reach the threshold, so they never propose rows.
    size_t first = 0;
    while (first < cursors_.size()) {
      if (bounds_[first] <= best.threshold()) {
        ++first;
        continue;
      }
      const uint32_t row = next_row(first, best.threshold());
      if (row == kNoRow) return;
      score_row(row, first, first_row, best);
    }
  }

 private:
  double block_bound(const Cursor& cursor) const {
    const size_t block = cursor.at / Bm25View::kBlock;
    return cursor.weight * kSlack * score_(cursor.list.block_tfs[block], cursor.list.block_lengths[block]);
  }

  /// The smallest row of the cursors from `first` on. If only one cursor is left, skips its blocks that cannot reach
  /// the threshold.
  uint32_t next_row(size_t first, double threshold) {
    if (first + 1 == cursors_.size()) {
      Cursor& only = cursors_[first];
      const double others = first == 0 ? 0 : bounds_[first - 1];
      while (only.row() != kNoRow && only.at % Bm25View::kBlock == 0 && block_bound(only) + others <= threshold) {
        only.at += Bm25View::kBlock;
      }
      return only.row();
    }
    uint32_t row = kNoRow;
    for (size_t i = first; i < cursors_.size(); ++i) row = std::min(row, cursors_[i].row());
    return row;
  }

  void score_row(uint32_t row, size_t first, int64_t first_row, BestRows& best) {
    const bool deleted = !segment_.deleted.empty() && segment_.deleted[row];
    const uint32_t length = lengths_[row];
    double partial = 0;
    std::fill(terms_.begin(), terms_.end(), 0.0);
    for (size_t i = first; i < cursors_.size(); ++i) {
      Cursor& cursor = cursors_[i];
      if (cursor.row() != row) continue;
      partial += terms_[cursor.order] = cursor.weight * score_(cursor.list.tfs[cursor.at], length);
      ++cursor.at;
    }
    if (deleted) return;
    for (size_t i = first; i-- > 0;) {
      if (partial * kSlack + bounds_[i] <= best.threshold()) return;
      Cursor& cursor = cursors_[i];
      cursor.seek(row);
      if (cursor.row() != row) continue;
      partial += terms_[cursor.order] = cursor.weight * score_(cursor.list.tfs[cursor.at], length);
    }
    double sum = 0;  // sum in the order of the query, regardless of the order of evaluation above
    for (const double term : terms_) sum += term;
    best.offer({first_row + row, sum});
  }

  const Bm25Segment& segment_;
  TermScore score_;
  std::span<const uint32_t> lengths_;
  std::vector<Cursor> cursors_;  ///< in ascending order of their bounds
  std::vector<double> bounds_;   ///< sum of the bounds up to each cursor
  std::vector<double> terms_;    ///< terms of the current row's score, in the order of the query
};

}  // namespace

Bm25Search::Bm25Search(std::vector<Bm25Segment> segments, Bm25Options options)
    : segments_(std::move(segments)), options_(options) {
  LAMINA_CHECK(options.k1 >= 0 && std::isfinite(options.k1) && options.b >= 0 && options.b <= 1,
               "bm25: k1 = ", options.k1, ", b = ", options.b, "; expected k1 of 0 or more and b from 0 to 1");
  double words = 0;
  for (const Bm25Segment& segment : segments_) {
    const std::span<const uint32_t> lengths = segment.view->lengths();
    LAMINA_CHECK(segment.deleted.empty() || segment.deleted.size() == lengths.size(), "bm25: ", segment.deleted.size(),
                 " passages may be deleted, there are ", lengths.size());
    for (size_t row = 0; row < lengths.size(); ++row) {
      if (!segment.deleted.empty() && segment.deleted[row]) continue;
      ++count_;
      words += lengths[row];
    }
  }
  mean_length_ = count_ > 0 ? std::max(words / static_cast<double>(count_), 1e-9) : 1;
}

std::vector<Neighbor> Bm25Search::search(std::string_view query, int64_t k) const {
  LAMINA_CHECK(k >= 1, "bm25: the best ", k, " were asked for; expected at least 1");
  std::vector<QueryWord> words;
  each_word(query, [&](const Word& word) {
    const auto same =
        std::find_if(words.begin(), words.end(), [&](const QueryWord& q) { return q.word == word.folded; });
    same == words.end() ? words.push_back({std::string(word.folded), 1}) : void(same->weight += 1);
  });
  for (QueryWord& word : words) {
    int64_t df = 0;
    for (const Bm25Segment& segment : segments_) {
      df += static_cast<int64_t>(segment.view->find(word.word).rows.size());
      const auto gone = segment.deleted_df.find(word.word);
      if (gone != segment.deleted_df.end()) df -= gone->second;
    }
    const auto n = static_cast<double>(count_);
    const auto with = static_cast<double>(std::clamp<int64_t>(df, 0, count_));
    word.weight *= std::log(1 + (n - with + 0.5) / (with + 0.5));
  }
  const TermScore score{options_.k1, options_.k1 * (1 - options_.b), options_.k1 * options_.b / mean_length_};
  BestRows best(k);
  int64_t first_row = 0;
  for (const Bm25Segment& segment : segments_) {
    SegmentScan(segment, words, score).run(first_row, best);
    first_row += static_cast<int64_t>(segment.view->lengths().size());
  }
  return best.sorted();
}

std::vector<std::vector<Neighbor>> Bm25Search::search(std::span<const std::string> queries, int64_t k,
                                                      const Threads& threads) const {
  std::vector<std::vector<Neighbor>> results(queries.size());
  threads.tasks(static_cast<int64_t>(queries.size()), [&](int64_t query) {
    results[static_cast<size_t>(query)] = search(queries[static_cast<size_t>(query)], k);
  });
  return results;
}

}  // namespace lamina::search
