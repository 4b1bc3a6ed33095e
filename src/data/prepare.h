#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lamina/data/sources.h"
#include "lamina/text/simple.h"
#include "lamina/text/train_bpe.h"
#include "lamina/text/train_unigram.h"
#include "lamina/text/train_wordpiece.h"

namespace lamina::data {

/// Which text becomes validation data.
enum class Split : uint8_t {
  tail,       ///< the end of the whole text: the last part of a single text, or the last documents
  each,       ///< the end of every document
  documents,  ///< whole documents, chosen pseudorandomly, the same in every run
};
/// Parses "tail", "each" or "documents". Otherwise throws an Error that lists these.
Split split_of(const std::string& name);

/// Progress of prepare().
struct PrepareProgress {
  /// "reading a pipe", "collecting characters", "learning pairs" or "encoding".
  const char* stage = "";
  int64_t bytes = 0;        ///< source bytes processed
  int64_t bytes_total = 0;  ///< 0: not known yet
  int64_t tokens = 0;
};
/// Called about once per megabyte. If it throws, the job ends and removes its temporary files.
using PrepareWatch = std::function<void(const PrepareProgress&)>;

/// Options of prepare().
struct PrepareOptions {
  std::vector<std::string> sources;   ///< files, folders, pipes, or "-"; see Sources
  std::string folder;                 ///< output folder; becomes visible when it is complete
  std::string tokenizer = "char";     ///< see tokenizer_for
  std::vector<std::string> specials;  ///< additional special tokens, for a tokenizer that is learned from the sources
  double validation_fraction = 0.1;
  Split split = Split::tail;
  SourceOptions reading;
  bool replace = false;  ///< whether to replace an earlier result
  PrepareWatch watch;
};

/// Size of a token file that was written.
struct PreparedPart {
  int64_t tokens = 0;
  int64_t documents = 0;  ///< a part of a document counts as one
  int64_t bytes = 0;      ///< number of text bytes
};
/// Result of prepare().
struct Prepared {
  PreparedPart train;
  PreparedPart validation;
  int64_t vocab_size = 0;
};

/// Encodes text into a folder with train.bin, validation.bin (token files), tokenizer.json, and data.json, which
/// records the settings. Only the current piece of text is in memory; learning a BPE vocabulary also needs the first
/// 256 MiB.
Prepared prepare(const PrepareOptions& options);

/// Whether `name` describes a tokenizer to create: char, char+bytes, byte, bpe:N, wordpiece:N or unigram:N.
bool is_tokenizer_kind(const std::string& name);
/// Creates a tokenizer of the kind `name` (see is_tokenizer_kind) for the sources, or loads it from the path `name`.
/// `specials` are additional special tokens of a created tokenizer.
std::unique_ptr<text::Tokenizer> tokenizer_for(const std::string& name, const Sources& sources,
                                               const PrepareWatch& watch = {},
                                               const std::vector<std::string>& specials = {});
/// Creates a character tokenizer with all characters of the sources.
std::unique_ptr<text::Tokenizer> learn_characters(const Sources& sources, const text::CharacterOptions& options = {},
                                                  const PrepareWatch& watch = {});
/// Number of source bytes from which a vocabulary is learned. More text hardly changes the counts.
constexpr int64_t kPairSample = int64_t{256} << 20U;
/// Learns a BPE vocabulary from the first kPairSample bytes of the sources.
std::unique_ptr<text::Tokenizer> learn_pairs(const Sources& sources, text::TrainOptions options,
                                             const PrepareWatch& watch = {});
/// Learns a WordPiece or Unigram vocabulary from the first kPairSample bytes of the sources.
std::unique_ptr<text::Tokenizer> learn_wordpieces(const Sources& sources, text::WordPieceOptions options,
                                                  const PrepareWatch& watch = {});
std::unique_ptr<text::Tokenizer> learn_unigrams(const Sources& sources, text::UnigramOptions options,
                                                const PrepareWatch& watch = {});

/// Encodes the sources into these two files; without a validation file if the fraction is 0. Each document ends with
/// the tokenizer's EOS token, if it has one.
Prepared encode_sources(const Sources& sources, const text::Tokenizer& tokenizer, const std::string& train_path,
                        const std::string& validation_path, double validation_fraction, Split split,
                        const PrepareWatch& watch = {});

}  // namespace lamina::data
