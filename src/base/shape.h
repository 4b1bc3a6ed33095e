#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>

namespace lamina {

/// The extents of a tensor, or its strides. Holds up to kMaxRank numbers in place.
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents);
  explicit Shape(std::span<const int64_t> extents);

  int rank() const { return rank_; }
  /// Extent at `axis`; negative axes count from the end. Out of range is an error.
  int64_t operator[](int axis) const { return extents_[static_cast<size_t>(normalize(axis))]; }
  int64_t& operator[](int axis) { return extents_[static_cast<size_t>(normalize(axis))]; }
  /// The axis counted from the front, checked.
  int normalize(int axis) const;
  /// Product of the extents; a negative extent or a product of the non-zero ones beyond int64 is an error.
  int64_t numel() const;
  /// Product of all extents but the last: the number of rows.
  int64_t rows() const;
  void push_back(int64_t extent);

  const int64_t* begin() const { return extents_.data(); }
  const int64_t* end() const { return extents_.data() + rank_; }

  friend bool operator==(const Shape& a, const Shape& b);

 private:
  std::array<int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

/// Strides, in elements, of a dense row-major tensor.
Shape contiguous_strides(const Shape& shape);

std::ostream& operator<<(std::ostream& out, const Shape& shape);

}  // namespace lamina
