#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lamina/data/sources.h"
#include "lamina/text/simple.h"
#include "lamina/text/train_bpe.h"

namespace lamina::data {

/// What becomes validation data.
enum class Split : uint8_t {
  tail,       ///< the end of all text: the last part of a single text, or the last documents
  each,       ///< the end of every document
  documents,  ///< whole documents, chosen by chance but the same each time
};
/// "tail", …; anything else is an Error that names them.
Split split_of(const std::string& name);

struct PrepareProgress {
  /// "reading a pipe", "collecting characters", "learning pairs" or "encoding".
  const char* stage = "";
  int64_t bytes = 0;        ///< of the sources, so far
  int64_t bytes_total = 0;  ///< 0: not known yet
  int64_t tokens = 0;
};
/// Called about once a megabyte. It may throw: the job then ends and removes its temporary files.
using PrepareWatch = std::function<void(const PrepareProgress&)>;

struct PrepareOptions {
  std::vector<std::string> sources;  ///< of Sources: files, folders, pipes, "-"
  std::string folder;                ///< appears when it is complete
  std::string tokenizer = "char";    ///< of tokenizer_for
  double validation_fraction = 0.1;
  Split split = Split::tail;
  SourceOptions reading;
  bool replace = false;  ///< an earlier result may be replaced
  PrepareWatch watch;
};

struct PreparedPart {
  int64_t tokens = 0;
  int64_t documents = 0;  ///< or parts of them
  int64_t bytes = 0;      ///< of text
};
struct Prepared {
  PreparedPart train;
  PreparedPart validation;
  int64_t vocab_size = 0;
};

/// Text to a folder with train.bin, validation.bin (token files), tokenizer.json and data.json, which says what was
/// done. Nothing but the present piece of text is in memory, but for a new BPE vocabulary, which is learned from the
/// first 256 MiB.
Prepared prepare(const PrepareOptions& options);

/// Whether `name` says how to make a tokenizer: char, char+bytes, byte or bpe:N.
bool is_tokenizer_kind(const std::string& name);
/// The tokenizer that `name` means for these sources: a kind (is_tokenizer_kind), or a path for text::load_tokenizer.
std::unique_ptr<text::Tokenizer> tokenizer_for(const std::string& name, const Sources& sources,
                                               const PrepareWatch& watch = {});
/// A vocabulary of all characters of the sources.
std::unique_ptr<text::Tokenizer> learn_characters(const Sources& sources, const text::CharacterOptions& options = {},
                                                  const PrepareWatch& watch = {});
/// Bytes of the sources from which pairs are learned: counts hardly change after that.
constexpr int64_t kPairSample = int64_t{256} << 20U;
/// A BPE vocabulary learned from the first kPairSample bytes of the sources.
std::unique_ptr<text::Tokenizer> learn_pairs(const Sources& sources, text::TrainOptions options,
                                             const PrepareWatch& watch = {});

/// The encoding alone, into files of these names (no validation file for a fraction of 0). Documents end with the
/// tokenizer's eos where it has one.
Prepared encode_sources(const Sources& sources, const text::Tokenizer& tokenizer, const std::string& train_path,
                        const std::string& validation_path, double validation_fraction, Split split,
                        const PrepareWatch& watch = {});

}  // namespace lamina::data
