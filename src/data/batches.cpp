#include "lamina/data/batches.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "lamina/base/error.h"
#include "lamina/data/permutation.h"

namespace lamina::data {
namespace {

// Random streams. They differ from those of dropout and weight initialization.
constexpr uint64_t kWindowStream = 0x64617461'00000000;   // "data"
constexpr uint64_t kShuffleStream = 0x65706f63'00000000;  // "epoc" + epoch

Batch empty_batch(int64_t rows, int64_t length) {
  const auto count = static_cast<size_t>(rows * length);
  return {rows, length, std::vector<int64_t>(count), std::vector<int64_t>(count), {}, 0, {}, {}, {}, {}};
}

/// Reads `count` pairs (token, next token) that start at `begin` into position `at` of the batch.
void read_pairs(const TokenFile& file, int64_t begin, int64_t count, Batch& batch, int64_t at) {
  const auto from = static_cast<size_t>(at);
  const auto length = static_cast<size_t>(count);
  file.read(begin, std::span(batch.ids).subspan(from, length));
  std::copy(batch.ids.begin() + at + 1, batch.ids.begin() + at + count, batch.targets.begin() + at);
  file.read(begin + count, std::span(batch.targets).subspan(from + length - 1, 1));
}

/// Number of (token, next token) pairs in all documents before `document`. A document of n tokens has n − 1 pairs.
int64_t places_before(const TokenFile& file, int64_t document) { return file.document_start(document) - document; }

/// The last document whose first pair is at or before the pair number `place`.
int64_t document_of_place(const TokenFile& file, int64_t place) {
  int64_t low = 0;
  int64_t high = file.document_count();
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (places_before(file, middle) <= place ? low : high) = middle;
  }
  return low;
}

void check_sizes(int64_t batch, int64_t length) {
  LAMINA_CHECK(batch > 0 && length > 0, "batches of ", batch, " rows of ", length, " tokens; expected at least 1 of 1");
  LAMINA_CHECK(batch <= std::numeric_limits<int32_t>::max() / length, "batches of ", batch, " rows of ", length,
               " tokens are too large; use a smaller batch and accumulate");
}

int64_t ceil_div(int64_t count, int64_t size) { return (count + size - 1) / size; }

struct EvaluationBatches {
  int64_t count;
  int64_t rows;
};

EvaluationBatches evaluation_layout(const TokenFile& file, int64_t batch, int64_t length) {
  check_sizes(batch, length);
  LAMINA_CHECK(file.size() > 1, file.name(), ": has ", file.size(), " tokens; an evaluation needs at least 2");
  const int64_t windows = ceil_div(file.size() - 1, length);
  const int64_t count = ceil_div(windows, batch);
  return {count, ceil_div(windows, count)};
}

}  // namespace

Batches::Batches(TokenFile file, const BatchOptions& options) : file_(std::move(file)), options_(options) {
  check_sizes(options.batch, options.length);
  LAMINA_CHECK(options.align > 0, "windows at multiples of ", options.align, " tokens; expected 1 or more");
  if (options.order == Order::packed) {
    const int64_t places = file_.size() - file_.document_count();
    pieces_ = places / (options.batch * options.length);
    LAMINA_CHECK(pieces_ > 0, file_.name(), ": its documents have ", places, " places to learn from, a batch of ",
                 options.batch, " × ", options.length, " needs ", options.batch * options.length,
                 "; use more text, a smaller batch or a shorter length");
    return;
  }
  pieces_ = (file_.size() - 1) / options.length;
  LAMINA_CHECK(pieces_ > 0, file_.name(), ": has ", file_.size(), " tokens, a window of ", options.length, " needs ",
               options.length + 1, "; use more text or a shorter length");
}

int64_t Batches::steps_per_epoch() const {
  if (options_.order == Order::packed) return pieces_;
  return (pieces_ + options_.batch - 1) / options_.batch;
}

int64_t Batches::window_start(int64_t step, int64_t row) const {
  const int64_t number = step * options_.batch + row;
  switch (options_.order) {
    case Order::random:
      return drawn_below((file_.size() - options_.length - 1) / options_.align + 1, {options_.seed, kWindowStream},
                         static_cast<uint64_t>(number)) *
             options_.align;
    case Order::shuffled: {
      const auto epoch = static_cast<uint64_t>(number / pieces_);
      return permuted(number % pieces_, pieces_, {options_.seed, kShuffleStream + epoch}) * options_.length;
    }
    default: return number % pieces_ * options_.length;
  }
}

Batch Batches::at(int64_t step) const {
  LAMINA_CHECK(step >= 0 && step <= std::numeric_limits<int64_t>::max() / options_.batch - 1, "batch of step ", step,
               "; steps count from 0");
  if (options_.order == Order::packed) return packed_at(step);
  Batch batch = empty_batch(options_.batch, options_.length);
  for (int64_t row = 0; row < options_.batch; ++row) {
    batch.first_tokens.push_back(window_start(step, row));
    read_pairs(file_, batch.first_tokens.back(), options_.length, batch, row * options_.length);
  }
  return batch;
}

/// Pairs (token, next token) are numbered across all documents. Each batch of an epoch takes `length` consecutive
/// pairs, and wraps around at the end. A random shift per epoch varies which pairs are left out.
Batch Batches::packed_at(int64_t step) const {
  const int64_t length = options_.batch * options_.length;
  const int64_t places = file_.size() - file_.document_count();
  const RandomKey key{options_.seed, kShuffleStream + static_cast<uint64_t>(step / pieces_)};
  const int64_t shift = drawn_below(places, key, std::numeric_limits<uint64_t>::max());
  int64_t place = (permuted(step % pieces_, pieces_, key) * length + shift) % places;
  Batch batch = empty_batch(1, length);
  int64_t document = document_of_place(file_, place);
  for (int64_t filled = 0; filled < length; ++document) {
    if (document == file_.document_count()) document = place = 0;
    const int64_t first = place + document;  // token index: each earlier document has one more token than pairs
    const int64_t count = std::min(file_.document_start(document + 1) - 1 - first, length - filled);
    if (count <= 0) continue;  // the document has a single token
    batch.document_starts.push_back(filled);
    read_pairs(file_, first, count, batch, filled);
    filled += count;
    place += count;
  }
  batch.document_starts.push_back(length);
  return batch;
}

int64_t evaluation_batches(const TokenFile& file, int64_t batch, int64_t length) {
  return evaluation_layout(file, batch, length).count;
}

Batch evaluation_batch(const TokenFile& file, int64_t batch, int64_t length, int64_t index) {
  const auto [count, rows] = evaluation_layout(file, batch, length);
  LAMINA_CHECK(index >= 0 && index < count, "evaluation batch ", index, " of ", count);
  const int64_t first = index * rows * length;
  Batch result = empty_batch(rows, length);
  std::fill(result.targets.begin(), result.targets.end(), kIgnoreIndex);
  read_pairs(file, first, std::min(file.size() - 1 - first, rows * length), result, 0);
  for (int64_t row = 0; row < rows; ++row) result.first_tokens.push_back(first + row * length);
  return result;
}

}  // namespace lamina::data
