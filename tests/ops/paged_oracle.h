#pragma once

#include <algorithm>
#include <numeric>
#include <random>

#include "lamina/ops/attention/paged/paged_cache.h"
#include "ops/attention_oracle.h"
#include "support/op_run.h"

namespace lamina::testing {

/// Rows of a ragged batch and their pages.
struct PagedLayout {
  struct Row {
    int64_t offset;  ///< cached tokens
    int64_t count;   ///< new tokens; a row with neither is unused
  };
  int64_t page_size = 16;
  std::vector<Row> rows;
  bool captured = false;  ///< no host copies, as during CUDA graph capture
  int64_t window = 0;     ///< pages that no query of a row sees any more are freed; 0: none
  int64_t padding = 0;    ///< tokens after the last row

  int64_t size() const { return static_cast<int64_t>(rows.size()); }
  int64_t length(int64_t row) const { return at(row).offset + at(row).count; }
  const Row& at(int64_t row) const { return rows[static_cast<size_t>(row)]; }
  /// Unused rows of a captured batch have a token, too.
  int64_t held(int64_t row) const { return captured ? 1 : at(row).count; }
  int64_t start(int64_t row) const {
    int64_t sum = 0;
    for (int64_t r = 0; r < row; ++r) sum += held(r);
    return sum;
  }
  int64_t tokens() const { return start(size()) + padding; }
  int64_t pages_of(int64_t row) const { return (length(row) + page_size - 1) / page_size; }
  int64_t width() const {
    int64_t most = 1;
    for (int64_t r = 0; r < size(); ++r) most = std::max(most, pages_of(r));
    return most + 1;
  }
  int64_t pages() const {
    int64_t sum = 3;
    for (int64_t r = 0; r < size(); ++r) sum += pages_of(r);
    return sum;
  }
  /// [rows, width]: pages in random order; −1 for freed and unused entries.
  std::vector<double> tables() const {
    std::vector<double> order(static_cast<size_t>(pages()));
    std::iota(order.begin(), order.end(), 0.0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(7));
    const int64_t wide = width();
    std::vector<double> table(static_cast<size_t>(size() * wide), -1.0);
    size_t next = 0;
    for (int64_t r = 0; r < size(); ++r) {
      for (int64_t p = 0; p < pages_of(r); ++p) {
        const bool freed = window > 0 && (p + 1) * page_size <= at(r).offset - window + 1;
        if (!freed) table[static_cast<size_t>(r * wide + p)] = order[next];
        ++next;
      }
    }
    return table;
  }
  /// Index of a token of a row among all [pages, n_kv_heads, page_size] entries of a head.
  int64_t entry(const std::vector<double>& table, int64_t row, int64_t token, int64_t heads, int64_t head) const {
    const int64_t wide = static_cast<int64_t>(table.size()) / size();
    const auto page = static_cast<int64_t>(table[static_cast<size_t>(row * wide + token / page_size)]);
    return (page * heads + head) * page_size + token % page_size;
  }

  std::vector<Input> inputs() const {
    std::vector<double> lengths;
    std::vector<double> starts{0};
    for (int64_t r = 0; r < size(); ++r) {
      lengths.push_back(static_cast<double>(length(r)));
      starts.push_back(static_cast<double>(start(r + 1)));
    }
    return {integers({size(), width()}, tables(), DType::i32), integers({size()}, lengths, DType::i32),
            integers({size() + 1}, starts, DType::i32)};
  }
  /// From the tensors of inputs().
  ops::PagedRows make(const Tensor& tables, const Tensor& lengths, const Tensor& starts) const {
    ops::PagedRows result{tables.contiguous(), lengths.contiguous(), starts.contiguous(), {}, {}};
    if (captured) return result;
    result.host_starts.push_back(0);
    for (int64_t r = 0; r < size(); ++r) {
      result.host_lengths.push_back(static_cast<int32_t>(length(r)));
      result.host_starts.push_back(static_cast<int32_t>(start(r + 1)));
    }
    return result;
  }
  std::string describe() const {
    std::string text = str("pages of ", page_size, captured ? " captured" : "", window > 0 ? " freed" : "", " rows");
    for (size_t r = 0; r < rows.size() && r < 8; ++r) text += str(" ", rows[r].offset, "+", rows[r].count);
    return rows.size() > 8 ? str(text, " ... (", rows.size(), ")") : text;
  }
};

/// The 8-bit code of column c of a head; sets the head's scale.
template <class S>
S paged_code(const std::vector<S>& head, size_t c, S& scale) {
  S most = 0;
  for (const S& value : head) most = std::max(most, std::abs(value));
  scale = most / S(127);
  return most == S(0) ? S(128) : S(128) + std::nearbyint(head[c] / scale);
}

/// Stores fresh [tokens, heads, d] in pages; `scales` is null unless the pages hold 8-bit codes.
template <class S>
void oracle_store(const PagedLayout& layout, const Array<S>& fresh, int64_t heads, int64_t d, DType cache,
                  Array<S>& pages, Array<S>* scales) {
  const std::vector<double> table = layout.tables();
  for (int64_t r = 0; r < layout.size(); ++r) {
    const int64_t first = layout.start(r);
    for (int64_t n = 0; n < layout.at(r).count * heads; ++n) {
      const int64_t token = n / heads;
      const int64_t to = layout.entry(table, r, layout.at(r).offset + token, heads, n % heads);
      const int64_t from = ((first + token) * heads + n % heads) * d;
      std::vector<S> head;
      for (int64_t c = 0; c < d; ++c) head.push_back(fresh[from + c]);
      for (int64_t c = 0; c < d; ++c) {
        const S value = head[static_cast<size_t>(c)];
        if (scales != nullptr) {
          pages[to * d + c] = paged_code(head, static_cast<size_t>(c), (*scales)[to]);
        } else {
          const bool rounds = cache == DType::bf16 || cache == DType::f16;
          pages[to * d + c] = rounds ? static_cast<S>(round_to(static_cast<double>(value), cache)) : value;
        }
      }
    }
  }
}

}  // namespace lamina::testing
