#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "lamina/base/mapped_file.h"

namespace lamina::data {

/// Whether the name is that of a token file (.bin or .tokens). Any other file is text.
bool is_token_file(std::string_view path);

/// A tokenized corpus in a memory-mapped file, which may be larger than memory. Three formats are detected by their
/// first bytes:
///   lamina   64-byte header (token_format.h), the tokens, the starts of the documents
///   llm.c    256 i32: 20240520, 1, token count, zeros; then u16 tokens. Or 20240801, 7, … and u32 tokens
///   raw      only u16 tokens, as nanoGPT writes them
/// The last two do not mark documents and count as a single document. This is a cheap handle: copies share the mapping,
/// and any number of threads may read.
class TokenFile {
 public:
  /// Throws an Error if the file is truncated, damaged or too large.
  static TokenFile open(const std::string& path);
  /// Like open(), for bytes in memory. `name` is used in messages.
  static TokenFile parse(const MappedFile& file, const std::string& name);

  int64_t size() const { return size_; }
  /// All ids are below this number. 0 if the file does not give it.
  int64_t vocab_size() const { return vocab_size_; }
  /// tokenizer_hash() of the tokenizer (tokenizer_identity.h); 0 if the file does not give it.
  uint64_t tokenizer_hash() const { return tokenizer_hash_; }
  /// Bytes per token: 2 or 4.
  int width() const { return width_; }
  const std::string& name() const { return name_; }
  /// "lamina", "llm.c" or "raw".
  const char* format() const { return format_; }

  /// Reads tokens [begin, begin + out.size()). A range past the end or an id ≥ vocab_size() is an Error.
  void read(int64_t begin, std::span<int64_t> out) const;

  /// Number of documents. At least one, unless the file has no tokens. No document is empty.
  int64_t document_count() const { return document_count_; }
  /// Index of the document's first token. document_start(document_count()) is size().
  int64_t document_start(int64_t document) const;
  /// The document that contains the token at this index.
  int64_t document_of(int64_t token) const;

  using Progress = std::function<void(int64_t done, int64_t total)>;
  /// Reads all tokens and returns the CRC-32C of the tokens and the document table. Throws an Error if it differs from
  /// the stored checksum; llm.c and raw files have none.
  uint32_t checked_checksum(const Progress& progress = {}) const;
  /// A number that tells files apart without reading all of them: CRC-32C of the header and of pieces from all over the
  /// tokens.
  uint32_t fingerprint() const;
  /// Verifies checked_checksum(), and that every id is below vocab_size().
  void verify() const;

 private:
  void parse_own();
  void parse_llm_c(uint32_t magic);
  void parse_raw();
  void check_starts() const;

  MappedFile file_;
  std::string name_;
  const char* format_ = "raw";
  const std::byte* tokens_ = nullptr;
  const std::byte* starts_ = nullptr;  ///< null: a single document
  int64_t size_ = 0;
  int64_t vocab_size_ = 0;
  int64_t document_count_ = 0;
  uint64_t tokenizer_hash_ = 0;
  uint32_t checksum_ = 0;
  int width_ = 2;
};

}  // namespace lamina::data
