#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lamina::search {

/// How documents are cut into passages.
struct ChunkOptions {
  int64_t words = 128;   ///< most words of a passage
  int64_t overlap = 16;  ///< words that a passage repeats from the one before, if the cut is inside a paragraph
};

/// A passage: bytes [begin, end) of its document.
struct Chunk {
  size_t begin = 0;
  size_t end = 0;
};

/// Cuts a text into passages of at most options.words words (as in each_word). A cut is made at the last paragraph end
/// (blank line) in the second half of the passage; if there is none, after the last word, and the next passage then
/// repeats the last options.overlap words. Texts without words give no passages. Throws Error unless
/// 0 ≤ overlap < words.
std::vector<Chunk> chunks_of(std::string_view text, const ChunkOptions& options);

/// At most `words` words of `text` around the place where most different words of `query` are, on one line.
std::string snippet_of(std::string_view text, std::string_view query, int64_t words);

}  // namespace lamina::search
