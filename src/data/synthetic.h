#pragma once

#include <cstdint>
#include <string>

namespace lamina::data {

/// A play that no one wrote, for where no text can be fetched: scenes in which speakers talk in lines of five feet,
/// made from a small grammar and a few hundred words. The words of a speech are chosen by its mood, speakers answer one
/// another and have their own moods, so that there is something to learn beyond spelling. The same seed gives the same
/// text, and a shorter text is the beginning of a longer one.
std::string synthetic_play(int64_t bytes, uint64_t seed);

}  // namespace lamina::data
