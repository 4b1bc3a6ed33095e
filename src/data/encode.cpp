// Encodes sources with a tokenizer, into a training and a validation file.
#include <algorithm>
#include <cmath>

#include "lamina/base/error.h"
#include "lamina/base/philox.h"
#include "lamina/data/prepare.h"
#include "lamina/data/token_writer.h"
#include "lamina/data/tokenizer_identity.h"

namespace lamina::data {
namespace {

/// One of the two output files, with its counts.
class Part {
 public:
  Part(const std::string& path, const text::Tokenizer& tokenizer, uint64_t hash)
      : writer_(path, tokenizer.vocab_size(), hash), tokenizer_(tokenizer) {}

  void add(std::string_view text) {
    if (text.empty()) return;
    ids_.clear();
    tokenizer_.encode(text, ids_);
    writer_.write(ids_);
    bytes_ += static_cast<int64_t>(text.size());
  }
  /// Ends the document or, if `whole` is false, the part of it that is in this file.
  void end(bool whole) {
    const auto eos = tokenizer_.eos();
    if (whole && eos) writer_.write({&*eos, 1});
    writer_.end_document();
  }
  void publish() { writer_.publish(); }
  PreparedPart counts() const { return {writer_.size(), writer_.document_count(), bytes_}; }

 private:
  TokenWriter writer_;
  const text::Tokenizer& tokenizer_;
  std::vector<text::TokenId> ids_;
  int64_t bytes_ = 0;
};

/// Decides how many bytes of a piece become training data. The remaining bytes become validation data.
class Divider {
 public:
  Divider(double validation_fraction, Split split, int64_t bytes)
      : fraction_(validation_fraction), split_(split), cut_(share(bytes)) {}

  size_t train_bytes(const Piece& piece) const {
    switch (split_) {
      case Split::tail:
        return piece.inside ? until(piece, cut_ - piece.source_begin)
                            : (piece.source_begin < cut_ ? piece.text.size() : 0);
      case Split::each: return until(piece, share(piece.document_bytes) - piece.at);
      default: {
        // The choice depends only on the document's number, not on later documents.
        const uint32_t word = philox_word({0, 0x73706c69'74000000}, static_cast<uint64_t>(piece.document));  // "split"
        return word < dropout_threshold(fraction_) ? 0 : piece.text.size();
      }
    }
  }

 private:
  int64_t share(int64_t bytes) const {
    return static_cast<int64_t>(std::floor(static_cast<double>(bytes) * (1.0 - fraction_)));
  }
  static size_t until(const Piece& piece, int64_t bytes) {
    if (bytes <= 0) return 0;
    return character_start(piece.text, std::min(static_cast<size_t>(bytes), piece.text.size()));
  }

  double fraction_;
  Split split_;
  int64_t cut_;
};

}  // namespace

Prepared encode_sources(const Sources& sources, const text::Tokenizer& tokenizer, const std::string& train_path,
                        const std::string& validation_path, double validation_fraction, Split split,
                        const PrepareWatch& watch) {
  LAMINA_CHECK(validation_fraction >= 0 && validation_fraction < 1, "a validation part of ", validation_fraction,
               " of the text; expected at least 0 and less than 1");
  const uint64_t hash = tokenizer_hash(tokenizer);
  Part train(train_path, tokenizer, hash);
  Part validation(validation_path, tokenizer, hash);
  const Divider divider(validation_fraction, split, sources.bytes());
  sources.each([&](const Piece& piece) {
    const size_t cut = divider.train_bytes(piece);
    train.add(piece.text.substr(0, cut));
    validation.add(piece.text.substr(cut));
    if (cut < piece.text.size()) train.end(false);
    if (piece.last) (cut == piece.text.size() ? train : validation).end(true);
    if (watch) {
      const int64_t tokens = train.counts().tokens + validation.counts().tokens;
      watch({"encoding", piece.source_end, sources.bytes(), tokens});
    }
  });
  const Prepared result{train.counts(), validation.counts(), tokenizer.vocab_size()};
  LAMINA_CHECK(result.train.tokens > 0, "no text is left to train on: the validation part took all ",
               result.validation.bytes,
               " bytes; take a smaller share (--val-fraction, in a recipe data.validation_share) or another --split");
  LAMINA_CHECK(validation_fraction == 0 || result.validation.tokens > 0,
               "the validation part is empty: ", result.train.documents,
               " documents are too few to choose from; use --split tail or each");
  train.publish();
  if (validation_fraction > 0) validation.publish();
  return result;
}

}  // namespace lamina::data
