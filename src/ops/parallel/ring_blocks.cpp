#include "lamina/ops/parallel/ring_blocks.h"

#include <algorithm>

namespace lamina::ops {
namespace {

/// The (query, key) pairs of two different chunks that see each other. They lie in the document that spans from the
/// earlier chunk into the later one; there is at most one.
RingBlock visible_block(const ContextShare& share, bool causal, const PositionRange& queries,
                        const PositionRange& keys) {
  const bool keys_first = keys.begin < queries.begin;
  if (causal && !keys_first) return {};
  const PositionRange& earlier = keys_first ? keys : queries;
  const PositionRange& later = keys_first ? queries : keys;
  const PositionRange document = share.document(earlier.end - 1);
  const PositionRange of_earlier{std::max(earlier.begin, document.begin), earlier.end};
  const PositionRange of_later{later.begin, std::min(later.end, document.end)};
  if (of_later.size() <= 0) return {};
  const PositionRange& q = keys_first ? of_later : of_earlier;
  const PositionRange& k = keys_first ? of_earlier : of_later;
  return {q.begin, q.size(), k.begin, k.size()};
}

/// Merges neighbouring blocks that have the same keys or the same queries.
std::vector<RingBlock> joined(std::vector<RingBlock> blocks) {
  for (size_t a = 0; a < blocks.size(); ++a) {
    for (size_t b = 0; b < blocks.size(); ++b) {
      if (a == b) continue;
      RingBlock& x = blocks[a];
      const RingBlock& y = blocks[b];
      const bool stacked = x.key == y.key && x.keys == y.keys && x.query + x.queries == y.query;
      const bool side_by_side = x.query == y.query && x.queries == y.queries && x.key + x.keys == y.key;
      if (!stacked && !side_by_side) continue;
      (stacked ? x.queries : x.keys) += stacked ? y.queries : y.keys;
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(b));
      return joined(std::move(blocks));
    }
  }
  return blocks;
}

}  // namespace

std::vector<RingBlock> ring_blocks(const ContextShare& share, bool causal, int key_rank) {
  std::vector<RingBlock> blocks;
  int64_t query = 0;
  for (const PositionRange& queries : share.chunks()) {
    int64_t key = 0;
    for (const PositionRange& keys : share.chunks(key_rank)) {
      RingBlock block = visible_block(share, causal, queries, keys);
      block.query += query - queries.begin;
      block.key += key - keys.begin;
      if (block.queries > 0) blocks.push_back(block);
      key += keys.size();
    }
    query += queries.size();
  }
  return joined(std::move(blocks));
}

std::vector<int64_t> own_document_starts(const ContextShare& share) {
  std::vector<int64_t> starts{0};
  int64_t first = 0;
  int64_t end_of_document = 0;  // end of the previous token's document
  for (const PositionRange& chunk : share.chunks()) {
    for (int64_t at = chunk.begin; at < chunk.end; at = std::min(chunk.end, end_of_document)) {
      const bool same = at < end_of_document;
      end_of_document = share.document(at).end;
      const int64_t own = first + at - chunk.begin;
      if (!same && own > 0) starts.push_back(own);
    }
    first += chunk.size();
  }
  if (starts.size() == 1) return {};
  starts.push_back(first);
  return starts;
}

}  // namespace lamina::ops
