#include "lamina/data/token_writer.h"

#include <cstring>

#include "lamina/base/crc32c.h"
#include "lamina/base/error.h"
#include "lamina/data/token_format.h"

namespace lamina::data {
namespace {

constexpr size_t kBuffer = size_t{1} << 20U;

}  // namespace

TokenWriter::TokenWriter(const std::string& path, int64_t vocab_size, uint64_t tokenizer_hash)
    : file_(path),
      path_(path),
      vocab_size_(vocab_size),
      tokenizer_hash_(tokenizer_hash),
      width_(vocab_size <= 1 << 16 ? 2 : 4) {
  LAMINA_CHECK(vocab_size > 0 && vocab_size <= int64_t{1} << 31, path, ": a vocabulary of ", vocab_size,
               " tokens, expected 1 to 2^31");
  // Placeholder for the header, whose content is known only at the end.
  const TokenHeader header{};
  file_.write(&header, sizeof(header));
}

void TokenWriter::write(std::span<const int32_t> ids) {
  if (ids.empty()) return;
  if (!document_open_) starts_.push_back(size_);
  document_open_ = true;
  for (const int32_t id : ids) {
    LAMINA_CHECK(id >= 0 && id < vocab_size_, path_, ": token ", id, " is outside the vocabulary of ", vocab_size_);
    put(&id, width_);  // little-endian: the low bytes come first
  }
  size_ += ids.size();
}

void TokenWriter::end_document() { document_open_ = false; }

void TokenWriter::publish() {
  const uint64_t zeros = 0;
  put(&zeros, (8 - size_ * width_ % 8) % 8);
  for (const uint64_t start : starts_) put(&start, sizeof(start));
  flush();
  TokenHeader header{};
  std::memcpy(header.magic, kTokenMagic, sizeof(header.magic));
  header.version = kTokenVersion;
  header.token_width = static_cast<uint32_t>(width_);
  header.vocab_size = static_cast<uint64_t>(vocab_size_);
  header.token_count = size_;
  header.document_count = starts_.size();
  header.tokenizer_hash = tokenizer_hash_;
  header.body_checksum = checksum_;
  header.header_checksum = crc32c(&header, kCheckedHeaderBytes);
  file_.write_at(0, &header, sizeof(header));
  file_.publish();
}

void TokenWriter::put(const void* bytes, size_t count) {
  if (buffer_.size() + count > kBuffer) flush();
  const auto* from = static_cast<const std::byte*>(bytes);
  buffer_.insert(buffer_.end(), from, from + count);
}

void TokenWriter::flush() {
  checksum_ = crc32c(buffer_.data(), buffer_.size(), checksum_);
  file_.write(buffer_.data(), buffer_.size());
  buffer_.clear();
}

}  // namespace lamina::data
