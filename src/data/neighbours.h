#pragma once

#include <string>

#include "lamina/data/batches.h"

namespace lamina::data {

/// Sizes for retrieval by chunks. A text is divided into chunks of `chunk` tokens; each chunk has `count` neighbours of
/// `length` tokens.
struct NeighbourSizes {
  int64_t chunk = 0;
  int64_t count = 0;
  int64_t length = 0;
  bool operator==(const NeighbourSizes&) const = default;
};

/// Path of the neighbours of a token file: train.neighbours.bin next to train.bin.
std::string neighbours_path(const std::string& tokens_path);

/// The neighbours of a token file's chunks, found in advance by `lamina index neighbours`. They are stored as a token
/// file, too: one document of count · length tokens for each complete chunk, in order.
class Neighbours {
 public:
  /// Throws an Error if there is no such file, or if it was made for other tokens or sizes. `padding` is the neighbour
  /// token for chunks after the last complete one.
  static Neighbours open(const TokenFile& tokens, const NeighbourSizes& sizes, int64_t padding);

  /// Adds the neighbours of every chunk to the batch. The rows must be windows of the file that begin at the start of a
  /// chunk.
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
