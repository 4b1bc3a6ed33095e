#include "lamina/text/pipeline.h"

#include <algorithm>
#include <utility>

#include "lamina/base/error.h"
#include "lamina/text/normalize.h"

namespace lamina::text {
namespace {

constexpr uint8_t kSpecial = 1;
// An added token: decoding strips no prefix from it, but may strip one from the next token.
constexpr uint8_t kCutOut = 2;

std::vector<AddedToken> chosen(const std::vector<AddedToken>& tokens, bool normalized, bool special) {
  std::vector<AddedToken> result;
  for (const AddedToken& token : tokens) {
    if (token.normalized == normalized && (special || !token.special)) result.push_back(token);
  }
  return result;
}

std::string with_spaces(std::string text, const std::string& space, const std::string& name) {
  if (space.empty()) return text;
  return normalized(text, {{NormalizerStep::Kind::replace, space, " "}}, name);
}

/// Hugging Face's clean-up of English. A WordPiece decoder applies it to each token together with the space before it.
std::string cleaned(std::string text, bool cleanup) {
  static constexpr std::array<std::array<const char*, 2>, 11> kReplaced = {{{" .", "."},
                                                                            {" ?", "?"},
                                                                            {" !", "!"},
                                                                            {" ,", ","},
                                                                            {" ' ", "'"},
                                                                            {" n't", "n't"},
                                                                            {" 'm", "'m"},
                                                                            {" do not", " don't"},
                                                                            {" 's", "'s"},
                                                                            {" 've", "'ve"},
                                                                            {" 're", "'re"}}};
  for (size_t i = 0; cleanup && i < kReplaced.size(); ++i) {
    const std::string_view from = kReplaced[i][0];
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
         at += std::string_view(kReplaced[i][1]).size()) {
      text.replace(at, from.size(), kReplaced[i][1]);
    }
  }
  return text;
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(TokenizerSpec spec, const std::string& name) {
  return std::make_unique<Pipeline>(std::move(spec), name);
}

Pipeline::Pipeline(TokenizerSpec spec, const std::string& name)
    : spec_(std::move(spec)),
      name_(name),
      encoder_(make_piece_encoder(spec_, name)),
      normalizer_(spec_.normalizers, name),
      splitter_(spec_.splits, name),
      before_{AddedTokens(chosen(spec_.added, false, false)), AddedTokens(chosen(spec_.added, false, true))},
      after_{AddedTokens(chosen(spec_.added, true, false)), AddedTokens(chosen(spec_.added, true, true))} {
  size_t size = spec_.vocab.size();
  for (const AddedToken& token : spec_.added) size = std::max(size, static_cast<size_t>(token.id) + 1);
  LAMINA_CHECK(size > 0, name, ": the vocabulary is empty");
  bytes_.resize(size);
  flags_.resize(size);
  for (size_t i = 0; i < spec_.vocab.size(); ++i) {
    const VocabEntry& entry = spec_.vocab[i];
    bytes_[i] = entry.kind == VocabEntry::Kind::ordinary ? with_spaces(entry.bytes, spec_.space, name) : entry.bytes;
  }
  for (const AddedToken& token : spec_.added) {
    const auto at = static_cast<size_t>(token.id);
    bytes_[at] = token.special ? token.content : with_spaces(token.content, spec_.space, name);
    // A Unigram's unknown token represents text, so a space after it belongs to the text. If every word has a prefix, a
    // space after an added token was also in the text.
    const bool text = (spec_.algorithm == Algorithm::unigram && spec_.unknown == token.id) ||
                      spec_.prefix.when == Prefix::When::every_piece;
    const bool cut_out = !text && (!token.normalized || spec_.prefix.when == Prefix::When::every_segment);
    flags_[at] = (cut_out ? kCutOut : 0) | (token.special ? kSpecial : 0);
    added_ids_.emplace(token.content, token.id);
  }
  if (spec_.algorithm == Algorithm::wordpiece) spell_words();
}

/// A WordPiece entry with the continuation mark continues the previous word. Before any other entry there is a space.
void Pipeline::spell_words() {
  for (std::string& bytes : bytes_) {
    const bool continues = !spec_.continuation.empty() && bytes.starts_with(spec_.continuation);
    later_.push_back(cleaned(continues ? bytes.substr(spec_.continuation.size()) : " " + bytes, spec_.cleanup));
  }
}

void Pipeline::encode(std::string_view text, std::vector<TokenId>& ids, bool special,
                      UnknownCharacters* unknown) const {
  const AddedTokens& added = before_[special ? 1 : 0];
  if (added.empty()) {
    encode_segment(text, true, special, ids, unknown);
    return;
  }
  for (size_t at = 0; at < text.size();) {
    const AddedTokens::Match match = added.find(text, at);
    encode_segment(text.substr(at, match.begin - at), at == 0, special, ids, unknown);
    if (match.token != nullptr) ids.push_back(match.token->id);
    at = match.end;
  }
}

void Pipeline::encode_segment(std::string_view text, bool first, bool special, std::vector<TokenId>& ids,
                              UnknownCharacters* unknown) const {
  std::string changed;
  if (!normalizer_.empty()) {
    changed = normalizer_(text);
    text = changed;
  }
  const AddedTokens& added = after_[special ? 1 : 0];
  for (size_t at = 0; at < text.size();) {
    const AddedTokens::Match match =
        added.empty() ? AddedTokens::Match{nullptr, text.size(), text.size()} : added.find(text, at);
    encode_plain(text.substr(at, match.begin - at), first && at == 0, ids, unknown);
    if (match.token != nullptr) ids.push_back(match.token->id);
    at = match.end;
  }
}

void Pipeline::encode_plain(std::string_view text, bool first, std::vector<TokenId>& ids,
                            UnknownCharacters* unknown) const {
  if (text.empty()) return;
  const Prefix& prefix = spec_.prefix;
  std::string longer;
  if ((prefix.when == Prefix::When::every_segment || (prefix.when == Prefix::When::first && first)) &&
      !text.starts_with(prefix.text)) {
    longer = prefix.text;
    longer += text;
    text = longer;
  }
  std::vector<std::string_view> pieces;
  const bool every_piece = prefix.when == Prefix::When::every_piece;
  for (Splitter::Pieces stream(splitter_, text); stream.next(pieces);) {
    for (const std::string_view piece : pieces) {
      if (!every_piece || piece.starts_with(prefix.text)) {
        encoder_->encode(piece, ids, unknown);
        continue;
      }
      longer = prefix.text;
      longer += piece;
      encoder_->encode(longer, ids, unknown);
    }
  }
}

size_t Pipeline::checked(TokenId id) const {
  LAMINA_CHECK(id >= 0 && static_cast<size_t>(id) < bytes_.size(), name_, ": there is no token ", id,
               ", the vocabulary has ids 0 to ", bytes_.size() - 1);
  return static_cast<size_t>(id);
}

std::string Pipeline::decode(std::span<const TokenId> ids) const {
  std::string text;
  if (!later_.empty()) {
    for (size_t i = 0; i < ids.size(); ++i) {
      const size_t at = checked(ids[i]);
      text += i == 0 ? cleaned(bytes_[at], spec_.cleanup) : later_[at];
    }
    return text;
  }
  bool starts = true;
  for (const TokenId id : ids) {
    const size_t at = checked(id);
    std::string_view bytes = bytes_[at];
    const bool cut_out = (flags_[at] & kCutOut) != 0;
    if (spec_.strip_prefix && starts && !cut_out && bytes.starts_with(' ')) bytes.remove_prefix(1);
    text += bytes;
    starts = cut_out && spec_.prefix.when != Prefix::When::first;
  }
  return text;
}

std::string Pipeline::token(TokenId id) const { return bytes_[checked(id)]; }

bool Pipeline::is_special(TokenId id) const { return (flags_[checked(id)] & kSpecial) != 0; }

std::optional<TokenId> Pipeline::id_of(std::string_view token) const {
  if (const auto found = added_ids_.find(token); found != added_ids_.end()) return found->second;
  TokenId id = encoder_->find(token);
  if (id == Vocabulary::kNone && !spec_.space.empty()) {
    id = encoder_->find(normalized(token, {{NormalizerStep::Kind::replace, " ", spec_.space}}, name_));
  }
  if (id == Vocabulary::kNone) return {};
  return id;
}

}  // namespace lamina::text
