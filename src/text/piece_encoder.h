#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/spec.h"

namespace lamina::text {

/// The algorithm of a tokenizer: converts a piece of normalized and split text to ids. Immutable.
class PieceEncoder {
 public:
  virtual ~PieceEncoder() = default;
  PieceEncoder() = default;
  PieceEncoder(const PieceEncoder&) = delete;
  PieceEncoder& operator=(const PieceEncoder&) = delete;

  /// Appends the ids of one piece. `unknown`: see Tokenizer::encode.
  virtual void encode(std::string_view piece, std::vector<TokenId>& ids, UnknownCharacters* unknown) const = 0;
  /// The id of exactly this entry, or −1.
  virtual TokenId find(std::string_view entry) const = 0;
};

/// The encoder of the spec's algorithm. `name` is the file's name in messages.
std::unique_ptr<PieceEncoder> make_piece_encoder(const TokenizerSpec& spec, const std::string& name);

/// Called for text without an entry. Counts it in `unknown` if that is given, and appends the unknown token if there is
/// one. If there is neither, throws an Error.
void append_unknown_token(std::string_view text, const std::optional<TokenId>& token, const std::string& name,
                          std::vector<TokenId>& ids, UnknownCharacters* unknown);

}  // namespace lamina::text
