#include "lamina/ops/position/tables.h"

#include <bit>
#include <cmath>

#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

/// A table that `fill` computes on the host, copied to `device`; on meta only its shape.
template <class T, class F>
Tensor host_table(const Shape& shape, const Device& device, const F& fill) {
  if (device.kind() == DeviceKind::meta) return Tensor::empty(shape, dtype_of<T>(), device);
  const Device host = device.kind() == DeviceKind::cpu ? device : Device::cpu(1);
  Tensor table = Tensor::empty(shape, dtype_of<T>(), host);
  fill(table.data<T>(), host.threads());
  return table.to(device);
}

constexpr int64_t kMostPositions = int64_t{1} << 31;
constexpr int64_t kMostHeads = 65536;  // also the maximum head dimension

void check_sizes(const char* op, int64_t length, int64_t width) {
  LAMINA_CHECK(length >= 0 && width >= 0 && length <= kMostPositions && width <= kMostPositions, op, ": a table of ",
               length, " positions and width ", width, " was requested; both must be at least 0 and at most ",
               kMostPositions);
}

}  // namespace

std::vector<double> rotary_frequencies(int64_t rotary_dim, double theta) {
  LAMINA_CHECK(rotary_dim >= 0 && rotary_dim % 2 == 0 && rotary_dim <= kMostHeads,
               "rotary_frequencies: the rotary dimension is ", rotary_dim, "; expected an even number up to ",
               kMostHeads);
  LAMINA_CHECK(std::isfinite(theta) && theta > 0, "rotary_frequencies: theta is ", theta,
               "; expected a finite number above 0");
  std::vector<double> frequencies;
  for (int64_t i = 0; i < rotary_dim; i += 2) {
    frequencies.push_back(std::pow(theta, -static_cast<double>(i) / static_cast<double>(rotary_dim)));
  }
  return frequencies;
}

RotaryTables rotary_tables(int64_t length, int64_t rotary_dim, const RotaryTableOptions& options,
                           const Device& device) {
  check_sizes("rotary_tables", length, rotary_dim);
  check_finite("rotary_tables", "attention_factor", options.attention_factor);
  LAMINA_CHECK(options.first_position >= 0 && options.first_position <= kMostPositions,
               "rotary_tables: first_position is ", options.first_position, "; expected from 0 to ", kMostPositions);
  const std::vector<double> frequencies =
      options.frequencies.empty() ? rotary_frequencies(rotary_dim, options.theta) : options.frequencies;
  LAMINA_CHECK(2 * static_cast<int64_t>(frequencies.size()) == rotary_dim, "rotary_tables: ", frequencies.size(),
               " frequencies for a rotary dimension of ", rotary_dim, "; expected ", rotary_dim / 2);
  for (const double frequency : frequencies) check_finite("rotary_tables", "a frequency", frequency);
  const auto width = static_cast<int64_t>(frequencies.size());
  const auto table = [&](double (*function)(double)) {
    return host_table<float>({length, width}, device, [&](float* to, const Threads& threads) {
      threads.ranges(length, rows_per_range(width, 4096), [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) {
          const auto position = static_cast<double>(options.first_position + p);
          for (int64_t i = 0; i < width; ++i) {
            const double angle = position * frequencies[static_cast<size_t>(i)];
            to[p * width + i] = static_cast<float>(function(angle) * options.attention_factor);
          }
        }
      });
    });
  };
  return {table(std::cos), table(std::sin)};
}

Tensor sinusoidal_table(int64_t length, int64_t d_model, const Device& device, double theta) {
  check_sizes("sinusoidal_table", length, d_model);
  LAMINA_CHECK(std::isfinite(theta) && theta > 0, "sinusoidal_table: theta is ", theta,
               "; expected a finite number above 0");
  return host_table<float>({length, d_model}, device, [&](float* to, const Threads& /*threads*/) {
    for (int64_t p = 0; p < length; ++p) {
      for (int64_t i = 0; i < d_model; ++i) {
        const double exponent = static_cast<double>(i - i % 2) / static_cast<double>(d_model);
        const double angle = static_cast<double>(p) * std::pow(theta, -exponent);
        to[p * d_model + i] = static_cast<float>(i % 2 == 0 ? std::sin(angle) : std::cos(angle));
      }
    }
  });
}

std::vector<double> alibi_slopes(int64_t n_heads) {
  LAMINA_CHECK(n_heads > 0 && n_heads <= kMostHeads, "alibi_slopes: n_heads is ", n_heads,
               "; expected a positive number of heads, at most ", kMostHeads);
  const auto lower = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n_heads)));
  std::vector<double> slopes;
  for (int64_t h = 1; h <= lower; ++h) {
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(h) / static_cast<double>(lower)));
  }
  for (int64_t h = 1; static_cast<int64_t>(slopes.size()) < n_heads; h += 2) {
    slopes.push_back(std::exp2(-4.0 * static_cast<double>(h) / static_cast<double>(lower)));
  }
  return slopes;
}

Tensor alibi_slopes(int64_t n_heads, const Device& device) {
  const std::vector<double> slopes = alibi_slopes(n_heads);
  return host_table<float>({n_heads}, device, [&](float* to, const Threads& /*threads*/) {
    for (size_t h = 0; h < slopes.size(); ++h) to[h] = static_cast<float>(slopes[h]);
  });
}

int64_t t5_bucket(int64_t distance, const T5Buckets& options) {
  const int64_t least = options.bidirectional ? 4 : 2;
  LAMINA_CHECK(options.buckets >= least && options.buckets % least == 0, "t5_bucket: ", options.buckets,
               " buckets; expected a multiple of ", least);
  const int64_t buckets = options.bidirectional ? options.buckets / 2 : options.buckets;
  const int64_t exact = buckets / 2;
  LAMINA_CHECK(options.max_distance > exact, "t5_bucket: max_distance is ", options.max_distance,
               "; expected more than the ", exact, " exact distances");
  const int64_t ahead = options.bidirectional && distance > 0 ? buckets : 0;
  // Computed with negative numbers, because −INT64_MIN overflows.
  const int64_t minus_distance = distance > 0 ? (options.bidirectional ? -distance : 0) : distance;
  if (minus_distance > -exact) return ahead - minus_distance;
  const float ratio = -static_cast<float>(minus_distance) / static_cast<float>(exact);
  const auto span =
      static_cast<float>(std::log(static_cast<double>(options.max_distance) / static_cast<double>(exact)));
  const float steps = std::log(ratio) / span * static_cast<float>(buckets - exact);
  return ahead + (steps < static_cast<float>(buckets - exact) ? exact + static_cast<int64_t>(steps) : buckets - 1);
}

Tensor t5_bucket_table(int64_t length, const T5Buckets& options, const Device& device) {
  LAMINA_CHECK(length > 0 && length <= kMostPositions, "t5_bucket_table: length is ", length, "; expected from 1 to ",
               kMostPositions);
  return host_table<int64_t>({2 * length - 1}, device, [&](int64_t* to, const Threads& /*threads*/) {
    for (int64_t r = 1 - length; r < length; ++r) to[r + length - 1] = t5_bucket(r, options);
  });
}

}  // namespace lamina::ops
