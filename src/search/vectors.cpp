#include "lamina/search/vectors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lamina/base/error.h"

namespace lamina::search {
namespace {

constexpr int64_t kMaxDim = 65536;
constexpr float kLargestF16 = 65504;

/// Calls fn(i, value) for each value of a row, as f64.
template <class F>
void for_row(const VectorsView& vectors, int64_t row, const F& fn) {
  const std::byte* from = vectors.row(row);
  if (vectors.dtype == DType::f32) {
    const auto* values = reinterpret_cast<const float*>(from);
    for (int64_t i = 0; i < vectors.dim; ++i) fn(i, static_cast<double>(values[i]));
  } else if (vectors.dtype == DType::f16) {
    const auto* values = reinterpret_cast<const f16*>(from);
    for (int64_t i = 0; i < vectors.dim; ++i) fn(i, static_cast<double>(static_cast<float>(values[i])));
  } else {
    const auto* values = reinterpret_cast<const uint8_t*>(from);
    const auto scale = static_cast<double>(vectors.scales[row]);
    for (int64_t i = 0; i < vectors.dim; ++i) fn(i, scale * (static_cast<int>(values[i]) - 128));
  }
}

}  // namespace

std::string_view name_of(Metric metric) {
  switch (metric) {
    case Metric::inner_product: return "inner_product";
    case Metric::cosine: return "cosine";
    case Metric::l2: break;
  }
  return "l2";
}

std::optional<Metric> metric_from_name(std::string_view name) {
  for (const Metric metric : {Metric::inner_product, Metric::cosine, Metric::l2}) {
    if (name == name_of(metric)) return metric;
  }
  return {};
}

Vectors::Vectors(DType dtype, int64_t dim) : dtype_(dtype), dim_(dim) {
  LAMINA_CHECK(dtype == DType::f32 || dtype == DType::f16 || dtype == DType::u8, "vectors of type ", dtype,
               "; expected f32, f16 or u8");
  LAMINA_CHECK(dim >= 1 && dim <= kMaxDim, "vectors of ", dim, " dimensions; expected 1 to ", kMaxDim);
}

void Vectors::append(std::span<const float> rows) {
  const auto width = static_cast<size_t>(dim_);
  LAMINA_CHECK(width > 0 && rows.size() % width == 0, "vectors: ", rows.size(), " values for rows of ", dim_,
               "; give whole rows");
  for (size_t at = 0; at < rows.size(); at += width) {
    const std::span<const float> row = rows.subspan(at, width);
    float largest = 0;
    for (const float value : row) {
      LAMINA_CHECK(std::isfinite(value), "vectors: row ", count(), " has the value ", value,
                   "; expected finite numbers. Check the model that made it");
      largest = std::max(largest, std::abs(value));
    }
    const size_t begin = bytes_.size();
    bytes_.resize(begin + width * size_of(dtype_));
    if (dtype_ == DType::f32) {
      std::memcpy(&bytes_[begin], row.data(), width * sizeof(float));
    } else if (dtype_ == DType::f16) {
      LAMINA_CHECK(largest <= kLargestF16, "vectors: row ", count(), " has the magnitude ", largest,
                   ", f16 ends at 65504; store f32 or u8");
      auto* to = reinterpret_cast<f16*>(&bytes_[begin]);
      for (size_t i = 0; i < width; ++i) to[i] = f16(row[i]);
    } else {
      const float scale = largest / 127;
      const float inverse = scale > 0 ? 1 / scale : 0;
      scales_.push_back(scale);
      for (size_t i = 0; i < width; ++i) {
        const long q = std::isfinite(inverse) ? std::clamp(std::lround(row[i] * inverse), -127L, 127L) : 0;
        bytes_[begin + i] = static_cast<std::byte>(q + 128);
      }
    }
    squared_norms_.push_back(0);
    const VectorsView all = view();
    double sum = 0;
    for_row(all, count() - 1, [&](int64_t, double value) { sum += value * value; });
    squared_norms_.back() = static_cast<float>(sum);
  }
}

void Vectors::append_row(const VectorsView& other, int64_t row) {
  LAMINA_CHECK(other.dtype == dtype_ && other.dim == dim_, "vectors: a row of ", other.dim, " ", other.dtype,
               " for rows of ", dim_, " ", dtype_);
  const std::byte* from = other.row(row);
  bytes_.insert(bytes_.end(), from, from + static_cast<size_t>(dim_) * size_of(dtype_));
  if (dtype_ == DType::u8) scales_.push_back(other.scales[row]);
  squared_norms_.push_back(other.squared_norms[row]);
}

VectorsView Vectors::view() const {
  return {bytes_.data(), dtype_, count(), dim_, dtype_ == DType::u8 ? scales_.data() : nullptr, squared_norms_.data()};
}

void normalize_rows(std::span<float> rows, int64_t dim) {
  const auto width = static_cast<size_t>(dim);
  for (size_t at = 0; at + width <= rows.size(); at += width) {
    double sum = 0;
    for (size_t i = 0; i < width; ++i) sum += static_cast<double>(rows[at + i]) * rows[at + i];
    if (!(sum > 0)) continue;
    const double inverse = 1 / std::sqrt(sum);
    for (size_t i = 0; i < width; ++i) rows[at + i] = static_cast<float>(rows[at + i] * inverse);
  }
}

double exact_score(const VectorsView& vectors, Metric metric, std::span<const float> query, int64_t row) {
  double sum = 0;
  if (metric == Metric::l2) {
    for_row(vectors, row, [&](int64_t i, double value) {
      const double difference = query[static_cast<size_t>(i)] - value;
      sum += difference * difference;
    });
    return -sum;
  }
  double squares = 0;
  double query_squares = 0;
  for_row(vectors, row, [&](int64_t i, double value) {
    const double q = query[static_cast<size_t>(i)];
    sum += q * value;
    squares += value * value;
    query_squares += q * q;
  });
  if (metric == Metric::inner_product) return sum;
  const double lengths = std::sqrt(squares) * std::sqrt(query_squares);
  return lengths > 0 ? sum / lengths : 0;
}

void read_row(const VectorsView& vectors, int64_t row, std::span<float> to) {
  for_row(vectors, row, [&](int64_t i, double value) { to[static_cast<size_t>(i)] = static_cast<float>(value); });
}

}  // namespace lamina::search
