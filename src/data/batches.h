#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lamina/base/ignore_index.h"
#include "lamina/data/token_file.h"

namespace lamina::data {

/// Where the rows of a batch come from in a token file.
enum class Order : uint8_t {
  random,      ///< windows at independent random positions
  sequential,  ///< consecutive windows from the file's start; wraps around
  shuffled,    ///< each window once per epoch, in a different random order per epoch
  /// Documents concatenated in a single row, and masked from each other; the order of whole batches is shuffled per
  /// epoch.
  packed,
};
/// Names in recipes.
constexpr std::array<std::string_view, 4> names_of(Order) { return {"random", "sequential", "shuffled", "packed"}; }

/// Sizes and order of batches.
struct BatchOptions {
  int64_t batch = 1;   ///< rows per batch
  int64_t length = 1;  ///< tokens per row
  Order order = Order::random;
  uint64_t seed = 0;
  int64_t align = 1;  ///< random windows begin at multiples of this number
};

/// The input of a step: token ids and, for each position, the next token of its document.
struct Batch {
  int64_t rows = 0;
  int64_t length = 0;
  std::vector<int64_t> ids;      ///< [rows, length]
  std::vector<int64_t> targets;  ///< [rows, length]; kIgnoreIndex: no target (evaluation_batch only)
  /// Only for packed: boundaries of documents [documents + 1], from 0 to length. In the model all rows of a batch share
  /// them (nn::ForwardContext), so a packed batch is a single row of batch × length tokens.
  std::vector<int64_t> document_starts;
  /// Only for encoder–decoder models: the encoder's input [rows, source_length]. ids and targets are then the
  /// decoder's.
  int64_t source_length = 0;
  std::vector<int64_t> source;
  /// Only for windows of a token file: the first token of each row, [rows].
  std::vector<int64_t> first_tokens;
  /// Only for retrieval (data/neighbours.h): chunks per row, neighbours per chunk, tokens per neighbour.
  std::array<int64_t, 3> neighbour_shape = {};
  std::vector<int64_t> neighbours;  ///< [rows, chunks, neighbours, tokens]; empty: no neighbours
};

/// The batches of a file. A batch depends only on the seed and the step. So there is no position to save, and any
/// number of workers may request batches in any order.
class Batches {
 public:
  /// Throws an Error if the file is shorter than one window.
  Batches(TokenFile file, const BatchOptions& options);

  Batch at(int64_t step) const;
  /// Number of steps that together cover about as many tokens as the file has. In sequential and shuffled order, every
  /// window has then been used once.
  int64_t steps_per_epoch() const;
  const TokenFile& file() const { return file_; }
  const BatchOptions& options() const { return options_; }

 private:
  int64_t window_start(int64_t step, int64_t row) const;
  Batch packed_at(int64_t step) const;

  TokenFile file_;
  BatchOptions options_;
  /// Number of windows per epoch; for packed, of batches.
  int64_t pieces_ = 0;
};

/// Batch `index` of evaluation_batches(…) over the whole file, in consecutive windows. Every token except the first is
/// a target exactly once; the last window may be shorter. All batches have the same number of rows, at most `batch`, so
/// that a model allocates memory for a single shape. The last batch is padded with targets kIgnoreIndex.
Batch evaluation_batch(const TokenFile& file, int64_t batch, int64_t length, int64_t index);
int64_t evaluation_batches(const TokenFile& file, int64_t batch, int64_t length);

}  // namespace lamina::data
