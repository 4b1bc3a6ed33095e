#include "lamina/text/bpe.h"

#include <algorithm>
#include <queue>

#include "lamina/base/error.h"
#include "lamina/text/utf8.h"

namespace lamina::text {

/// A symbol of a long piece. Symbols form a linked list, so that a merge moves no elements.
struct Bpe::Symbol {
  TokenId id;
  int64_t before;
  int64_t behind;  // index of the next symbol, or −1
  bool alive = true;
};

Bpe::Bpe(const TokenizerSpec& spec, const std::string& name)
    : name_(name),
      symbols_(spec.symbols),
      space_(spec.space),
      unknown_(spec.unknown),
      fuse_unknown_(spec.fuse_unknown),
      byte_fallback_(spec.byte_fallback),
      vocabulary_(spec.vocab.size()),
      merges_(spec.merges),
      whole_(new std::atomic<Whole>[spec.vocab.size()]) {
  byte_ids_.fill(Vocabulary::kNone);
  for (size_t i = 0; i < spec.vocab.size(); ++i) {
    const VocabEntry& entry = spec.vocab[i];
    const auto id = static_cast<TokenId>(i);
    whole_[i] = spec.ignore_merges ? Whole::yes : Whole::unknown;
    if (entry.kind == VocabEntry::Kind::ordinary) vocabulary_.add(entry.bytes, id);
    const bool is_byte = entry.kind == VocabEntry::Kind::byte ||
                         (symbols_ == Symbols::bytes && entry.kind == VocabEntry::Kind::ordinary);
    if (is_byte && entry.bytes.size() == 1) byte_ids_[static_cast<unsigned char>(entry.bytes[0])] = id;
  }
  if (symbols_ == Symbols::characters && !space_.empty()) find_joins(spec);
}

void Bpe::find_joins(const TokenizerSpec& spec) {
  for (const MergeRule& rule : spec.merges) {
    const std::string& bytes = spec.vocab[static_cast<size_t>(rule.result)].bytes;
    for (size_t at = bytes.find(space_, 1); at != std::string::npos; at = bytes.find(space_, at + 1)) {
      joins_space_[static_cast<unsigned char>(bytes[at - 1])] = true;
    }
  }
}

void Bpe::encode(std::string_view piece, std::vector<TokenId>& ids, UnknownCharacters* unknown) const {
  if (symbols_ == Symbols::bytes || space_.empty()) {
    encode_word(piece, ids, unknown);
    return;
  }
  size_t begin = 0;
  for (size_t at = 1; (at = piece.find(space_, at)) != std::string_view::npos; at += space_.size()) {
    if (joins_space_[static_cast<unsigned char>(piece[at - 1])]) continue;
    encode_word(piece.substr(begin, at - begin), ids, unknown);
    begin = at;
  }
  encode_word(piece.substr(begin), ids, unknown);
}

void Bpe::encode_word(std::string_view word, std::vector<TokenId>& ids, UnknownCharacters* unknown) const {
  const TokenId id = vocabulary_.find(word);
  if (id == Vocabulary::kNone) {
    merge_word(word, ids, unknown);
    return;
  }
  std::atomic<Whole>& whole = whole_[static_cast<size_t>(id)];
  if (whole.load(std::memory_order_relaxed) == Whole::yes) {
    ids.push_back(id);
    return;
  }
  const size_t from = ids.size();
  merge_word(word, ids, unknown);
  const bool is_whole = ids.size() == from + 1 && ids.back() == id;
  whole.store(is_whole ? Whole::yes : Whole::no, std::memory_order_relaxed);
}

void Bpe::merge_word(std::string_view word, std::vector<TokenId>& ids, UnknownCharacters* unknown) const {
  const size_t from = ids.size();
  append_symbols(word, ids, unknown);
  if (merges_.empty()) return;
  if (ids.size() - from <= 48) {
    merge_short(ids, from);
  } else {
    merge_long(ids, from);
  }
}

void Bpe::append_symbols(std::string_view word, std::vector<TokenId>& ids, UnknownCharacters* unknown) const {
  bool follows_unknown = false;
  if (symbols_ == Symbols::bytes) {
    for (size_t i = 0; i < word.size(); ++i) {
      const TokenId id = byte_ids_[static_cast<unsigned char>(word[i])];
      if (id == Vocabulary::kNone) {
        append_unknown(word.substr(i, 1), ids, follows_unknown, unknown);
        continue;
      }
      ids.push_back(id);
      follows_unknown = false;
    }
    return;
  }
  while (!word.empty()) {
    const size_t length = std::max<size_t>(1, first_code_point(word.substr(0, 4)).length);
    const TokenId id = vocabulary_.find(word.substr(0, length));
    if (id == Vocabulary::kNone) {
      append_unknown(word.substr(0, length), ids, follows_unknown, unknown);
    } else {
      ids.push_back(id);
      follows_unknown = false;
    }
    word.remove_prefix(length);
  }
}

void Bpe::append_unknown(std::string_view character, std::vector<TokenId>& ids, bool& follows_unknown,
                         UnknownCharacters* unknown) const {
  const auto byte_id = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (byte_fallback_ && std::ranges::all_of(character, [&](char byte) { return byte_id(byte) != Vocabulary::kNone; })) {
    for (const char byte : character) ids.push_back(byte_id(byte));
    follows_unknown = false;
    return;
  }
  LAMINA_CHECK(unknown_ || unknown != nullptr, name_, ": ", name_of_first(character),
               " is not in the vocabulary, which has no unknown token; train a tokenizer on text that contains it, "
               "one with a byte fallback (char+bytes), or one of bytes (byte, bpe:N)");
  if (unknown != nullptr) {
    ++unknown->counts[std::string(character)];
    unknown->replaced = unknown_.has_value();
    if (!unknown_) return;
  }
  if (!fuse_unknown_ || !follows_unknown) ids.push_back(*unknown_);
  follows_unknown = true;
}

void Bpe::merge_short(std::vector<TokenId>& ids, size_t from) const {
  size_t n = ids.size() - from;
  if (n < 2) return;
  TokenId* symbol = ids.data() + from;
  std::array<Merge, 48> merge;  // merge[i] merges symbols i and i + 1
  for (size_t i = 0; i + 1 < n; ++i) merge[i] = merges_.find(symbol[i], symbol[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (merge[i].rank < merge[best].rank) best = i;
    }
    if (merge[best].rank == Merge::kNever) break;
    symbol[best] = merge[best].result;
    --n;
    for (size_t i = best + 1; i < n; ++i) {
      symbol[i] = symbol[i + 1];
      merge[i - 1] = merge[i];
    }
    // merge[best] now starts at the merged symbol, and merge[best − 1] ends at it.
    if (best + 1 < n) merge[best] = merges_.find(symbol[best], symbol[best + 1]);
    if (best > 0) merge[best - 1] = merges_.find(symbol[best - 1], symbol[best]);
  }
  ids.resize(from + n);
}

void Bpe::merge_long(std::vector<TokenId>& ids, size_t from) const {
  struct Candidate {
    Merge merge;
    int64_t at;
    TokenId left;
    TokenId right;
    bool operator<(const Candidate& other) const {  // std::priority_queue returns the largest first
      return merge.rank != other.merge.rank ? merge.rank > other.merge.rank : at > other.at;
    }
  };
  const auto n = static_cast<int64_t>(ids.size() - from);
  std::vector<Symbol> symbols(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    symbols[static_cast<size_t>(i)] = {ids[from + static_cast<size_t>(i)], i - 1, i + 1 < n ? i + 1 : -1};
  }
  std::vector<Candidate> heap;
  const auto at = [&](int64_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  const auto candidate = [&](int64_t i) -> std::optional<Candidate> {
    if (i < 0 || at(i).behind < 0) return {};
    const TokenId left = at(i).id;
    const TokenId right = at(at(i).behind).id;
    const Merge merge = merges_.find(left, right);
    if (merge.rank == Merge::kNever) return {};
    return Candidate{merge, i, left, right};
  };
  for (int64_t i = 0; i < n; ++i) {
    if (const auto found = candidate(i)) heap.push_back(*found);
  }
  std::priority_queue<Candidate> queue({}, std::move(heap));
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = at(top.at);
    if (!left.alive || left.behind < 0 || left.id != top.left || at(left.behind).id != top.right) continue;
    Symbol& right = at(left.behind);
    right.alive = false;
    left.id = top.merge.result;
    left.behind = right.behind;
    if (left.behind >= 0) at(left.behind).before = top.at;
    if (const auto found = candidate(top.at)) queue.push(*found);
    if (const auto found = candidate(left.before)) queue.push(*found);
  }
  ids.resize(from);
  for (int64_t i = n > 0 ? 0 : -1; i >= 0; i = at(i).behind) ids.push_back(at(i).id);
}

}  // namespace lamina::text
