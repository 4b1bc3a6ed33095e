#include "lamina/nn/mixers/published_bigbird.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lamina/base/numpy_random.h"
#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/elementwise/elementwise.h"

namespace lamina::nn {
namespace {

using Blocks = std::vector<int32_t>;

/// Writes the first `count` blocks of `from` into a row of the table.
void fill_row(const Blocks& from, int64_t count, int64_t row, Blocks& table) {
  LAMINA_CHECK(static_cast<int64_t>(from.size()) >= count, "attention: ", count, " random blocks of the ", from.size(),
               " that query block ", row, " may see; use fewer random_blocks or smaller blocks");
  std::copy_n(from.begin(), count, table.begin() + row * count);
}

/// Blocks [begin, end) of `list`; both ends are clipped to the list.
Blocks part(const Blocks& list, int64_t begin, int64_t end) {
  const auto size = static_cast<int64_t>(list.size());
  begin = std::clamp<int64_t>(begin, 0, size);
  return {list.begin() + begin, list.begin() + std::clamp(end, begin, size)};
}

/// The blocks that query block `i` of `blocks` may draw from, if the sequence has a length used in the paper: all
/// except the first, the last and the neighbours.
Blocks paper_choices(const Blocks& middle, int64_t i, int64_t blocks, int64_t last) {
  if (i == 1) return part(middle, 2, last);
  if (i == 2) return part(middle, 3, last);
  if (i >= blocks - 3) return part(middle, 0, last);
  const int64_t start = i - 2;
  if (start > last) return part(middle, 0, last);
  Blocks choices = part(middle, 0, start);
  if (i + 1 == last) return choices;
  const Blocks later = part(middle, i + 1, last);
  choices.insert(choices.end(), later.begin(), later.end());
  return choices;
}

/// One table per head, drawn over all blocks of the model's context.
std::vector<Blocks> paper_tables(const arch::BigBirdPattern& p, int64_t heads, int64_t rows, int64_t context,
                                 NumpyGenerator& random) {
  constexpr int64_t kRandomLength = 1024;
  const int64_t blocks = context / p.block;
  const int64_t last = (kRandomLength > 2 * p.block ? kRandomLength / p.block : blocks) - 1;
  Blocks middle;
  for (int64_t block = 1; block < blocks - 1; ++block) middle.push_back(static_cast<int32_t>(block));
  std::vector<Blocks> tables;
  for (int64_t head = 0; head < heads; ++head) {
    Blocks table(static_cast<size_t>(std::max(rows, blocks) * p.random_blocks));
    for (int64_t i = 1; i < blocks - 1; ++i) {
      fill_row(random.permutation(paper_choices(middle, i, blocks, last)), p.random_blocks, i, table);
    }
    table.resize(static_cast<size_t>(rows * p.random_blocks));
    std::fill(table.end() - p.random_blocks, table.end(), 0);  // the last block attends to everything
    tables.push_back(std::move(table));
  }
  return tables;
}

/// One table per head, drawn query block by query block. Each draws from the first 5 + 2 · random_blocks blocks.
std::vector<Blocks> planned_tables(const arch::BigBirdPattern& p, int64_t heads, int64_t rows, NumpyGenerator& random) {
  const int64_t reach = 5 + 2 * p.random_blocks;
  Blocks all(static_cast<size_t>(reach));
  std::iota(all.begin(), all.end(), 0);
  std::vector<Blocks> tables(static_cast<size_t>(heads), Blocks(static_cast<size_t>(rows * p.random_blocks)));
  for (int64_t row = 1; row < rows; ++row) {
    for (Blocks& table : tables) {
      Blocks chosen = random.permutation(all);
      std::erase_if(chosen, [&](int32_t block) {
        const bool global = block == 0 || block == reach - 1;
        const bool mirrored = (row == 1 && block == reach - 2) || (row == reach - 2 && block == 1);
        return global || mirrored || std::abs(block - row) <= 1;
      });
      if (row + 1 < rows) fill_row(chosen, p.random_blocks, row, table);
    }
  }
  return tables;
}

/// x with one more element in every head: marks[s] for the token at s.
Tensor extended(const Tensor& x, const std::vector<float>& marks) {
  const Tensor column = Tensor::from(marks, {1, x.dim(1), 1, 1}, x.device()).to(x.dtype());
  const Tensor zeros = Tensor::zeros({x.dim(0), x.dim(1), x.dim(2), 1}, x.dtype(), x.device());
  return ops::concat({x, ops::add(zeros, column)}, -1);
}

}  // namespace

std::vector<std::vector<int32_t>> numpy_random_blocks(const arch::BigBirdPattern& pattern, int64_t heads,
                                                      int64_t length, int64_t context, uint32_t seed) {
  NumpyGenerator random(seed);
  const int64_t rows = (length + pattern.block - 1) / pattern.block;
  const int64_t padded = rows * pattern.block;
  const bool in_paper = padded == 1024 || padded == 3072 || padded == 4096;
  return in_paper ? paper_tables(pattern, heads, rows, std::max(context, padded), random)
                  : planned_tables(pattern, heads, rows, random);
}

PublishedBigBird::PublishedBigBird(const arch::Attention& attention, int64_t context)
    : pattern_(std::get<arch::BigBirdPattern>(attention.pattern)), scale_(*attention.scale), context_(context) {}

Tensor PublishedBigBird::attend(const Tensor& q, const Tensor& k, const Tensor& v, const ops::AttentionOptions& options,
                                const ForwardContext& pass) const {
  std::vector<int64_t> starts = pass.row_starts;
  if (starts.empty() && pass.document_starts.defined()) starts = pass.document_starts.to_vector<int64_t>();
  if (starts.size() <= 2) return attend_document(q, k, v, options, pass);
  std::vector<Tensor> parts;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const int64_t length = starts[i + 1] - starts[i];
    if (length == 0) continue;
    const auto tokens = [&](const Tensor& x) { return x.slice(1, starts[i], length); };
    parts.push_back(attend_document(tokens(q), tokens(k), tokens(v), options, pass));
  }
  return ops::concat(parts, 1);
}

Tensor PublishedBigBird::attend_document(const Tensor& q, const Tensor& k, const Tensor& v,
                                         const ops::AttentionOptions& options_in, const ForwardContext& pass) const {
  ops::AttentionOptions options = options_in;
  if (q.dim(1) <= (5 + 2 * pattern_.random_blocks) * pattern_.block) {
    options.pattern = {};
    return ops::attention(q, k, v, options);
  }
  if (!pass.training) return attend_first_block(q, k, v, options);
  return attend_heads(q, k, v, options, static_cast<uint32_t>(pattern_.seed + pass.layer));
}

Tensor PublishedBigBird::attend_heads(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const ops::AttentionOptions& options, uint32_t seed) const {
  const int64_t heads = q.dim(2);
  const int64_t group = heads / k.dim(2);
  auto tables = numpy_random_blocks(pattern_, heads, q.dim(1), context_, seed);
  std::vector<Tensor> outputs;
  for (int64_t h = 0; h < heads; ++h) {
    ops::AttentionOptions own = options;
    own.pattern.table = std::make_shared<const Blocks>(std::move(tables[static_cast<size_t>(h)]));
    own.dropout_key.seed ^= static_cast<uint64_t>(h) << 24U;  // each call numbers heads from 0
    outputs.push_back(ops::attention(q.slice(2, h, 1), k.slice(2, h / group, 1), v.slice(2, h / group, 1), own));
  }
  return ops::concat(outputs, 2);
}

Tensor PublishedBigBird::attend_first_block(const Tensor& q, const Tensor& k, const Tensor& v,
                                            const ops::AttentionOptions& options_in) const {
  ops::AttentionOptions options = options_in;
  options.pattern.random_blocks = 0;
  const int64_t length = q.dim(1);
  const int64_t last = (length - 1) / pattern_.block;
  const auto bonus = static_cast<float>(std::log1p(static_cast<double>(pattern_.random_blocks)) / scale_);
  std::vector<float> queries;
  std::vector<float> keys;
  for (int64_t t = 0; t < length; ++t) {
    const int64_t block = t / pattern_.block;
    queries.push_back(block > 0 && block < last ? 1.0F : 0.0F);
    keys.push_back(block == 0 ? bonus : 0.0F);
  }
  return ops::attention(extended(q, queries), extended(k, keys), v, options);
}

}  // namespace lamina::nn
