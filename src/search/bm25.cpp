#include "lamina/search/bm25.h"

#include <algorithm>
#include <limits>

#include "lamina/search/words.h"

namespace lamina::search {

void Bm25Builder::add(std::string_view passage) {
  const auto row = static_cast<uint32_t>(lengths_.size());
  uint32_t length = 0;
  each_word(passage, [&](const Word& word) {
    ++length;
    auto found = postings_.find(word.folded);
    if (found == postings_.end()) found = postings_.emplace(std::string(word.folded), std::vector<Posting>()).first;
    std::vector<Posting>& list = found->second;
    if (list.empty() || list.back().row != row) {
      list.push_back({row, 1});
    } else if (list.back().tf < std::numeric_limits<uint16_t>::max()) {
      ++list.back().tf;
    }
  });
  lengths_.push_back(length);
}

void Bm25Builder::write(SectionWriter& out) const {
  std::vector<uint64_t> word_starts{0};
  std::vector<uint64_t> posting_starts{0};
  std::string words;
  std::vector<uint32_t> rows;
  std::vector<uint16_t> tfs;
  std::vector<uint16_t> block_tfs;
  std::vector<uint32_t> block_lengths;
  for (const auto& [word, list] : postings_) {
    words += word;
    word_starts.push_back(words.size());
    for (size_t i = 0; i < list.size(); ++i) {
      if (i % Bm25View::kBlock == 0) {
        block_tfs.push_back(0);
        block_lengths.push_back(std::numeric_limits<uint32_t>::max());
      }
      rows.push_back(list[i].row);
      tfs.push_back(list[i].tf);
      block_tfs.back() = std::max(block_tfs.back(), list[i].tf);
      block_lengths.back() = std::min(block_lengths.back(), lengths_[list[i].row]);
    }
    posting_starts.push_back(rows.size());
  }
  out.add<uint32_t>("bm25.lengths", lengths_);
  out.add<char>("bm25.words", words);
  out.add<uint64_t>("bm25.wordstarts", word_starts);
  out.add<uint64_t>("bm25.starts", posting_starts);
  out.add<uint32_t>("bm25.rows", rows);
  out.add<uint16_t>("bm25.tfs", tfs);
  out.add<uint16_t>("bm25.blocktfs", block_tfs);
  out.add<uint32_t>("bm25.blocklens", block_lengths);
}

Bm25View::Bm25View(const SectionFile& file)
    : lengths_(file.section<uint32_t>("bm25.lengths")),
      word_starts_(file.section<uint64_t>("bm25.wordstarts", 1)),
      words_(file.section<char>("bm25.words")),
      posting_starts_(file.section_of<uint64_t>("bm25.starts", word_starts_.size())),
      rows_(file.section<uint32_t>("bm25.rows")),
      tfs_(file.section_of<uint16_t>("bm25.tfs", rows_.size())) {
  check_starts(word_starts_, words_.size(), file.name(), "bm25.wordstarts");
  check_starts(posting_starts_, rows_.size(), file.name(), "bm25.starts");
  block_starts_.push_back(0);
  for (size_t i = 0; i + 1 < posting_starts_.size(); ++i) {
    const uint64_t begin = posting_starts_[i];
    const uint64_t end = posting_starts_[i + 1];
    block_starts_.push_back(block_starts_.back() + (end - begin + kBlock - 1) / kBlock);
    bool right = i == 0 || word(i - 1) < word(i);
    for (uint64_t at = begin; right && at < end; ++at) {
      right = rows_[at] < lengths_.size() && (at == begin || rows_[at - 1] < rows_[at]);
    }
    LAMINA_CHECK(right, file.name(), ": the words or postings are not in order at word ", i, "; build the index again");
  }
  block_tfs_ = file.section_of<uint16_t>("bm25.blocktfs", block_starts_.back());
  block_lengths_ = file.section_of<uint32_t>("bm25.blocklens", block_starts_.back());
}

Bm25View::List Bm25View::find(std::string_view wanted) const {
  size_t low = 0;
  size_t high = word_count();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    word(middle) < wanted ? low = middle + 1 : high = middle;
  }
  if (low == word_count() || word(low) != wanted) return {};
  const auto begin = static_cast<size_t>(posting_starts_[low]);
  const auto count = static_cast<size_t>(posting_starts_[low + 1]) - begin;
  const auto blocks = static_cast<size_t>(block_starts_[low]);
  const auto n_blocks = static_cast<size_t>(block_starts_[low + 1]) - blocks;
  return {rows_.subspan(begin, count), tfs_.subspan(begin, count), block_tfs_.subspan(blocks, n_blocks),
          block_lengths_.subspan(blocks, n_blocks)};
}

}  // namespace lamina::search
