#include "lamina/nn/forward_context.h"

#include <algorithm>

#include "lamina/ops/dropout/dropout.h"
#include "lamina/ops/elementwise/concat.h"

namespace lamina::nn {

int64_t ForwardContext::end() const {
  if (rows != nullptr) return longest_row;
  if (context) return context->seq;
  if (offsets.empty()) return offset + seq;
  return *std::max_element(offsets.begin(), offsets.end()) + seq;
}

int64_t ForwardContext::last_position() const {
  if (rows != nullptr) return longest_row - 1;
  if (longest_document > 0) return longest_document - 1;
  int64_t longest = ragged() ? 0 : offset + seq;
  if (ragged()) {
    for (int64_t row = 0; row < batch; ++row) longest = std::max(longest, length_of(row));
  }
  return longest - 1;
}

std::vector<ForwardContext::TokenRun> ForwardContext::token_runs(int64_t tokens) const {
  const int64_t first = first_token();
  if (!context) return {{0, tokens, first_row * seq + first}};
  std::vector<TokenRun> runs;
  for (int64_t at = first; at < first + tokens;) {
    const int64_t row_begin = at / seq * seq;
    int64_t chunk_begin = row_begin;
    for (const ops::PositionRange& chunk : context->chunks()) {
      const int64_t end = std::min(chunk_begin + chunk.size(), first + tokens);
      if (at >= chunk_begin && at < end) {
        const int64_t whole = (first_row + at / seq) * context->seq + chunk.begin + at - chunk_begin;
        runs.push_back({at - first, end - at, whole});
        at = end;
      }
      chunk_begin += chunk.size();
    }
  }
  return runs;
}

Tensor ForwardContext::drop(const Tensor& x, double probability) {
  if (!training || probability == 0.0) return x;
  const RandomKey key = draw();
  const int64_t width = x.dim(-1);
  const int64_t tokens = x.numel() / width;
  if (tokens == 0) return x;  // this rank's share of fewer tokens than ranks
  const std::vector<TokenRun> runs = token_runs(tokens);
  if (runs.size() == 1) return ops::dropout(x, probability, key, runs[0].whole * width);
  const Tensor flat = x.reshape({tokens, width});
  std::vector<Tensor> parts;
  for (const TokenRun& run : runs) {
    parts.push_back(ops::dropout(flat.slice(0, run.begin, run.count), probability, key, run.whole * width));
  }
  return ops::concat(parts, 0).reshape(x.shape());
}

ForwardContext row_of(const ForwardContext& pass, int64_t row) {
  ForwardContext one = pass;
  one.batch = 1;
  one.offset = pass.offset_of(row);
  one.offsets.clear();
  if (!pass.counts.empty()) one.counts = {pass.count_of(row)};
  if (pass.positions.defined() && pass.positions.rank() == 2) one.positions = pass.positions.slice(0, row, 1);
  one.losses.clear();
  return one;
}

}  // namespace lamina::nn
