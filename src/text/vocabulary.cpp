#include "lamina/text/vocabulary.h"

#include <bit>
#include <cstring>

namespace lamina::text {
namespace {

uint64_t load(const char* from, size_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, from, bytes);
  return value;
}

/// Multiplies, and folds the halves of the product, so that every input bit affects every output bit.
uint64_t mixed(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

constexpr uint64_t kOdd = 0x9E3779B97F4A7C15U;  // 2⁶⁴ / golden ratio
constexpr uint64_t kOtherMultiplier = 0xD1B54A32D192ED03U;

}  // namespace

uint64_t Vocabulary::hash_of(std::string_view bytes) {
  uint64_t state = bytes.size() * kOdd;
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left > 8; left -= 8, at += 8) state = mixed(state ^ load(at, 8), kOtherMultiplier);
  uint64_t tail = 0;
  if (left >= 4) {
    tail = load(at, 4) << 32 | load(at + left - 4, 4);
  } else if (left > 0) {
    tail = static_cast<uint64_t>(static_cast<unsigned char>(at[0])) << 16 |
           static_cast<uint64_t>(static_cast<unsigned char>(at[left / 2])) << 8 |
           static_cast<unsigned char>(at[left - 1]);
  }
  return mixed(state ^ tail, kOdd);
}

Vocabulary::Vocabulary(size_t entries)
    : slots_(std::bit_ceil(entries * 2 + 2)), mask_(slots_.size() - 1), shift_(64 - std::countr_zero(slots_.size())) {}

bool Vocabulary::add(std::string_view bytes, TokenId id) {
  if (find(bytes) != kNone) return false;
  const uint64_t hash = hash_of(bytes);
  size_t at = hash >> shift_;
  while (slots_[at].id != kNone) at = (at + 1) & mask_;
  slots_[at] = {static_cast<uint32_t>(hash), id, static_cast<uint32_t>(arena_.size()),
                static_cast<uint32_t>(bytes.size())};
  arena_ += bytes;
  return true;
}

}  // namespace lamina::text
