#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "lamina/comm/communicator.h"

namespace lamina::ops {

/// Positions [begin, end) of a sequence.
struct PositionRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

/// The positions of a sequence that a context-parallel rank computes: of 2 · ranks chunks the rank-th and the rank-th
/// from the end (zigzag). Under a causal mask every rank then sees equally many (query, key) pairs. Chunk sizes differ
/// by at most one.
std::array<PositionRange, 2> zigzag_chunks(int64_t seq, int ranks, int rank);

/// A pass of context-parallel ranks, which share the positions of every sequence. A rank's tensors hold the tokens of
/// its two chunks, in order.
struct ContextShare {
  std::shared_ptr<comm::Communicator> ranks;  ///< the ranks that share the positions
  int64_t seq = 0;                            ///< positions of the whole sequence, at least two per rank
  /// Packed documents that do not attend to each other: ascending from 0 to seq. Empty: one document.
  std::vector<int64_t> document_starts = {};

  std::array<PositionRange, 2> chunks(int rank) const { return zigzag_chunks(seq, ranks->size(), rank); }
  std::array<PositionRange, 2> chunks() const { return chunks(ranks->rank()); }  ///< of this rank
  int64_t tokens(int rank) const;                                                ///< positions of a rank
  int64_t tokens() const { return tokens(ranks->rank()); }                       ///< positions of this rank
  /// The document that contains a position.
  PositionRange document(int64_t position) const;
  /// Positions of this rank's tokens, each counted from the start of its document.
  std::vector<int64_t> positions() const;
  int64_t longest_document() const;  ///< its length
};

}  // namespace lamina::ops
