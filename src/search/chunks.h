#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lamina::search {

/// How documents are divided into passages.
struct ChunkOptions {
  int64_t words = 128;   ///< maximum number of words in a passage
  int64_t overlap = 16;  ///< number of words repeated from the previous passage, if the cut is within a paragraph
};

/// A passage: the bytes [begin, end) of its document.
struct Chunk {
  size_t begin = 0;
  size_t end = 0;
};

/// Divides a text into passages of at most options.words words (as in each_word). A passage ends at the last paragraph
/// end (blank line) in its second half. If there is none, it ends after its last word, and the next passage repeats its
/// last options.overlap words. A text without words has no passages. Throws an Error unless 0 ≤ overlap < words.
std::vector<Chunk> chunks_of(std::string_view text, const ChunkOptions& options);

/// At most `words` words of `text`, on one line, around the place with the most different words of `query`.
std::string snippet_of(std::string_view text, std::string_view query, int64_t words);

}  // namespace lamina::search
