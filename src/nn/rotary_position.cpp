#include "lamina/nn/rotary_position.h"

#include <algorithm>
#include <bit>

#include "lamina/nn/rope_scaling.h"
#include "lamina/nn/row_batch.h"
#include "lamina/ops/elementwise/concat.h"

namespace lamina::nn {
namespace {

/// Rounds a table size up, so that generation does not rebuild the tables in every step.
int64_t with_room(int64_t rows) {
  constexpr uint64_t kLeast = 64;
  return static_cast<int64_t>(std::bit_ceil(std::max(static_cast<uint64_t>(rows), kLeast)));
}

}  // namespace

RotaryPosition::RotaryPosition(const arch::Rope& rope)
    : rope_(rope), depends_on_length_(nn::depends_on_length(rope.scaling)) {}

bool RotaryPosition::frequencies_differ_by_row(const ForwardContext& pass) const {
  if (!depends_on_length_) return false;
  return pass.rows != nullptr ? pass.rows->host_counts.size() > 1 : pass.ragged() && pass.batch > 1;
}

const ops::RotaryTables& RotaryPosition::tables(int64_t rows, int64_t length, const Device& device) {
  const bool fits = tables_.cos.defined() && tables_.cos.device() == device && tables_.cos.dim(0) >= rows &&
                    (!depends_on_length_ || length == length_);
  if (fits) return tables_;
  const RopeFrequencies frequencies = rope_frequencies(rope_, length);
  tables_ =
      ops::rotary_tables(depends_on_length_ ? rows : with_room(rows), *rope_.rotary_dim,
                         {.frequencies = frequencies.angles, .attention_factor = frequencies.attention_factor}, device);
  length_ = length;
  return tables_;
}

ops::RotaryOptions RotaryPosition::options(const ForwardContext& pass) const {
  const bool split = rope_.pairing == arch::Pairing::half_split;
  return {.pairing = split ? ops::RotaryPairing::half_split : ops::RotaryPairing::interleaved,
          .rotary_dim = *rope_.rotary_dim,
          .offset = pass.positions.defined() ? 0 : pass.offset,
          .positions = pass.positions};
}

Tensor RotaryPosition::rotate(const Tensor& x, const ForwardContext& pass) {
  if (*rope_.rotary_dim == 0) return x;
  if (frequencies_differ_by_row(pass)) {
    std::vector<Tensor> rows;
    if (pass.rows != nullptr) {
      for (const RowRange& range : row_ranges(*pass.rows, [](int64_t row) { return row; })) {
        if (range.tokens == 0) continue;
        rows.push_back(rotate(x.slice(1, range.token, range.tokens), sequence_of(pass, range.first)));
      }
      return ops::concat(rows, 1);
    }
    for (int64_t row = 0; row < pass.batch; ++row) rows.push_back(rotate(x.slice(0, row, 1), row_of(pass, row)));
    return ops::concat(rows, 0);
  }
  const ops::RotaryTables& made = tables(pass.end(), pass.last_position() + 1, x.device());
  return ops::rotary(x, made.cos, made.sin, options(pass));
}

Tensor RotaryPosition::rotate_normed(const Tensor& x, const ops::RowNorm& norm, const ForwardContext& pass) {
  if (!rotates() || frequencies_differ_by_row(pass)) return rotate(ops::rms_norm(x, norm.weight, norm.options), pass);
  const ops::RotaryTables& made = tables(pass.end(), pass.last_position() + 1, x.device());
  return ops::norm_rotary(x, norm.weight, made.cos, made.sin, norm.options, options(pass));
}

ops::NormedHeads RotaryPosition::rotate_normed(const Tensor& qkv, int64_t n_heads, int64_t n_kv_heads,
                                               const ops::RowNorm& q_norm, const ops::RowNorm& k_norm,
                                               const ForwardContext& pass) {
  LAMINA_CHECK(!frequencies_differ_by_row(pass),
               "rotary: rows with different frequencies cannot be rotated together (internal error, please report it)");
  const ops::RotaryTables& made = tables(pass.end(), pass.last_position() + 1, qkv.device());
  return ops::norm_rotary_packed(qkv, n_heads, n_kv_heads, q_norm.weight, k_norm.weight, made.cos, made.sin,
                                 q_norm.options, options(pass));
}

Tensor RotaryPosition::rotate_packed(const Tensor& x, int64_t heads, const ForwardContext& pass) {
  if (*rope_.rotary_dim == 0) return x;
  LAMINA_CHECK(!frequencies_differ_by_row(pass),
               "rotary: rows with different frequencies cannot be rotated together (internal error, please report it)");
  const ops::RotaryTables& made = tables(pass.end(), pass.last_position() + 1, x.device());
  return ops::rotary_in_place(x, heads, made.cos, made.sin, options(pass));
}

ops::HeadRotation RotaryPosition::rotation(const ForwardContext& pass, const Device& device) {
  const ops::RotaryTables& made = tables(pass.end(), pass.last_position() + 1, device);
  return {made.cos, made.sin, options(pass)};
}

ops::StepRotation RotaryPosition::step_rotation(const ForwardContext& pass, const Device& device) {
  if (*rope_.rotary_dim == 0) return {};
  const ops::RotaryTables& made = tables(pass.end(), pass.last_position() + 1, device);
  return {.cos = made.cos,
          .sin = made.sin,
          .pairing = options(pass).pairing,
          .rotary_dim = *rope_.rotary_dim,
          .positions = pass.positions.defined() ? pass.positions.reshape({pass.positions.numel()}) : Tensor()};
}

}  // namespace lamina::nn
