#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lamina/arch/spec.h"
#include "lamina/search/index.h"
#include "lamina/text/tokenizer.h"

namespace lamina::infer {

/// Returns the neighbours of a chunk of tokens as token ids [neighbours · length], for a model with retrieval.
using NeighboursOf = std::function<std::vector<int64_t>(std::span<const text::TokenId> chunk)>;

/// Tells which passages of an index occur in a text, as a sequence of words. Compares each passage only once.
class PassagesOfText {
 public:
  /// `index` must outlive this object.
  PassagesOfText(const search::Index& index, std::string_view text);
  bool has(int64_t row);

 private:
  const search::Index* index_;
  std::string words_;                      ///< folded words of the text, separated and surrounded by spaces
  std::unordered_map<int64_t, bool> has_;  ///< rows compared so far
};

/// Finds the neighbours of chunks in an index (RETRO, arXiv:2112.04426). A neighbour is a passage that a search for the
/// chunk's text finds, followed by its continuation: the next passage of the same document.
class ChunkRetriever {
 public:
  /// Returns the best passages for a text.
  using Search = std::function<std::vector<search::Hit>(const std::string& query, int64_t top)>;
  /// Whether a passage must not be a neighbour.
  using Excludes = std::function<bool(int64_t row)>;

  /// `index` and `tokenizer` must outlive this object.
  ChunkRetriever(const search::Index& index, Search search, const text::Tokenizer& tokenizer,
                 const arch::Retrieval& retrieval);

  /// The first tokens of each neighbour, padded with the padding token. If too few neighbours are found, the rest is
  /// padding. For training, `excludes` should name the passages of the chunk's own document, so that the model cannot
  /// learn to copy the answer from it. Depends only on its arguments and the index.
  std::vector<int64_t> find(std::span<const text::TokenId> chunk, const Excludes& excludes = {}) const;

  /// A passage and its continuation.
  std::string neighbour_text(int64_t row) const;
  /// The text of tokens, without special tokens.
  std::string text_of(std::span<const text::TokenId> ids) const;

 private:
  const search::Index& index_;
  Search search_;
  const text::Tokenizer& tokenizer_;
  int64_t neighbours_;
  int64_t length_;
  int64_t padding_;
  std::vector<int64_t> next_;  ///< per row: the next passage of the same document, or -1
};

}  // namespace lamina::infer
