#pragma once

#include <cstdint>
#include <string>

namespace lamina::data {

/// Generates a play, for use without network access: scenes of dialogue in verse, from a small grammar and a few
/// hundred words. The words of a speech depend on its mood, speakers have preferred moods, and they answer each other.
/// So there is more to learn than spelling. The same seed gives the same text, and a shorter text is a prefix of a
/// longer one.
std::string synthetic_play(int64_t bytes, uint64_t seed);

}  // namespace lamina::data
