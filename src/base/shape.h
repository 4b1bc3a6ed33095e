#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>

namespace lamina {

/// Extents or strides of a tensor: up to kMaxRank numbers, stored inline.
class Shape {
 public:
  static constexpr int kMaxRank = 8;  ///< largest number of dimensions

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents);     ///< more than kMaxRank extents are an Error
  explicit Shape(std::span<const int64_t> extents);  ///< the same from a span

  int rank() const { return rank_; }  ///< number of dimensions
  /// Extent at `axis`; negative axes count from the end. An axis out of range is an Error.
  int64_t operator[](int axis) const { return extents_[static_cast<size_t>(normalize(axis))]; }
  int64_t& operator[](int axis) { return extents_[static_cast<size_t>(normalize(axis))]; }  ///< writable
  /// Converts a negative axis to one counted from the front. An axis out of range is an Error.
  int normalize(int axis) const;
  /// Product of the extents. A negative extent is an Error, and so is a product of the non-zero extents that overflows
  /// int64.
  int64_t numel() const;
  /// Number of rows: the product of all extents except the last.
  int64_t rows() const;
  void push_back(int64_t extent);  ///< appends a dimension

  const int64_t* begin() const { return extents_.data(); }        ///< first extent
  const int64_t* end() const { return extents_.data() + rank_; }  ///< one past the last extent

  friend bool operator==(const Shape& a, const Shape& b);  ///< same rank and extents

 private:
  std::array<int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

/// Strides, in elements, of a dense row-major tensor.
Shape contiguous_strides(const Shape& shape);

std::ostream& operator<<(std::ostream& out, const Shape& shape);  ///< prints [2,128,512]

}  // namespace lamina
