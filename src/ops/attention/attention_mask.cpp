#include "lamina/ops/attention/attention_mask.h"

#include <algorithm>
#include <cstdlib>

namespace lamina::ops {
namespace {

using Kind = AttentionPattern::Kind;
using Coverage = AttentionMask::Coverage;

Coverage coverage_of(bool some, bool all) { return all ? Coverage::full : some ? Coverage::partial : Coverage::none; }

/// The range of distances i − j within a tile of queries i × keys j.
struct Distances {
  int64_t low;   // smallest i − j
  int64_t high;  // largest i − j
  int64_t nearest() const { return low > 0 ? low : high < 0 ? -high : 0; }
  int64_t farthest() const { return std::max(std::abs(low), std::abs(high)); }
};

}  // namespace

int64_t AttentionPattern::random_block(int64_t query_block, int64_t draw, int64_t key_blocks) const {
  const uint64_t index = static_cast<uint64_t>(query_block * random_blocks + draw);
  if (table != nullptr) return (*table)[index];
  return static_cast<int64_t>(philox_word({.seed = seed, .stream = 0}, index) % static_cast<uint64_t>(key_blocks));
}

AttentionMask::AttentionMask(const AttentionOptions& options, int64_t seq_q, int64_t seq_k,
                             const std::vector<int64_t>& document_starts)
    : AttentionMask(RangesAlone(), options, seq_q, seq_k, document_starts) {
  if (pattern_.kind == Kind::blocks && pattern_.random_blocks > 0) draw_random_blocks();
}

AttentionMask::AttentionMask(RangesAlone /*tag*/, const AttentionOptions& options, int64_t seq_q, int64_t seq_k,
                             const std::vector<int64_t>& document_starts)
    : pattern_(options.pattern),
      causal_(options.causal),
      is_contiguous_range_(pattern_.kind == Kind::full ||
                           (pattern_.kind == Kind::window && pattern_.global_tokens == 0)),
      seq_q_(seq_q),
      seq_k_(seq_k),
      offset_(seq_k - seq_q),
      starts_(document_starts) {
  if (starts_.size() <= 2) {
    starts_ = {0, seq_k};
    return;
  }
  document_index_.resize(static_cast<size_t>(seq_k));
  for (size_t i = 0; i + 1 < starts_.size(); ++i) {
    std::fill(document_index_.begin() + starts_[i], document_index_.begin() + starts_[i + 1], static_cast<int32_t>(i));
  }
}

void AttentionMask::draw_random_blocks() {
  // A document has as many queries as keys. An empty KV cache gives a negative offset.
  const int64_t first = std::max<int64_t>(offset_, 0) / pattern_.block;
  std::vector<int64_t> drawn(static_cast<size_t>(pattern_.random_blocks));
  random_begin_ = {0};
  for (size_t i = 0; i + 1 < starts_.size(); ++i) {
    const int64_t blocks = blocks_of(i);
    first_row_.push_back(static_cast<int64_t>(random_begin_.size()) - 1 - first);
    for (int64_t query_block = first; query_block < blocks; ++query_block) {
      const int64_t key_blocks = causal_ ? query_block + 1 : blocks;
      for (size_t draw = 0; draw < drawn.size(); ++draw) {
        drawn[draw] = pattern_.random_block(query_block, static_cast<int64_t>(draw), key_blocks);
      }
      std::sort(drawn.begin(), drawn.end());
      random_blocks_.insert(random_blocks_.end(), drawn.begin(), std::unique(drawn.begin(), drawn.end()));
      random_begin_.push_back(static_cast<int64_t>(random_blocks_.size()));
    }
  }
}

int64_t AttentionMask::blocks_of(size_t document) const {
  return (starts_[document + 1] - starts_[document] + pattern_.block - 1) / pattern_.block;
}

size_t AttentionMask::document_of(int64_t position) const {
  return document_index_.empty() ? 0 : static_cast<size_t>(document_index_[static_cast<size_t>(position)]);
}

AttentionMask::Range AttentionMask::document(int64_t position) const {
  const size_t index = document_of(position);
  return {starts_[index], starts_[index + 1]};
}

AttentionMask::Range AttentionMask::keys(int64_t query) const {
  const int64_t position = query + offset_;
  Range range = document(position);
  if (causal_) range.end = std::min(range.end, std::max<int64_t>(position + 1, 0));
  if (is_contiguous_range_ && pattern_.kind == Kind::window) {
    range.begin = std::max(range.begin, position - pattern_.window + 1);
    range.end = std::min(range.end, position + pattern_.window);
  }
  return range;
}

AttentionMask::Range AttentionMask::queries(int64_t key) const {
  Range range = document_index_.empty() ? Range{0, seq_q_} : document(key);
  if (causal_) range.begin = std::max(range.begin, key - offset_);
  if (is_contiguous_range_ && pattern_.kind == Kind::window) {
    range.begin = std::max(range.begin, key - pattern_.window + 1 - offset_);
    range.end = std::min(range.end, key + pattern_.window - offset_);
  }
  return range;
}

bool AttentionMask::allows(int64_t query, int64_t key) const {
  const Range range = keys(query);
  if (key < range.begin || key >= range.end) return false;
  if (is_contiguous_range_) return true;
  const int64_t position = query + offset_;
  const size_t index = document_of(position);
  const int64_t from = position - starts_[index];
  const int64_t to = key - starts_[index];
  const int64_t distance = std::abs(from - to);
  switch (pattern_.kind) {
    case Kind::full: return true;
    case Kind::window: return distance < pattern_.window || std::min(from, to) < pattern_.global_tokens;
    case Kind::strided: return distance < pattern_.window || distance % pattern_.stride == 0;
    case Kind::blocks: break;
  }
  return allows_blocks(index, from / pattern_.block, to / pattern_.block);
}

bool AttentionMask::allows_blocks(size_t document, int64_t query_block, int64_t key_block) const {
  if (std::abs(query_block - key_block) <= pattern_.window_blocks) return true;
  if (std::min(query_block, key_block) < pattern_.global_blocks) return true;
  if (std::max(query_block, key_block) >= blocks_of(document) - pattern_.last_blocks) return true;
  if (first_row_.empty()) return false;
  const auto row = static_cast<size_t>(first_row_[document] + query_block);
  return std::binary_search(random_blocks_.begin() + random_begin_[row],
                            random_blocks_.begin() + random_begin_[row + 1], key_block);
}

Coverage AttentionMask::coverage(int64_t q0, int64_t q1, int64_t k0, int64_t k1) const {
  if (keys(q0).begin >= k1 || keys(q1 - 1).end <= k0) return Coverage::none;
  const bool within = keys(q1 - 1).begin <= k0 && keys(q0).end >= k1;
  if (is_contiguous_range_) return coverage_of(true, within);
  bool some = false;
  bool all = within;
  for (int64_t q = q0; q < q1;) {  // one document at a time
    const size_t index = document_of(q + offset_);
    const Range text{starts_[index], starts_[index + 1]};
    const int64_t q_end = std::min(q1, text.end - offset_);
    const int64_t k_begin = std::max(k0, text.begin);
    const int64_t k_end = std::min(k1, causal_ ? q_end + offset_ : text.end);
    const Coverage part = k_begin >= k_end
                              ? Coverage::none
                              : pattern_coverage(index, q + offset_ - text.begin, q_end + offset_ - text.begin,
                                                 k_begin - text.begin, k_end - text.begin);
    some |= part != Coverage::none;
    all &= part == Coverage::full;
    q = q_end;
  }
  return coverage_of(some, all);
}

Coverage AttentionMask::pattern_coverage(size_t document, int64_t q0, int64_t q1, int64_t k0, int64_t k1) const {
  const Distances distances{q0 - (k1 - 1), q1 - 1 - k0};
  const bool near = distances.nearest() < pattern_.window;
  const bool all_near = distances.farthest() < pattern_.window;
  const int64_t global = pattern_.global_tokens;
  switch (pattern_.kind) {
    case Kind::full: return Coverage::full;
    case Kind::window: return coverage_of(near || k0 < global || q0 < global, all_near || k1 <= global || q1 <= global);
    case Kind::strided: {
      const int64_t stride = pattern_.stride;
      const int64_t multiple = (distances.nearest() + stride - 1) / stride * stride;
      return coverage_of(near || multiple <= distances.farthest(), all_near || stride == 1);
    }
    case Kind::blocks: break;
  }
  return block_coverage(document, q0, q1, k0, k1);
}

Coverage AttentionMask::block_coverage(size_t document, int64_t q0, int64_t q1, int64_t k0, int64_t k1) const {
  const int64_t block = pattern_.block;
  bool some = false;
  bool all = true;
  for (int64_t q = q0 / block; q * block < q1; ++q) {
    for (int64_t k = k0 / block; k * block < k1; ++k) {
      const bool allowed = allows_blocks(document, q, k);
      some |= allowed;
      all &= allowed;
    }
  }
  return coverage_of(some, all);
}

double AttentionMask::pairs_of(int64_t query) const {
  const Range range = keys(query);
  const auto length = static_cast<double>(std::max<int64_t>(range.end - range.begin, 0));
  if (is_contiguous_range_) return length;
  const int64_t position = query + offset_ - range.begin;
  const double sides = causal_ ? 1 : 2;
  const auto& p = pattern_;
  const double near = 1 + sides * (static_cast<double>(p.window) - 1);  // unused for Kind::blocks
  if (p.kind == Kind::window) {
    return position < p.global_tokens ? length : std::min(length, near + static_cast<double>(p.global_tokens));
  }
  if (p.kind == Kind::strided) return std::min(length, near + length / static_cast<double>(p.stride) + 1);
  if (position / p.block < p.global_blocks ||
      (range.end - 1 - range.begin) / p.block - position / p.block < p.last_blocks) {
    return length;
  }
  const double blocks = 1 + sides * static_cast<double>(p.window_blocks) +
                        static_cast<double>(p.global_blocks + p.last_blocks + p.random_blocks);
  return std::min(length, blocks * static_cast<double>(p.block));
}

double AttentionMask::pairs(const AttentionOptions& options, int64_t seq_q, int64_t seq_k,
                            const std::vector<int64_t>& document_starts) {
  const AttentionMask mask(RangesAlone(), options, seq_q, seq_k, document_starts);
  constexpr int64_t kCounted = 1 << 16;
  const int64_t step = seq_q / kCounted + 1;
  double sum = 0;
  for (int64_t query = 0; query < seq_q; query += step) {
    sum += mask.pairs_of(query) * static_cast<double>(std::min(step, seq_q - query));
  }
  return sum;
}

}  // namespace lamina::ops
