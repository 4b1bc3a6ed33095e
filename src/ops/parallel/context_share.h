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

/// The positions that a context-parallel rank computes. The sequence is cut into 2 · ranks chunks; the rank gets the
/// rank-th chunk and the rank-th from the end (zigzag). Under a causal mask every rank then has about the same number
/// of (query, key) pairs. Chunk sizes differ by at most one.
std::array<PositionRange, 2> zigzag_chunks(int64_t seq, int ranks, int rank);

/// How context-parallel ranks divide the positions of a sequence. The tensors of a rank hold the tokens of its two
/// chunks, in order.
struct ContextShare {
  std::shared_ptr<comm::Communicator> ranks;  ///< the ranks that divide the positions
  int64_t seq = 0;                            ///< positions of the whole sequence, at least two per rank
  /// Start of each packed document, ascending, and the end: from 0 to seq. Documents do not attend to each other.
  /// Empty: one document.
  std::vector<int64_t> document_starts = {};

  std::array<PositionRange, 2> chunks(int rank) const { return zigzag_chunks(seq, ranks->size(), rank); }
  std::array<PositionRange, 2> chunks() const { return chunks(ranks->rank()); }  ///< chunks of this rank
  int64_t tokens(int rank) const;                                                ///< number of positions of a rank
  int64_t tokens() const { return tokens(ranks->rank()); }                       ///< number of positions of this rank
  /// The positions of the document that contains `position`.
  PositionRange document(int64_t position) const;
  /// The position of each of this rank's tokens, counted from the start of its document.
  std::vector<int64_t> positions() const;
  int64_t longest_document() const;  ///< length of the longest document
};

}  // namespace lamina::ops
