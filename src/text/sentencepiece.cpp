#include "lamina/text/sentencepiece.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "lamina/base/error.h"
#include "lamina/text/byte_alphabet.h"
#include "lamina/text/charsmap.h"
#include "lamina/text/formats.h"
#include "lamina/text/normalize.h"
#include "lamina/text/scored_merges.h"
#include "lamina/text/spec_build.h"
#include "lamina/text/utf8.h"

namespace lamina::text {
namespace {

constexpr const char* kSpaceMark = "▁";

/// A field of a Protocol Buffers message.
struct Field {
  uint32_t number = 0;
  uint64_t value = 0;      // varint, or the bits of a fixed-size number
  std::string_view bytes;  // string or nested message
};

class Message {
 public:
  Message(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  bool next(Field& field) {
    if (bytes_.empty()) return false;
    const uint64_t tag = varint();
    field = {static_cast<uint32_t>(tag >> 3), 0, {}};
    switch (tag & 7) {
      case 0: field.value = varint(); break;
      case 1: field.value = fixed(8); break;
      case 2: field.bytes = take(varint()); break;
      case 5: field.value = fixed(4); break;
      default: fail();
    }
    return true;
  }

 private:
  [[noreturn]] void fail() const { throw Error(str(name_, ": is no SentencePiece model, or it is cut off")); }
  std::string_view take(uint64_t length) {
    if (length > bytes_.size()) fail();
    const std::string_view taken = bytes_.substr(0, length);
    bytes_.remove_prefix(length);
    return taken;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail();
  }
  uint64_t fixed(size_t length) {
    uint64_t value = 0;
    std::memcpy(&value, take(length).data(), length);
    return value;
  }

  std::string_view bytes_;
  const std::string& name_;
};

SentencePieces::Piece piece_of(std::string_view bytes, const std::string& name) {
  SentencePieces::Piece piece;
  Message message(bytes, name);
  for (Field field; message.next(field);) {
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2) piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    if (field.number == 3) {
      LAMINA_CHECK(field.value >= 1 && field.value <= 6, name, ": the piece \"", piece.text, "\" is of the type ",
                   field.value, ", expected 1 to 6");
      piece.type = static_cast<SentencePieces::Type>(field.value);
    }
  }
  return piece;
}

void read_trainer(std::string_view bytes, SentencePieces& pieces, const std::string& name) {
  Message message(bytes, name);
  uint64_t type = 1;
  for (Field field; message.next(field);) {
    if (field.number == 3) type = field.value;
    if (field.number == 24) LAMINA_CHECK(field.value == 0, name, ": treat_whitespace_as_suffix is not supported");
    if (field.number == 35) pieces.byte_fallback = field.value != 0;
    if (field.number == 40) pieces.unknown = static_cast<int32_t>(field.value);
    if (field.number == 41) pieces.bos = static_cast<int32_t>(field.value);
    if (field.number == 42) pieces.eos = static_cast<int32_t>(field.value);
  }
  static const char* const kTypes[] = {"?", "unigram", "BPE", "word", "char"};
  LAMINA_CHECK(type == 1 || type == 2, name, ": a SentencePiece model of the type ", type < 5 ? kTypes[type] : "?",
               "; BPE and unigram are supported");
  pieces.unigram = type == 1;
}

void read_normalizer_spec(std::string_view bytes, SentencePieces& pieces, const std::string& name) {
  Message message(bytes, name);
  pieces.remove_extra_whitespaces = true;
  for (Field field; message.next(field);) {
    if (field.number == 2) pieces.charsmap = field.bytes;
    if (field.number == 3) pieces.add_dummy_prefix = field.value != 0;
    if (field.number == 4) pieces.remove_extra_whitespaces = field.value != 0;
    if (field.number == 5) LAMINA_CHECK(field.value != 0, name, ": escape_whitespaces = false is not supported");
  }
}

/// Adds normalizer steps that are equivalent to SentencePiece's: rewritten characters, single spaces, no spaces at the
/// ends, and "▁" for spaces and before the text.
void add_normalizers(const SentencePieces& pieces, TokenizerSpec& spec, const std::string& name) {
  using Kind = NormalizerStep::Kind;
  if (!pieces.charsmap.empty()) {
    Charsmap(pieces.charsmap, name);
    spec.normalizers.push_back({Kind::charsmap, "", pieces.charsmap});
  }
  if (pieces.remove_extra_whitespaces) {
    spec.normalizers.push_back({Kind::replace_regex, "^ +| +$", ""});
    spec.normalizers.push_back({Kind::replace_regex, " {2,}", " "});
  }
  if (pieces.add_dummy_prefix) spec.normalizers.push_back({Kind::prepend, "", kSpaceMark});
  spec.normalizers.push_back({Kind::replace, " ", kSpaceMark});
}

/// Sets scores as SentencePiece's Unigram does: user-defined pieces always win, and unknown characters get a penalty of
/// 10.
void add_unigram_scores(const SentencePieces& pieces, TokenizerSpec& spec) {
  using Type = SentencePieces::Type;
  spec.algorithm = Algorithm::unigram;
  spec.sums_in_f32 = true;
  float lowest = std::numeric_limits<float>::max();
  for (const SentencePieces::Piece& piece : pieces.pieces) {
    spec.scores.push_back(static_cast<double>(piece.score));
    if (piece.type == Type::normal) lowest = std::min(lowest, piece.score);
  }
  spec.unknown_score = static_cast<double>(lowest - static_cast<float>(kUnknownPenalty));
}

}  // namespace

std::string escaped_spaces(const std::string& text) {
  return normalized(text, {{NormalizerStep::Kind::replace, " ", kSpaceMark}}, "SentencePiece");
}

TokenizerSpec spec_of(const SentencePieces& pieces, const std::string& name) {
  using Type = SentencePieces::Type;
  TokenizerSpec spec;
  spec.symbols = Symbols::characters;
  spec.byte_fallback = pieces.byte_fallback;
  spec.fuse_unknown = true;
  spec.space = kSpaceMark;
  spec.strip_prefix = pieces.add_dummy_prefix;
  add_normalizers(pieces, spec, name);
  std::vector<float> scores;
  std::set<std::string> seen;
  for (const SentencePieces::Piece& piece : pieces.pieces) {
    LAMINA_CHECK(valid_prefix(piece.text) == piece.text.size(), name, ": piece ", spec.vocab.size(), " is no UTF-8");
    LAMINA_CHECK(!piece.text.empty() && (piece.type == Type::byte || seen.insert(piece.text).second), name, ": piece ",
                 spec.vocab.size(), " \"", piece.text, "\" is empty or there twice");
    LAMINA_CHECK(std::isfinite(piece.score) && std::abs(piece.score) <= 1e9F, name, ": the piece \"", piece.text,
                 "\" has the score ", piece.score, "; expected a log probability or a rank");
    LAMINA_CHECK(piece.type != Type::unused, name, ": the piece \"", piece.text,
                 "\" is unused, which is not supported");
    const auto id = static_cast<TokenId>(spec.vocab.size());
    scores.push_back(piece.score);
    if (piece.type == Type::byte) {
      LAMINA_CHECK(byte_named(piece.text) >= 0, name, ": the byte \"", piece.text, "\" is not named as in <0x0A>");
      spec.vocab.push_back({VocabEntry::Kind::byte, std::string(1, static_cast<char>(byte_named(piece.text)))});
      continue;
    }
    spec.vocab.push_back({VocabEntry::Kind::opaque, piece.text});
    if (piece.type == Type::normal) {
      spec.vocab.back().kind = VocabEntry::Kind::ordinary;
    } else {
      const bool user_defined = piece.type == Type::user_defined;
      add_token(spec, {id, piece.text, !user_defined, false, false, user_defined});
    }
  }
  const auto in_range = [&](int32_t id) { return id >= 0 && static_cast<size_t>(id) < spec.vocab.size(); };
  LAMINA_CHECK(in_range(pieces.unknown), name, ": unk_id ", pieces.unknown, " is not a piece of the vocabulary");
  spec.unknown = pieces.unknown;
  if (in_range(pieces.bos)) spec.bos = pieces.bos;
  if (in_range(pieces.eos)) spec.eos = pieces.eos;
  if (pieces.unigram) {
    add_unigram_scores(pieces, spec);
  } else {
    add_merges_by_rank(spec, ranks_of_scores(scores));
  }
  return spec;
}

bool is_sentencepiece(std::string_view bytes) {
  // Recognizes the format: a model begins with a piece, and a piece begins with its text.
  return bytes.size() > 4 && bytes[0] == '\x0A' && bytes[2] == '\x0A' &&
         static_cast<unsigned char>(bytes[3]) < static_cast<unsigned char>(bytes[1]);
}

TokenizerSpec read_sentencepiece(std::string_view bytes, const std::string& name) {
  SentencePieces pieces;
  Message message(bytes, name);
  bool trainer = false;
  for (Field field; message.next(field);) {
    if (field.number == 1) pieces.pieces.push_back(piece_of(field.bytes, name));
    if (field.number == 2) read_trainer(field.bytes, pieces, name);
    if (field.number == 3) read_normalizer_spec(field.bytes, pieces, name);
    trainer = trainer || field.number == 2;
  }
  LAMINA_CHECK(trainer, name, ": has no trainer_spec, so its type is not known");
  return spec_of(pieces, name);
}

}  // namespace lamina::text
