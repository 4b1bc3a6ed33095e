#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lamina/text/spec.h"

namespace lamina::text {

/// Vocabulary and settings of a SentencePiece model.
struct SentencePieces {
  enum class Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::normal;
  };
  std::vector<Piece> pieces;
  bool unigram = false;  ///< false: BPE
  bool byte_fallback = false;
  std::string charsmap;  ///< character map for normalization; empty: none
  bool remove_extra_whitespaces = false;
  bool add_dummy_prefix = true;
  int32_t unknown = 0;
  int32_t bos = 1;  ///< negative: no BOS
  int32_t eos = 2;
};
TokenizerSpec spec_of(const SentencePieces& pieces, const std::string& name);

/// Replaces spaces by "▁".
std::string escaped_spaces(const std::string& text);

}  // namespace lamina::text
