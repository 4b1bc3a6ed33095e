#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lamina/base/ignore_index.h"
#include "lamina/data/token_file.h"

namespace lamina::data {

enum class Order : uint8_t {
  random,      ///< windows at independent random positions
  sequential,  ///< consecutive windows from the file's start; wraps around
  shuffled,    ///< each window once per epoch, in a new random order each epoch
  packed,      ///< documents concatenated in one row, masked from each other; epochs shuffle whole batches
};
/// The names that recipes use.
constexpr std::array<std::string_view, 4> names_of(Order) { return {"random", "sequential", "shuffled", "packed"}; }

struct BatchOptions {
  int64_t batch = 1;   ///< rows per batch
  int64_t length = 1;  ///< tokens per row
  Order order = Order::random;
  uint64_t seed = 0;
  int64_t align = 1;  ///< random windows begin at multiples of this
};

/// The input of one step: token ids, and for each position the next token of its document.
struct Batch {
  int64_t rows = 0;
  int64_t length = 0;
  std::vector<int64_t> ids;      ///< [rows, length]
  std::vector<int64_t> targets;  ///< [rows, length]; kIgnoreIndex: no target (evaluation_batch only)
  /// Only for packed: [documents + 1], from 0 to length. All rows of a batch share it in the model
  /// (nn::ForwardContext), so a packed batch is one row of batch × length tokens.
  std::vector<int64_t> document_starts;
  /// Only for encoder–decoders: what the encoder reads, [rows, source_length]; ids and targets are the decoder's.
  int64_t source_length = 0;
  std::vector<int64_t> source;
  /// Windows of a token file only: [rows], the token that each row begins with.
  std::vector<int64_t> first_tokens;
  /// Only for retrieval by chunks (data/neighbours.h): chunks of a row, neighbours of a chunk and tokens of each.
  std::array<int64_t, 3> neighbour_shape = {};
  std::vector<int64_t> neighbours;  ///< [rows, chunks, neighbours, tokens]; empty: none
};

/// The batches of a file. A batch depends only on the seed and the step: there is no position to save, and any number
/// of workers may request batches in any order.
class Batches {
 public:
  /// A file shorter than one window is an Error.
  Batches(TokenFile file, const BatchOptions& options);

  Batch at(int64_t step) const;
  /// Steps that together cover about as many tokens as the file has. Sequential and shuffled orders have then used
  /// every window once.
  int64_t steps_per_epoch() const;
  const TokenFile& file() const { return file_; }
  const BatchOptions& options() const { return options_; }

 private:
  int64_t window_start(int64_t step, int64_t row) const;
  Batch packed_at(int64_t step) const;

  TokenFile file_;
  BatchOptions options_;
  /// Windows per epoch; batches per epoch for packed.
  int64_t pieces_ = 0;
};

/// Batch `index` of evaluation_batches(…) over the whole file, in consecutive windows of which the last may be shorter.
/// Every token except the first is a target exactly once. All batches have the same number of rows, at most `batch`, so
/// a model allocates one shape only. The last is padded with targets kIgnoreIndex.
Batch evaluation_batch(const TokenFile& file, int64_t batch, int64_t length, int64_t index);
int64_t evaluation_batches(const TokenFile& file, int64_t batch, int64_t length);

}  // namespace lamina::data
