#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/base/dtype.h"

namespace lamina::search {

/// How vectors are compared. Nearer vectors have larger scores: q·x, cos(q, x), or −|q − x|².
enum class Metric : uint8_t { inner_product, cosine, l2 };

std::string_view name_of(Metric metric);                        ///< "inner_product", "cosine", "l2"
std::optional<Metric> metric_from_name(std::string_view name);  ///< empty if the name is unknown

/// A search result: the number of a row, and its score.
struct Neighbor {
  int64_t row = 0;                                   ///< number of the row
  double score = 0;                                  ///< larger is nearer
  bool operator==(const Neighbor&) const = default;  ///< same row and score
};

/// Order of results: higher scores first; among equal scores, the smaller row first.
inline bool is_better(const Neighbor& a, const Neighbor& b) {
  return a.score > b.score || (a.score == b.score && a.row < b.row);
}

/// Rows of equal length in memory that the view does not own, for example a mapped file.
struct VectorsView {
  const void* data = nullptr;  ///< [count, dim], contiguous
  DType dtype = DType::f32;    ///< f32, f16, or u8 (see scales)
  int64_t count = 0;           ///< number of rows
  int64_t dim = 0;             ///< number of values per row
  /// [count], only for u8 rows: byte b of a row stands for scales[row] · (b − 128).
  const float* scales = nullptr;
  /// [count]: Σ x² of each row as stored, in f32. Needed for cosine and l2.
  const float* squared_norms = nullptr;

  /// Address of a row.
  const std::byte* row(int64_t index) const {
    return static_cast<const std::byte*>(data) + static_cast<size_t>(index * dim) * size_of(dtype);
  }
};

/// Rows that own their memory, with all the data that a VectorsView needs.
class Vectors {
 public:
  Vectors() = default;
  /// `dtype` must be f32, f16 or u8 and `dim` in [1, 65536]; otherwise throws an Error.
  Vectors(DType dtype, int64_t dim);

  /// Appends rows [n, dim]. Throws an Error if a value is not finite or exceeds the range of f16 (65504).
  void append(std::span<const float> rows);
  /// Appends row `row` of `other` unchanged. Types and dims must be equal.
  void append_row(const VectorsView& other, int64_t row);
  int64_t count() const { return static_cast<int64_t>(squared_norms_.size()); }  ///< number of rows
  int64_t dim() const { return dim_; }                                           ///< number of values per row
  DType dtype() const { return dtype_; }                                         ///< storage type
  VectorsView view() const;                                                      ///< valid until the next append

 private:
  DType dtype_ = DType::f32;
  int64_t dim_ = 0;
  std::vector<std::byte> bytes_;
  std::vector<float> scales_;
  std::vector<float> squared_norms_;
};

/// Divides each row of `rows` [n, dim] by its Euclidean norm. Zero rows stay zero.
void normalize_rows(std::span<float> rows, int64_t dim);

/// The score of one row in f64, summed in the order of the dimensions. All searches rank by this definition.
double exact_score(const VectorsView& vectors, Metric metric, std::span<const float> query, int64_t row);

/// Reads row `row` as f32 values.
void read_row(const VectorsView& vectors, int64_t row, std::span<float> to);

}  // namespace lamina::search
