#include "lamina/nn/ntk_aware_rope.h"

#include <cmath>

#include "lamina/ops/position/tables.h"

namespace lamina::nn {

Tensor apply_rotary_pos_emb(const Tensor& x, const Tensor& cos, const Tensor& sin, ops::RotaryPairing pairing) {
  return ops::rotary(x, cos, sin, {.pairing = pairing});
}

NTKAwareRoPE::NTKAwareRoPE(int64_t head_dim, int64_t max_seq_len, const Device& device,
                           const NTKAwareRoPEOptions& options)
    : head_dim_(head_dim), max_seq_len_(max_seq_len), options_(options), ratio_(options.ratio) {
  LAMINA_CHECK(head_dim > 0 && head_dim % 2 == 0, "NTKAwareRoPE: head_dim is ", head_dim,
               "; expected a positive even number");
  LAMINA_CHECK(max_seq_len > 0 && options.ratio > 0, "NTKAwareRoPE: max_seq_len is ", max_seq_len, " and ratio ",
               options.ratio, "; expected positive numbers");
  LAMINA_CHECK(std::isfinite(options.base) && options.base > 0, "NTKAwareRoPE: base is ", options.base,
               "; expected a finite number above 0");
  auto [cos, sin] = make_tables(ratio_, device);
  cos_ = std::move(cos);
  sin_ = std::move(sin);
  add_buffer("cos", cos_, Persistence::non_persistent);
  add_buffer("sin", sin_, Persistence::non_persistent);
}

NTKAwareRoPE::Tables NTKAwareRoPE::make_tables(int64_t ratio, const Device& device) const {
  int64_t length = 0;
  LAMINA_CHECK(!__builtin_mul_overflow(max_seq_len_, ratio, &length), "NTKAwareRoPE: max_seq_len ", max_seq_len_,
               " times ratio ", ratio, " overflows; choose a smaller ratio");
  const auto d = static_cast<double>(head_dim_);
  // head_dim = 2 has one pair, whose frequency is 1 for every ratio.
  const double stretch = head_dim_ == 2 ? 1.0 : std::pow(static_cast<double>(ratio), d / (d - 2.0));
  const auto tables = ops::rotary_tables(length, head_dim_, {.theta = options_.base * stretch}, device);
  const auto widen = [&](const Tensor& per_pair) {
    const bool split = options_.pairing == ops::RotaryPairing::half_split;
    Tensor wide = Tensor::empty({length, 2, head_dim_ / 2}, DType::f32, device);
    if (!split) wide = Tensor::empty({length, head_dim_ / 2, 2}, DType::f32, device);
    for (int64_t side = 0; side < 2; ++side) {
      Tensor part = wide.slice(split ? 1 : 2, side, 1);
      part.copy_(per_pair.reshape(part.shape()));
    }
    return wide.reshape({length, head_dim_});
  };
  return {widen(tables.cos), widen(tables.sin)};
}

Tensor NTKAwareRoPE::forward(const Tensor& x, int64_t offset) {
  LAMINA_CHECK(x.defined() && x.rank() == 4 && x.dim(3) == head_dim_, "NTKAwareRoPE: x is ",
               x.defined() ? x.shape() : Shape(), "; expected [batch, seq, heads, ", head_dim_, "]");
  int64_t end = 0;
  LAMINA_CHECK(offset >= 0 && !__builtin_add_overflow(offset, x.dim(1), &end), "NTKAwareRoPE: the offset is ", offset,
               "; expected a position of at least 0");
  const ops::RotaryOptions options{.pairing = options_.pairing, .offset = offset};
  if (end <= cos_.dim(0)) return ops::rotary(x, cos_.to(x.device()), sin_.to(x.device()), options);
  const int64_t needed = end / max_seq_len_ + (end % max_seq_len_ != 0 ? 1 : 0);
  const int64_t ratio = needed + needed % 2;
  auto [cos, sin] = make_tables(ratio, cos_.device());
  if (options_.dynamic) {
    ratio_ = ratio;
    cos_ = cos;
    sin_ = sin;
  }
  return ops::rotary(x, cos.to(x.device()), sin.to(x.device()), options);
}

}  // namespace lamina::nn
