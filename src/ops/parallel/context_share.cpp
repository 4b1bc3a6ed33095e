#include "lamina/ops/parallel/context_share.h"

#include <algorithm>

namespace lamina::ops {

std::array<PositionRange, 2> zigzag_chunks(int64_t seq, int ranks, int rank) {
  const int64_t chunks = 2 * int64_t{ranks};
  const auto chunk = [&](int64_t i) { return PositionRange{i * seq / chunks, (i + 1) * seq / chunks}; };
  return {chunk(rank), chunk(chunks - 1 - rank)};
}

int64_t ContextShare::tokens(int rank) const {
  const auto [first, second] = chunks(rank);
  return first.size() + second.size();
}

PositionRange ContextShare::document(int64_t position) const {
  if (document_starts.empty()) return {0, seq};
  const auto end = std::upper_bound(document_starts.begin(), document_starts.end(), position);
  return {*(end - 1), *end};
}

std::vector<int64_t> ContextShare::positions() const {
  std::vector<int64_t> result;
  for (const PositionRange& chunk : chunks()) {
    for (int64_t at = chunk.begin; at < chunk.end;) {
      const PositionRange held = document(at);
      const int64_t end = std::min(chunk.end, held.end);
      for (; at < end; ++at) result.push_back(at - held.begin);
    }
  }
  return result;
}

int64_t ContextShare::longest_document() const {
  int64_t longest = document_starts.empty() ? seq : 0;
  for (size_t d = 1; d < document_starts.size(); ++d) {
    longest = std::max(longest, document_starts[d] - document_starts[d - 1]);
  }
  return longest;
}

}  // namespace lamina::ops
