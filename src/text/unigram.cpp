#include "lamina/text/unigram.h"

#include <algorithm>

#include "lamina/base/error.h"
#include "lamina/text/utf8.h"

namespace lamina::text {

Unigram::Unigram(const TokenizerSpec& spec, const std::string& name)
    : name_(name),
      unknown_(spec.unknown),
      byte_fallback_(spec.byte_fallback),
      fuse_unknown_(spec.fuse_unknown),
      sums_in_f32_(spec.sums_in_f32),
      scores_(spec.scores),
      unknown_score_(spec.unknown_score) {
  LAMINA_CHECK(scores_.size() == spec.vocab.size(), name, ": a Unigram vocabulary of ", spec.vocab.size(),
               " entries has ", scores_.size(), " scores; expected one each");
  byte_ids_.fill(ByteTrie::kNoToken);
  for (size_t i = 0; i < spec.vocab.size(); ++i) {
    const VocabEntry& entry = spec.vocab[i];
    const auto id = static_cast<TokenId>(i);
    if (entry.kind == VocabEntry::Kind::byte) byte_ids_[static_cast<unsigned char>(entry.bytes[0])] = id;
    if (entry.kind == VocabEntry::Kind::ordinary && !entry.bytes.empty()) entries_.add(entry.bytes, id);
  }
  if (spec.space.empty() || entries_.find(spec.space) == ByteTrie::kNoToken) return;
  space_ = spec.space;
  for (const VocabEntry& entry : spec.vocab) {
    if (entry.kind != VocabEntry::Kind::ordinary) continue;
    for (size_t at = entry.bytes.find(space_, 1); at != std::string::npos; at = entry.bytes.find(space_, at + 1)) {
      joins_space_[static_cast<unsigned char>(entry.bytes[at - 1])] = true;
    }
  }
}

void Unigram::encode(std::string_view piece, std::vector<TokenId>& ids, UnknownCharacters* unknown) const {
  sums_in_f32_ ? encode_as<float>(piece, ids, unknown) : encode_as<double>(piece, ids, unknown);
}

template <class Score>
void Unigram::encode_as(std::string_view piece, std::vector<TokenId>& ids, UnknownCharacters* unknown) const {
  Score score = 0;
  size_t begin = 0;
  for (size_t at = 1; !space_.empty() && (at = piece.find(space_, at)) != std::string_view::npos; at += space_.size()) {
    if (joins_space_[static_cast<unsigned char>(piece[at - 1])]) continue;
    score = best_path<Score>(piece.substr(begin, at - begin), score, ids, unknown);
    begin = at;
  }
  best_path<Score>(piece.substr(begin), score, ids, unknown);
}

template <class Score>
Score Unigram::best_path(std::string_view part, Score score, std::vector<TokenId>& ids,
                         UnknownCharacters* unknown) const {
  /// The best segmentation up to a position, by its last entry.
  struct End {
    Score score = 0;
    TokenId id = ByteTrie::kNoToken;
    int32_t length = 0;  // 0: no segmentation reaches this position
  };
  const auto unknown_score = static_cast<Score>(unknown_score_);
  std::vector<End> ends(part.size() + 1);
  ends[0].score = score;
  const auto reach = [&](size_t at, size_t length, Score sum, TokenId id) {
    End& end = ends[at + length];
    if (end.length == 0 || sum > end.score) end = {sum, id, static_cast<int32_t>(length)};
  };
  for (size_t at = 0; at < part.size();) {
    const Score here = ends[at].score;
    const size_t character = std::max<size_t>(1, first_code_point(part.substr(at, 4)).length);
    bool covered = false;
    ByteTrie::Node node = ByteTrie::kRoot;
    for (size_t i = at; i < part.size();) {
      node = entries_.child(node, static_cast<unsigned char>(part[i++]));
      if (node == ByteTrie::kNone) break;
      const TokenId id = entries_.token(node);
      if (id == ByteTrie::kNoToken) continue;
      reach(at, i - at, here + static_cast<Score>(scores_[static_cast<size_t>(id)]), id);
      covered = covered || i - at == character;
    }
    if (!covered) reach(at, character, here + unknown_score, ByteTrie::kNoToken);
    at += character;
  }
  // Entries are valid UTF-8, so every reached position is the start of a character.
  std::vector<size_t> path;
  for (size_t at = part.size(); at > 0; at -= static_cast<size_t>(ends[at].length)) path.push_back(at);
  size_t run = 0;  // start of the current run of unknown characters
  for (size_t i = path.size(), at = 0; i-- > 0; at = path[i]) {
    const TokenId id = ends[path[i]].id;
    if (id == ByteTrie::kNoToken && fuse_unknown_) continue;
    if (at > run) append_unknown_run(part.substr(run, at - run), ids, unknown);
    if (id == ByteTrie::kNoToken) {
      append_unknown_run(part.substr(at, path[i] - at), ids, unknown);
    } else {
      ids.push_back(id);
    }
    run = path[i];
  }
  if (run < part.size()) append_unknown_run(part.substr(run), ids, unknown);
  return ends.back().score;
}

void Unigram::append_unknown_run(std::string_view run, std::vector<TokenId>& ids, UnknownCharacters* unknown) const {
  const auto byte_id = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (byte_fallback_ && std::ranges::all_of(run, [&](char byte) { return byte_id(byte) != ByteTrie::kNoToken; })) {
    for (const char byte : run) ids.push_back(byte_id(byte));
    return;
  }
  append_unknown_token(run, unknown_, name_, ids, unknown);
}

}  // namespace lamina::text
