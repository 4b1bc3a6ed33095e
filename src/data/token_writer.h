#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lamina/base/files.h"

namespace lamina::data {

/// Writes a token file (token_format.h) incrementally; only the starts of documents stay in memory. publish() makes the
/// complete file visible. Without it, no file appears.
class TokenWriter {
 public:
  /// Tokens take 2 bytes if the vocabulary is small enough, otherwise 4. `tokenizer_hash` 0: unknown.
  TokenWriter(const std::string& path, int64_t vocab_size, uint64_t tokenizer_hash);

  /// Appends tokens to the current document. An id outside the vocabulary is an Error.
  void write(std::span<const int32_t> ids);
  /// Starts the next document. Does nothing if the current one is empty.
  void end_document();
  int64_t size() const { return static_cast<int64_t>(size_); }
  int64_t document_count() const { return static_cast<int64_t>(starts_.size()); }
  void publish();

 private:
  void put(const void* bytes, size_t count);
  void flush();

  NewFile file_;
  std::string path_;
  int64_t vocab_size_;
  uint64_t tokenizer_hash_;
  size_t width_;
  uint64_t size_ = 0;
  uint32_t checksum_ = 0;
  bool document_open_ = false;
  std::vector<uint64_t> starts_;
  std::vector<std::byte> buffer_;
};

}  // namespace lamina::data
