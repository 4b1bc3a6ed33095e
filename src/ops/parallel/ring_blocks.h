#pragma once

#include <vector>

#include "lamina/ops/parallel/context_share.h"

namespace lamina::ops {

/// Queries × keys that all see each other, as indices of tokens: queries among this rank's, keys among those of the
/// rank that they come from.
struct RingBlock {
  int64_t query = 0;
  int64_t queries = 0;
  int64_t key = 0;
  int64_t keys = 0;
  bool operator==(const RingBlock&) const = default;
};

/// The blocks of this rank's queries and the keys of another rank, as few as possible. Two chunks meet in one document
/// at most, so a block needs no mask.
std::vector<RingBlock> ring_blocks(const ContextShare& share, bool causal, int key_rank);

/// Where documents start among this rank's own tokens: [documents + 1]; empty: one document.
std::vector<int64_t> own_document_starts(const ContextShare& share);

}  // namespace lamina::ops
