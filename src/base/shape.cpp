#include "lamina/base/shape.h"

#include <algorithm>
#include <ostream>

#include "lamina/base/error.h"

namespace lamina {

Shape::Shape(std::initializer_list<int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}

Shape::Shape(std::span<const int64_t> extents) {
  for (const int64_t extent : extents) push_back(extent);
}

int Shape::normalize(int axis) const {
  const int positive = axis < 0 ? axis + rank_ : axis;
  LAMINA_CHECK(positive >= 0 && positive < rank_, "shape ", *this, " has rank ", rank_, "; axis ", axis,
               " is outside [", -rank_, ", ", rank_, ")");
  return positive;
}

int64_t Shape::numel() const {
  // The overflow check counts a zero extent as one, so that the strides of empty tensors do not overflow either.
  int64_t product = 1;
  bool empty = false;
  for (const int64_t extent : *this) {
    LAMINA_CHECK(extent >= 0, "shape ", *this, " has the negative extent ", extent);
    LAMINA_CHECK(!__builtin_mul_overflow(product, std::max<int64_t>(extent, 1), &product), "shape ", *this,
                 " has more elements than 2^63; split the work or fix the sizes");
    empty = empty || extent == 0;
  }
  return empty ? 0 : product;
}

int64_t Shape::rows() const {
  LAMINA_CHECK(rank_ > 0, "a scalar has no rows; expected at least one dimension");
  Shape head(std::span(begin(), static_cast<size_t>(rank_ - 1)));
  return head.numel();
}

void Shape::push_back(int64_t extent) {
  LAMINA_CHECK(rank_ < kMaxRank, "a shape has at most ", kMaxRank, " dimensions");
  extents_[static_cast<size_t>(rank_++)] = extent;
}

bool operator==(const Shape& a, const Shape& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

Shape contiguous_strides(const Shape& shape) {
  shape.numel();  // throws if strides would overflow
  Shape strides = shape;
  int64_t step = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[axis] = step;
    step *= std::max<int64_t>(shape[axis], 1);
  }
  return strides;
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '[';
  const char* separator = "";
  for (const int64_t extent : shape) {
    out << separator << extent;
    separator = ",";
  }
  return out << ']';
}

}  // namespace lamina
