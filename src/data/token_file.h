#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "lamina/base/mapped_file.h"

namespace lamina::data {

/// Whether a name is that of a token file (.bin, .tokens); any other is a text's, which a tokenizer must read first.
bool is_token_file(std::string_view path);

/// A corpus as numbers, read where it lies: nothing is copied until it is asked for, so a file may be larger than
/// memory. Three formats, told apart by how the file begins:
///   lamina   64 bytes of header (token_format.h), the tokens, the documents' starts
///   llm.c    256 i32: 20240520, 1, token count, zeros; then u16 tokens. Or 20240801, 7, … and u32 tokens
///   raw      u16 tokens and nothing else, as nanoGPT writes them
/// The last two say nothing about documents and count as one.
/// A cheap handle: copies share the mapping, and any number of threads may read.
class TokenFile {
 public:
  /// What is cut off, damaged or too large is an Error.
  static TokenFile open(const std::string& path);
  /// The same for bytes in memory; `name` stands in messages.
  static TokenFile parse(const MappedFile& file, const std::string& name);

  int64_t size() const { return size_; }
  /// Ids are below this; 0 where the file does not say.
  int64_t vocab_size() const { return vocab_size_; }
  /// Of the tokenizer's file; 0 where the file does not say.
  uint64_t tokenizer_hash() const { return tokenizer_hash_; }
  /// Bytes of a token: 2 or 4.
  int width() const { return width_; }
  const std::string& name() const { return name_; }
  /// "lamina", "llm.c" or "raw".
  const char* format() const { return format_; }

  /// Tokens begin … begin + out.size() − 1. Beyond the end, and an id that is not below vocab_size(), are Errors.
  void read(int64_t begin, std::span<int64_t> out) const;

  /// At least one, none of them empty, unless the file holds no token.
  int64_t document_count() const { return document_count_; }
  /// The document's first token; document_start(document_count()) is size().
  int64_t document_start(int64_t document) const;
  /// The document that holds a token.
  int64_t document_of(int64_t token) const;

  using Progress = std::function<void(int64_t done, int64_t total)>;
  /// Reads all tokens and returns their CRC-32C, with that of the table of documents. An Error if the file's own
  /// checksum differs; llm.c and raw files have none.
  uint32_t checked_checksum(const Progress& progress = {}) const;
  /// checked_checksum(), and every id is below vocab_size().
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
  const std::byte* starts_ = nullptr;  ///< null: one document
  int64_t size_ = 0;
  int64_t vocab_size_ = 0;
  int64_t document_count_ = 0;
  uint64_t tokenizer_hash_ = 0;
  uint32_t checksum_ = 0;
  int width_ = 2;
};

}  // namespace lamina::data
