#include "lamina/data/token_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "lamina/base/crc32c.h"
#include "lamina/base/error.h"
#include "lamina/data/token_format.h"

namespace lamina::data {
namespace {

constexpr uint32_t kLlmC16 = 20240520;
constexpr uint32_t kLlmC32 = 20240801;
constexpr size_t kLlmCHeader = 256 * sizeof(int32_t);
constexpr const char* kMakeAgain = "; make it again with `lamina data prepare`, or copy it again";

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void widen(const std::byte* from, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = load<T>(from + i * sizeof(T));
}

}  // namespace

bool is_token_file(std::string_view path) { return path.ends_with(".bin") || path.ends_with(".tokens"); }

TokenFile TokenFile::open(const std::string& path) { return parse(map_file(path, "a token file"), path); }

TokenFile TokenFile::parse(const MappedFile& file, const std::string& name) {
  TokenFile result;
  result.file_ = file;
  result.name_ = name;
  const std::span<std::byte> bytes = file.bytes;
  LAMINA_CHECK(!bytes.empty(), name, ": is empty; expected a token file", kMakeAgain);
  const uint32_t first = bytes.size() >= 4 ? load<uint32_t>(bytes.data()) : 0;
  if (bytes.size() >= 8 && std::memcmp(bytes.data(), kTokenMagic, 8) == 0) {
    result.parse_own();
  } else if (first == kLlmC16 || first == kLlmC32) {
    result.parse_llm_c(first);
  } else {
    result.parse_raw();
  }
  return result;
}

void TokenFile::parse_own() {
  format_ = "lamina";
  const size_t length = file_.bytes.size();
  LAMINA_CHECK(length >= sizeof(TokenHeader), name_, ": is cut off: ", length, " bytes, its header alone has ",
               sizeof(TokenHeader), kMakeAgain);
  const auto header = load<TokenHeader>(file_.bytes.data());
  LAMINA_CHECK(header.version == kTokenVersion, name_, ": is a token file of version ", header.version,
               ", this program reads version ", kTokenVersion, "; use a newer program, or prepare the data again");
  LAMINA_CHECK(header.header_checksum == crc32c(file_.bytes.data(), kCheckedHeaderBytes), name_,
               ": its header is damaged: the checksum differs", kMakeAgain);
  LAMINA_CHECK(header.token_width == 2 || header.token_width == 4, name_, ": tokens of ", header.token_width,
               " bytes, expected 2 or 4", kMakeAgain);
  // Compare every count with the number of bytes first, so that the arithmetic below cannot overflow.
  const uint64_t body = length - sizeof(TokenHeader);
  const bool plausible = header.token_count <= body / header.token_width && header.document_count <= body / 8;
  const uint64_t token_bytes = plausible ? (header.token_count * header.token_width + 7) / 8 * 8 : 0;
  LAMINA_CHECK(plausible && token_bytes + header.document_count * 8 == body, name_, ": has ", length, " bytes, but ",
               header.token_count, " tokens of ", header.token_width, " bytes and ", header.document_count,
               " documents are written in its header: it is cut off or damaged", kMakeAgain);
  LAMINA_CHECK(header.vocab_size <= uint64_t{1} << 32U, name_, ": a vocabulary of ", header.vocab_size, kMakeAgain);
  width_ = static_cast<int>(header.token_width);
  size_ = static_cast<int64_t>(header.token_count);
  vocab_size_ = static_cast<int64_t>(header.vocab_size);
  document_count_ = static_cast<int64_t>(header.document_count);
  tokenizer_hash_ = header.tokenizer_hash;
  checksum_ = header.body_checksum;
  tokens_ = file_.bytes.data() + sizeof(TokenHeader);
  starts_ = tokens_ + token_bytes;
  check_starts();
}

void TokenFile::check_starts() const {
  LAMINA_CHECK((size_ == 0) == (document_count_ == 0), name_, ": ", size_, " tokens in ", document_count_, " documents",
               kMakeAgain);
  int64_t before = -1;
  for (int64_t document = 0; document <= document_count_; ++document) {
    const int64_t start = document_start(document);
    const bool right = document == 0 ? start == 0 : start > before && start <= size_;
    LAMINA_CHECK(right, name_, ": document ", document, " starts at token ", start, ", not after ", before,
                 ": the table of documents is damaged", kMakeAgain);
    before = start;
  }
}

void TokenFile::parse_llm_c(uint32_t magic) {
  format_ = "llm.c";
  const size_t length = file_.bytes.size();
  LAMINA_CHECK(length >= kLlmCHeader, name_, ": is cut off: ", length, " bytes, the header of llm.c's format has ",
               kLlmCHeader);
  const auto version = load<int32_t>(file_.bytes.data() + 4);
  const auto count = load<int32_t>(file_.bytes.data() + 8);
  const int32_t expected = magic == kLlmC16 ? 1 : 7;
  LAMINA_CHECK(version == expected, name_, ": version ", version, " of llm.c's format ", magic, ", expected ",
               expected);
  width_ = magic == kLlmC16 ? 2 : 4;
  LAMINA_CHECK(count >= 0 && length - kLlmCHeader == static_cast<size_t>(count) * static_cast<size_t>(width_), name_,
               ": has ", length, " bytes, but its header (llm.c) says ", count, " tokens of ", width_,
               " bytes: it is cut off or damaged; copy it again");
  size_ = count;
  document_count_ = size_ > 0 ? 1 : 0;
  tokens_ = file_.bytes.data() + kLlmCHeader;
}

void TokenFile::parse_raw() {
  const size_t length = file_.bytes.size();
  LAMINA_CHECK(
      length % 2 == 0, name_, ": has no header of a token file, and ", length,
      " bytes are not whole 16-bit tokens either; is it text? `lamina data prepare` makes token files of text");
  size_ = static_cast<int64_t>(length / 2);
  document_count_ = 1;
  tokens_ = file_.bytes.data();
}

void TokenFile::read(int64_t begin, std::span<int64_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  LAMINA_CHECK(begin >= 0 && begin <= size_ && count <= size_ - begin, name_, ": tokens ", begin, " to ", begin + count,
               " were asked for, it has ", size_);
  const std::byte* from = tokens_ + begin * width_;
  if (width_ == 2) {
    widen<uint16_t>(from, out);
  } else {
    widen<uint32_t>(from, out);
  }
  if (vocab_size_ == 0 || out.empty()) return;
  const auto largest = std::max_element(out.begin(), out.end());
  LAMINA_CHECK(*largest < vocab_size_, name_, ": token ", begin + (largest - out.begin()), " is ", *largest,
               ", its vocabulary has ", vocab_size_, ": the file is damaged", kMakeAgain);
}

int64_t TokenFile::document_start(int64_t document) const {
  LAMINA_CHECK(document >= 0 && document <= document_count_, name_, ": document ", document, " was asked for, it has ",
               document_count_);
  if (document == document_count_) return size_;
  if (starts_ == nullptr) return 0;
  const auto start = load<uint64_t>(starts_ + document * 8);
  return static_cast<int64_t>(std::min(start, uint64_t{std::numeric_limits<int64_t>::max()}));
}

int64_t TokenFile::document_of(int64_t token) const {
  LAMINA_CHECK(token >= 0 && token < size_, name_, ": token ", token, " was asked for, it has ", size_);
  int64_t low = 0;
  int64_t high = document_count_;  // invariant: start(low) ≤ token < start(high)
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (document_start(middle) <= token ? low : high) = middle;
  }
  return low;
}

uint32_t TokenFile::checked_checksum(const Progress& progress) const {
  constexpr size_t kPiece = size_t{64} << 20U;
  const std::span<const std::byte> body(tokens_, file_.bytes.data() + file_.bytes.size());
  uint32_t checksum = 0;
  for (size_t at = 0; at < body.size(); at += kPiece) {
    const size_t count = std::min(kPiece, body.size() - at);
    checksum = crc32c(body.data() + at, count, checksum);
    if (progress) progress(static_cast<int64_t>(at + count), static_cast<int64_t>(body.size()));
  }
  LAMINA_CHECK(starts_ == nullptr || checksum == checksum_, name_, ": is damaged: its checksum differs", kMakeAgain);
  return checksum;
}

uint32_t TokenFile::fingerprint() const {
  constexpr size_t kPieces = 64;
  constexpr size_t kPiece = 4096;
  const std::string about = str(format_, " ", size_, " ", vocab_size_, " ", tokenizer_hash_, " ", checksum_);
  uint32_t result = crc32c(about.data(), about.size());
  const auto bytes = static_cast<size_t>(size_) * static_cast<size_t>(width_);
  const size_t step = std::max(kPiece, bytes / kPieces);
  for (size_t at = 0; at < bytes; at += step) {
    result = crc32c(tokens_ + at, std::min(kPiece, bytes - at), result);
  }
  return result;
}

void TokenFile::verify() const {
  checked_checksum();
  std::array<int64_t, 4096> piece;
  for (int64_t begin = 0; begin < size_; begin += static_cast<int64_t>(piece.size())) {
    const auto count = std::min(static_cast<int64_t>(piece.size()), size_ - begin);
    read(begin, {piece.data(), static_cast<size_t>(count)});
  }
}

}  // namespace lamina::data
