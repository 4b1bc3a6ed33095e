#include "lamina/infer/chunk_retriever.h"

#include <algorithm>
#include <utility>

#include "lamina/search/words.h"

namespace lamina::infer {

using text::TokenId;

namespace {

/// The folded words of a text, separated and surrounded by spaces.
std::string folded_words(std::string_view text) {
  std::string words = " ";
  search::each_word(text, [&](const search::Word& word) { words.append(word.folded).push_back(' '); });
  return words;
}

}  // namespace

PassagesOfText::PassagesOfText(const search::Index& index, std::string_view text)
    : index_(&index), words_(folded_words(text)) {}

bool PassagesOfText::has(int64_t row) {
  const auto [found, is_new] = has_.try_emplace(row);
  if (is_new) found->second = words_.find(folded_words(index_->text(row))) != std::string::npos;
  return found->second;
}

ChunkRetriever::ChunkRetriever(const search::Index& index, Search search, const text::Tokenizer& tokenizer,
                               const arch::Retrieval& retrieval)
    : index_(index),
      search_(std::move(search)),
      tokenizer_(tokenizer),
      neighbours_(retrieval.neighbours),
      length_(retrieval.length),
      padding_(retrieval.padding_token) {
  int64_t last = -1;
  std::string last_name;
  index.each([&](std::string_view name, int64_t row) {
    next_.resize(static_cast<size_t>(row) + 1, -1);
    if (last >= 0 && row == last + 1 && name == last_name) next_[static_cast<size_t>(last)] = row;
    last = row;
    last_name = name;
  });
}

std::string ChunkRetriever::text_of(std::span<const TokenId> ids) const {
  std::vector<TokenId> plain;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(plain),
               [&](TokenId id) { return id < tokenizer_.vocab_size() && !tokenizer_.is_special(id); });
  return tokenizer_.decode(plain);
}

std::string ChunkRetriever::neighbour_text(int64_t row) const {
  std::string text(index_.text(row));
  const int64_t next = next_.at(static_cast<size_t>(row));
  if (next < 0) return text;
  const std::string_view continuation = index_.text(next);
  const uint64_t end = index_.begin(row) + text.size();
  const uint64_t begin = index_.begin(next);
  if (begin < end) return text.append(continuation.substr(std::min<size_t>(end - begin, continuation.size())));
  if (begin > end) text += begin - end == 1 ? " " : "\n\n";  // the passages do not include the white space between them
  return text.append(continuation);
}

std::vector<int64_t> ChunkRetriever::find(std::span<const TokenId> chunk, const Excludes& excludes) const {
  std::vector<int64_t> found;
  const std::string query = text_of(chunk);
  std::vector<int64_t> rows;
  for (int64_t asked = excludes ? neighbours_ + 8 : neighbours_;; asked *= 8) {
    const std::vector<search::Hit> hits = search_(query, asked);
    rows.clear();
    for (const search::Hit& hit : hits) {
      if (static_cast<int64_t>(rows.size()) == neighbours_) break;
      if (!excludes || !excludes(hit.row)) rows.push_back(hit.row);
    }
    const bool exhausted = static_cast<int64_t>(hits.size()) < asked;
    if (exhausted || static_cast<int64_t>(rows.size()) == neighbours_) break;
  }
  for (const int64_t row : rows) {
    std::vector<TokenId> ids;
    text::UnknownCharacters unknown;  // characters without a token, which are skipped or replaced by the unknown token
    tokenizer_.encode(neighbour_text(row), ids, false, &unknown);
    ids.resize(static_cast<size_t>(length_), static_cast<TokenId>(padding_));
    found.insert(found.end(), ids.begin(), ids.end());
  }
  found.resize(static_cast<size_t>(neighbours_ * length_), padding_);
  return found;
}

}  // namespace lamina::infer
