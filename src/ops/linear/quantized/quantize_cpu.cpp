// Weight quantization, done once when a model is loaded.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "lamina/ops/linear/quantized_linear_kernel.h"

namespace lamina::ops {
namespace {

constexpr int64_t kBlock = QuantizedWeight::kBlock;
constexpr int64_t kRows = QuantizedWeight::kRows;

/// The quantized values of a block and their scale.
struct Block {
  std::array<int, kBlock> q{};
  f16 scale;
  double error = 0;  ///< Σ (w − scale · q)²
};

/// The value with the largest magnitude, with its sign.
float extreme(const float* w) {
  float found = 0;
  for (int64_t i = 0; i < kBlock; ++i) {
    LAMINA_CHECK(std::isfinite(w[i]), "quantize: a weight is ", w[i], "; expected finite numbers");
    if (std::abs(w[i]) > std::abs(found)) found = w[i];
  }
  return found;
}

/// Quantizes a block with a given scale. A scale that underflows f16 gives zeros.
Block rounded(const float* w, float scale, int low, int high) {
  Block block;
  block.scale = f16(scale);
  const auto held = static_cast<float>(block.scale);
  LAMINA_CHECK(std::isfinite(held), "quantize: a block of weights needs the scale ", scale,
               ", beyond the largest f16; keep this weight in f32");
  const float inverse = held == 0 ? 0 : 1 / held;
  for (int64_t i = 0; i < kBlock; ++i) {
    const int q = std::clamp(static_cast<int>(std::nearbyint(w[i] * inverse)), low, high);
    block.q[static_cast<size_t>(i)] = q;
    const double off = static_cast<double>(w[i]) - static_cast<double>(held) * q;
    block.error += off * off;
  }
  return block;
}

Block rounded_q8(const float* w) { return rounded(w, std::abs(extreme(w)) / 127, -127, 127); }

/// Quantizes a block to 4 bits. Tries scales that map the extreme value to −8, −8.6, −7.4, −6.8, 7 or 6.4 and keeps the
/// one with the smallest error; refines it by least squares if that reduces the error.
Block rounded_q4(const float* w) {
  const float most = extreme(w);
  Block best = rounded(w, most / -8, -8, 7);
  for (const float divisor : {-8.6F, -7.4F, -6.8F, 7.0F, 6.4F}) {
    if (best.error == 0) break;
    const Block other = rounded(w, most / divisor, -8, 7);
    if (other.error < best.error) best = other;
  }
  double products = 0;
  double squares = 0;
  for (int64_t i = 0; i < kBlock; ++i) {
    const double q = best.q[static_cast<size_t>(i)];
    products += q * static_cast<double>(w[i]);
    squares += q * q;
  }
  if (squares > 0 && best.error > 0) {
    const Block refined = rounded(w, static_cast<float>(products / squares), -8, 7);
    if (refined.error < best.error) best = refined;
  }
  return best;
}

/// Position of value k of row `row` among the bytes of a group's block. In q4, values k and k + 16 share the byte of
/// value k.
int64_t place_of(int64_t row, int64_t k) { return (k / 4 * kRows + row) * 4 + k % 4; }

void put_block(const QuantizedWeight& to, uint8_t* group, int64_t block, int64_t row, const Block& from) {
  std::memcpy(group + (block * kRows + row) * 2, &from.scale, sizeof(f16));
  uint8_t* numbers = group + to.scale_bytes();
  for (int64_t k = 0; k < kBlock; ++k) {
    const int q = from.q[static_cast<size_t>(k)];
    if (to.format == QuantizedFormat::q8) {
      numbers[block * kRows * kBlock + place_of(row, k)] = static_cast<uint8_t>(q + 128);
    } else {
      uint8_t& byte = numbers[block * kRows * kBlock / 2 + place_of(row, k % 16)];
      byte = static_cast<uint8_t>(k < 16 ? q + 8 : byte | ((q + 8) << 4));
    }
  }
}

float get_number(const QuantizedWeight& from, const uint8_t* group, int64_t row, int64_t column) {
  const int64_t block = column / kBlock;
  const int64_t k = column % kBlock;
  f16 scale;
  std::memcpy(&scale, group + (block * kRows + row) * 2, sizeof(f16));
  const uint8_t* numbers = group + from.scale_bytes();
  if (from.format == QuantizedFormat::q8) {
    return static_cast<float>(scale) * static_cast<float>(numbers[block * kRows * kBlock + place_of(row, k)] - 128);
  }
  const uint8_t byte = numbers[block * kRows * kBlock / 2 + place_of(row, k % 16)];
  return static_cast<float>(scale) * static_cast<float>((k < 16 ? byte & 15 : byte >> 4) - 8);
}

}  // namespace

namespace cpu {

void quantize(const Quantize& args) {
  const QuantizedWeight& to = args.to;
  const float* weight = args.weight.data<float>();
  uint8_t* data = to.data.data<uint8_t>();
  to.data.device().threads().ranges(to.groups(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      uint8_t* group = data + g * to.group_bytes();
      std::memset(group, 0, static_cast<size_t>(to.scale_bytes()));
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t block = 0; block < to.blocks(); ++block) {
          std::array<float, kBlock> w{};
          const int64_t at = g * kRows + row;
          const int64_t count = at < to.out ? std::min(kBlock, to.in - block * kBlock) : 0;
          std::copy_n(weight + (count > 0 ? at * to.in + block * kBlock : 0), count, w.begin());
          put_block(to, group, block, row,
                    to.format == QuantizedFormat::q8 ? rounded_q8(w.data()) : rounded_q4(w.data()));
        }
      }
    }
  });
}

void dequantize(const QuantizedWeight& weight, const Tensor& to) {
  const uint8_t* data = weight.data.data<uint8_t>();
  float* out = to.data<float>();
  to.device().threads().ranges(weight.out, rows_per_range(weight.in), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const uint8_t* group = data + row / kRows * weight.group_bytes();
      for (int64_t column = 0; column < weight.in; ++column) {
        out[row * weight.in + column] = get_number(weight, group, row % kRows, column);
      }
    }
  });
}

}  // namespace cpu
}  // namespace lamina::ops
