#pragma once

#include <string>

#include "lamina/data/batches.h"

namespace lamina::data {

/// Sizes of retrieval by chunks: a text is divided into chunks of `chunk` tokens, and each has `count` neighbours of
/// `length` tokens.
struct NeighbourSizes {
  int64_t chunk = 0;
  int64_t count = 0;
  int64_t length = 0;
  bool operator==(const NeighbourSizes&) const = default;
};

/// Where the neighbours of a token file lie: train.neighbours.bin beside train.bin.
std::string neighbours_path(const std::string& tokens_path);

/// Neighbours of the chunks of a token file, found beforehand by `lamina index neighbours`. They are a token file, too:
/// one document of count · length tokens for each complete chunk, in order.
class Neighbours {
 public:
  /// Throws Error if there is no such file, or if it was made for other tokens or sizes. `padding` fills chunks that
  /// lie after the last complete one.
  static Neighbours open(const TokenFile& tokens, const NeighbourSizes& sizes, int64_t padding);

  /// Adds the neighbours of every chunk. The rows must be windows of the file that begin with a chunk.
  void add_to(Batch& batch) const;
  const TokenFile& file() const { return file_; }

 private:
  Neighbours(TokenFile file, const NeighbourSizes& sizes, int64_t padding)
      : file_(std::move(file)), sizes_(sizes), padding_(padding) {}

  TokenFile file_;
  NeighbourSizes sizes_;
  int64_t padding_;
};

}  // namespace lamina::data
