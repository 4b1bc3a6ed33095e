#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/added_tokens.h"
#include "lamina/text/normalize.h"
#include "lamina/text/piece_encoder.h"
#include "lamina/text/spec.h"
#include "lamina/text/split.h"

namespace lamina::text {

/// Implements the tokenizer that a TokenizerSpec describes.
class Pipeline : public Tokenizer {
 public:
  Pipeline(TokenizerSpec spec, const std::string& name);

  int64_t vocab_size() const override { return static_cast<int64_t>(bytes_.size()); }
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<TokenId>& ids, bool special,
              UnknownCharacters* unknown) const override;
  std::string decode(std::span<const TokenId> ids) const override;
  std::string token(TokenId id) const override;
  bool is_special(TokenId id) const override;
  std::optional<TokenId> id_of(std::string_view token) const override;
  std::optional<TokenId> bos() const override { return spec_.bos; }
  std::optional<TokenId> eos() const override { return spec_.eos; }
  std::optional<TokenId> appended() const override { return spec_.appended; }
  std::string to_json() const override { return write_json(spec_); }
  Description describe() const override;

 private:
  void encode_segment(std::string_view text, bool first, bool special, std::vector<TokenId>& ids,
                      UnknownCharacters* unknown) const;
  void encode_plain(std::string_view text, bool first, std::vector<TokenId>& ids, UnknownCharacters* unknown) const;
  void spell_words();
  size_t checked(TokenId id) const;

  TokenizerSpec spec_;
  std::string name_;
  std::unique_ptr<PieceEncoder> encoder_;
  Normalizer normalizer_;
  Splitter splitter_;
  std::array<AddedTokens, 2> before_;  // tokens to find before normalization: [0] without special tokens, [1] with them
  std::array<AddedTokens, 2> after_;   // tokens to find in normalized text; indexed in the same way
  std::vector<std::string> bytes_;     // per id: the bytes that it decodes to
  std::vector<std::string> later_;     // WordPiece, per id: the bytes that it decodes to after another token
  std::vector<uint8_t> flags_;         // per id
  std::map<std::string, TokenId, std::less<>> added_ids_;
};

}  // namespace lamina::text
