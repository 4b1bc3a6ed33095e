#include "lamina/nn/forward_context.h"

#include <algorithm>

#include "lamina/ops/dropout/dropout.h"

namespace lamina::nn {

int64_t ForwardContext::end() const {
  if (rows != nullptr) return longest_row;
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

Tensor ForwardContext::drop(const Tensor& x, double probability) {
  if (!training || probability == 0.0) return x;
  return ops::dropout(x, probability, draw(), (first_row * seq + first_token()) * x.dim(-1));
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
