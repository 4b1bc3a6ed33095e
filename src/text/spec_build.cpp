#include "lamina/text/spec_build.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "lamina/base/error.h"
#include "lamina/text/byte_alphabet.h"
#include "lamina/text/utf8.h"
#include "lamina/text/vocabulary.h"

namespace lamina::text {
namespace {

constexpr int64_t kMostIds = int64_t{1} << 24;
constexpr double kMaxScore = 1e9;  // limit for a valid file; sums over any text stay finite

VocabEntry entry_of(const std::string& token, const TokenizerSpec& spec) {
  if (spec.symbols == Symbols::bytes) {
    if (const auto bytes = from_byte_alphabet(token)) return {VocabEntry::Kind::ordinary, *bytes};
    return {VocabEntry::Kind::opaque, token};
  }
  const int byte = spec.byte_fallback ? byte_named(token) : -1;
  if (byte >= 0) return {VocabEntry::Kind::byte, std::string(1, static_cast<char>(byte))};
  return {VocabEntry::Kind::ordinary, token};
}

}  // namespace

TokenId checked_id(int64_t id, const std::string& token, const std::string& name) {
  LAMINA_CHECK(id >= 0 && id < kMostIds, name, ": the token \"", token, "\" has the id ", id, ", expected 0 to ",
               kMostIds - 1);
  return static_cast<TokenId>(id);
}

void add_lists(TokenizerSpec& spec, const JsonLists& lists, const std::string& name) {
  int64_t greatest = -1;
  for (const auto& [token, id] : lists.vocab) greatest = std::max<int64_t>(greatest, checked_id(id, token, name));
  LAMINA_CHECK(greatest < 64 * static_cast<int64_t>(lists.vocab.size()) + 1024, name, ": the vocabulary has ",
               lists.vocab.size(), " tokens, but ids up to ", greatest);
  spec.vocab.resize(static_cast<size_t>(greatest + 1));
  Vocabulary ids(lists.vocab.size());
  for (const auto& [token, id] : lists.vocab) {
    VocabEntry& entry = spec.vocab[static_cast<size_t>(id)];
    LAMINA_CHECK(entry.kind == VocabEntry::Kind::absent, name, ": two tokens have the id ", id, ", one is \"", token,
                 '"');
    LAMINA_CHECK(ids.add(token, static_cast<TokenId>(id)), name, ": the token \"", token, "\" is listed twice");
    LAMINA_CHECK(valid_prefix(token) == token.size(), name, ": token ", id, " is no UTF-8");
    entry = entry_of(token, spec);
  }
  spec.merges.reserve(lists.merges.size());
  for (const auto& [left, right] : lists.merges) {
    const MergeRule rule = {ids.find(left), ids.find(right), ids.find(left + right),
                            static_cast<int32_t>(spec.merges.size())};
    LAMINA_CHECK(rule.left >= 0 && rule.right >= 0 && rule.result >= 0, name, ": the merge of \"", left, "\" and \"",
                 right, "\" has a part or a result that is not in the vocabulary");
    spec.merges.push_back(rule);
  }
}

void add_scored(TokenizerSpec& spec, const std::vector<std::pair<std::string, double>>& scored,
                const std::string& name) {
  LAMINA_CHECK(!scored.empty(), name, ": model.vocab is empty; expected a list of [token, score]");
  checked_id(static_cast<int64_t>(scored.size()) - 1, scored.back().first, name);
  double lowest = std::numeric_limits<double>::max();
  for (const auto& [token, score] : scored) {
    const size_t id = spec.vocab.size();
    LAMINA_CHECK(!token.empty() && valid_prefix(token) == token.size(), name, ": token ", id, " is ",
                 token.empty() ? "empty" : "no UTF-8");
    LAMINA_CHECK(std::abs(score) <= kMaxScore, name, ": token ", id, " has the score ", score,
                 "; expected a log probability");
    spec.vocab.push_back(entry_of(token, spec));
    spec.scores.push_back(score);
    lowest = std::min(lowest, score);
  }
  spec.unknown_score = lowest - kUnknownPenalty;
}

void add_token(TokenizerSpec& spec, AddedToken token) {
  const auto at = static_cast<size_t>(token.id);
  if (token.special && at < spec.vocab.size() && spec.vocab[at].kind != VocabEntry::Kind::absent) {
    spec.vocab[at] = {VocabEntry::Kind::opaque, token.content};
  }
  spec.added.push_back(std::move(token));
}

void add_specials(TokenizerSpec& spec, const std::vector<std::string>& specials) {
  std::set<std::string> seen;
  for (const std::string& special : specials) {
    LAMINA_CHECK(!special.empty() && seen.insert(special).second, "the special token \"", special,
                 "\" is empty or named twice");
    add_token(spec, {static_cast<TokenId>(spec.vocab.size()), special});
    spec.vocab.push_back({VocabEntry::Kind::opaque, special});
  }
  guess_eos(spec);
}

void guess_eos(TokenizerSpec& spec) {
  if (spec.eos) return;
  for (const char* name : {"<|endoftext|>", "</s>", "<eos>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "<EOT>"}) {
    for (const AddedToken& token : spec.added) {
      if (token.special && token.content == name) {
        spec.eos = token.id;
        return;
      }
    }
  }
}

}  // namespace lamina::text
