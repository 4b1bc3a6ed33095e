#pragma once

#include <concepts>
#include <cstdint>
#include <utility>
#include <vector>

#include "lamina/data/permutation.h"

namespace lamina::data {

/// Draws consecutive random numbers from a random stream.
class Dice {
 public:
  explicit Dice(const RandomKey& key) : key_(key) {}
  /// A uniform number in 0 … count − 1.
  template <std::integral T>
  T below(T count) {
    return static_cast<T>(drawn_below(static_cast<int64_t>(count), key_, counter_++));
  }
  bool chance(int percent) { return below(100) < percent; }
  template <class List>
  const auto& of(const List& list) {
    return list[below(list.size())];
  }
  /// `count` distinct numbers below `size`, in random order (Fisher-Yates shuffle).
  std::vector<int64_t> different(int64_t count, int64_t size) {
    std::vector<int64_t> all(static_cast<size_t>(size));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    for (int64_t i = 0; i < count; ++i) {
      std::swap(all[static_cast<size_t>(i)], all[static_cast<size_t>(i + below(size - i))]);
    }
    all.resize(static_cast<size_t>(count));
    return all;
  }
  /// A mask of `size` elements with `count` random ones set to true.
  std::vector<bool> places(int64_t count, int64_t size) {
    std::vector<bool> chosen(static_cast<size_t>(size));
    for (const int64_t place : different(count, size)) chosen[static_cast<size_t>(place)] = true;
    return chosen;
  }

 private:
  RandomKey key_;
  uint64_t counter_ = 0;
};

}  // namespace lamina::data
