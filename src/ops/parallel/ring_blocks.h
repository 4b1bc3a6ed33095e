#pragma once

#include <vector>

#include "lamina/ops/parallel/context_share.h"

namespace lamina::ops {

/// A rectangle of (query, key) pairs that all see each other. `query` is an index among this rank's tokens, `key` among
/// those of the rank that owns the keys.
struct RingBlock {
  int64_t query = 0;
  int64_t queries = 0;
  int64_t key = 0;
  int64_t keys = 0;
  bool operator==(const RingBlock&) const = default;
};

/// The blocks formed by this rank's queries and the keys of another rank, as few as possible. Two chunks have at most
/// one document in common, so a block needs no mask.
std::vector<RingBlock> ring_blocks(const ContextShare& share, bool causal, int key_rank);

/// Start of each document among this rank's own tokens, and the end: [documents + 1]. Empty: one document.
std::vector<int64_t> own_document_starts(const ContextShare& share);

}  // namespace lamina::ops
