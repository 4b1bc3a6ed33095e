#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "lamina/tensor/tensor.h"

namespace lamina::fuzz {

/// Reads decisions from the fuzzer's input; past its end it reads zeros.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  bool empty() const { return at_ == end_; }
  uint8_t byte() { return empty() ? uint8_t{0} : *at_++; }
  bool flag() { return byte() % 2 != 0; }
  /// A number in [0, n).
  int below(int n) { return byte() % n; }

  /// Mostly ordinary numbers, sometimes invalid ones.
  double number() {
    static constexpr double kOdd[] = {0.0,
                                      -0.0,
                                      -1.0,
                                      1e-300,
                                      1e300,
                                      -1e300,
                                      std::numeric_limits<double>::infinity(),
                                      -std::numeric_limits<double>::infinity(),
                                      std::numeric_limits<double>::quiet_NaN(),
                                      std::numeric_limits<double>::denorm_min()};
    const uint8_t choice = byte();
    return choice < 10 ? kOdd[choice] : (static_cast<double>(choice) - 64.0) / 64.0;
  }

  /// Mostly small, sometimes negative or huge.
  int64_t integer() {
    static constexpr int64_t kOdd[] = {-1,
                                       -2,
                                       std::numeric_limits<int64_t>::max(),
                                       std::numeric_limits<int64_t>::min(),
                                       int64_t{1} << 31,
                                       int64_t{1} << 40,
                                       int64_t{1} << 61,
                                       65536};
    const uint8_t choice = byte();
    return choice >= 248 ? kOdd[choice - 248] : choice % 41;
  }

  int axis() { return static_cast<int8_t>(byte()) % 10; }

  /// Rank 0 to 8. Higher ranks get smaller extents to keep the element count low.
  Shape shape() {
    const int rank = below(9);
    Shape result;
    for (int i = 0; i < rank; ++i) {
      const int64_t extent = integer();
      result.push_back(rank > 3 && extent > 3 && extent < 41 ? extent % 4 : extent);
    }
    return result;
  }

  DType dtype() { return static_cast<DType>(below(7)); }
  /// Mostly floating-point types.
  DType mostly_floating() {
    static constexpr DType kTypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::f32,
                                       DType::f32, DType::i64, DType::i32,  DType::u8};
    return kTypes[below(9)];
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

}  // namespace lamina::fuzz
