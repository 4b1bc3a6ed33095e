#include "lamina/base/dtype.h"

#include <array>
#include <cmath>
#include <ostream>

namespace lamina {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  size_t size;
};

constexpr std::array<Row, 7> kRows{{{DType::f32, "f32", 4},
                                    {DType::f64, "f64", 8},
                                    {DType::bf16, "bf16", 2},
                                    {DType::f16, "f16", 2},
                                    {DType::i64, "i64", 8},
                                    {DType::i32, "i32", 4},
                                    {DType::u8, "u8", 1}}};

}  // namespace

f16::f16(float value) {
  const auto u = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((u >> 16) & 0x8000U);
  const uint32_t magnitude = u & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {
    bits = static_cast<uint16_t>(sign | 0x7e00U);
  } else if (magnitude >= 0x477ff000U) {  // would round to 65536 or more: infinity
    bits = static_cast<uint16_t>(sign | 0x7c00U);
  } else if (magnitude < 0x38800000U) {  // subnormal result: the FPU rounds at the right bit
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    bits = static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000U));
  } else {
    const uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
    bits = static_cast<uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
  }
}

f16::operator float() const {
  const uint32_t sign = (bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fU;
  const uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

size_t size_of(DType dtype) { return kRows[static_cast<size_t>(dtype)].size; }

std::string_view name_of(DType dtype) { return kRows[static_cast<size_t>(dtype)].name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

bool is_floating(DType dtype) { return dtype <= DType::f16; }

DType accumulation_type(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

}  // namespace lamina
