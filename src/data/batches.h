#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lamina/data/token_file.h"

namespace lamina::data {

enum class Order : uint8_t {
  random,      ///< windows at places drawn anew each time
  sequential,  ///< windows one behind another, from the file's start, round and round
  shuffled,    ///< each window once in an epoch, in an order drawn for each
  packed,      ///< documents end to end in one row, none seeing another; epochs shuffled by whole batches
};
/// As recipes name them.
constexpr std::array<std::string_view, 4> names_of(Order) { return {"random", "sequential", "shuffled", "packed"}; }

struct BatchOptions {
  int64_t batch = 1;   ///< rows
  int64_t length = 1;  ///< tokens of a row
  Order order = Order::random;
  uint64_t seed = 0;
};

/// What a step learns from: in every place a token and the one that follows it in its document.
struct Batch {
  int64_t rows = 0;
  int64_t length = 0;
  std::vector<int64_t> ids;      ///< [rows, length]
  std::vector<int64_t> targets;  ///< [rows, length]; kIgnored where there is none (evaluation_batch only)
  /// Packed only: [documents + 1], from 0 to length. The rows of a batch share them in the model (nn::ForwardContext),
  /// so packed batches are one row of batch × length tokens.
  std::vector<int64_t> document_starts;
};
/// ops::CrossEntropyOptions' value for places that count for nothing.
inline constexpr int64_t kIgnored = -100;

/// The batches of a file. What a step gets is a function of the seed and the step alone: there is no position to save,
/// and any number of workers may ask in any order.
class Batches {
 public:
  /// A file too short for a single window is an Error.
  Batches(TokenFile file, const BatchOptions& options);

  Batch at(int64_t step) const;
  /// Steps in which about as many tokens are seen as the file has; sequential and shuffled windows have all been seen
  /// once then.
  int64_t steps_per_epoch() const;
  const TokenFile& file() const { return file_; }
  const BatchOptions& options() const { return options_; }

 private:
  int64_t window_start(int64_t step, int64_t row) const;
  Batch packed_at(int64_t step) const;

  TokenFile file_;
  BatchOptions options_;
  /// Windows of an epoch; for packed, batches of an epoch.
  int64_t pieces_ = 0;
};

/// The whole file for an evaluation, windows one behind another, the last one shorter: batch `index` of
/// evaluation_batches(…), every token but the first the target of exactly one place. All have as many rows, `batch` or
/// fewer, so that a model needs memory of one shape alone; the last one is filled up with targets kIgnored.
Batch evaluation_batch(const TokenFile& file, int64_t batch, int64_t length, int64_t index);
int64_t evaluation_batches(const TokenFile& file, int64_t batch, int64_t length);

}  // namespace lamina::data
