#include "lamina/nn/mixers/relative_attention.h"

#include <algorithm>
#include <bit>

#include "lamina/nn/mixers/attention.h"
#include "lamina/nn/mixers/attention_weights.h"
#include "lamina/nn/mixers/head_norm.h"
#include "lamina/nn/mixers/key_value_cache.h"
#include "lamina/nn/position_tables.h"
#include "lamina/nn/projection.h"
#include "lamina/nn/row_batch.h"
#include "lamina/nn/weight_table.h"
#include "lamina/ops/attention/paged/paged_attention.h"
#include "lamina/ops/elementwise/clamp.h"
#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/embedding/embedding.h"
#include "lamina/ops/linear/matmul.h"
#include "lamina/ops/position/rotary.h"
#include "lamina/ops/position/tables.h"

namespace lamina::nn {
namespace {

class RelativeAttention final : public Mixer {
 public:
  RelativeAttention(int64_t d_model, const arch::Attention& a, const ParameterFactory& make, PositionTables& positions);

  Tensor forward(const Tensor& x, ForwardContext& pass, LayerCache* cache) override;
  std::unique_ptr<LayerCache> make_cache(int64_t batch, int64_t capacity, DType dtype,
                                         const Device& device) const override;
  CacheLayout cache_layout() const override;

 private:
  /// Paged attention for the rows of a ragged step (pass.rows). Cached keys contain ψ of their absolute position.
  Tensor attend_paged(const Tensor& q, const Tensor& k, const Tensor& v, ForwardContext& pass);
  /// Attention of q to all of k; the last keys belong to the queries. Positions are indices into `k`, because only
  /// distances matter.
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, ForwardContext& pass);
  Tensor attend_cached(const Tensor& q, const Tensor& k, const Tensor& v, ForwardContext& pass, KeyValueCache& cache);
  /// attend() with the cached memory of rows [row, row + count), all at `offset`, prepended to k and v.
  Tensor attend_memory(const Tensor& q, const Tensor& k, const Tensor& v, int64_t row, int64_t offset,
                       ForwardContext& pass, const KeyValueCache& cache);
  /// turn_i(rᵀ(q + v)) (see relative_attention.h): [batch, seq, n_heads, d_model]. The queries are at `positions` [seq]
  /// or, if that is undefined, at consecutive positions from `offset` on.
  Tensor turned(const Tensor& q, int64_t offset, const Tensor& positions = {}) const;
  /// ψ of the first `count` positions for every row and KV head: [batch, count, n_kv_heads, d_model].
  Tensor waves(int64_t batch, int64_t count, DType dtype) const;
  void make_tables(int64_t count, const Device& device);
  const Tensor& content_bias() const { return u_.defined() ? u_ : positions_.u(); }
  const Tensor& position_bias() const { return v_.defined() ? v_ : positions_.v(); }

  arch::Attention spec_;
  int64_t d_model_;
  int64_t memory_;
  PositionTables& positions_;
  PackedLinear qkv_;
  HeadNorm q_norm_;
  HeadNorm k_norm_;
  WeightTable r_;
  Tensor u_;  ///< u_ and v_ are undefined if layers share them
  Tensor v_;
  Linear o_;
  ops::RotaryTables tables_;
  Tensor waves_;  ///< ψ: [rows of the tables, d_model] f32, (−sin, cos)
};

std::vector<ProjectionPart> inputs_of(const arch::Attention& a) {
  return {{"q", a.n_heads * *a.head_dim, a.bias.q},
          {"k", *a.n_kv_heads * *a.head_dim, a.bias.k},
          {"v", *a.n_kv_heads * *a.v_head_dim, a.bias.v}};
}

RelativeAttention::RelativeAttention(int64_t d_model, const arch::Attention& a, const ParameterFactory& make,
                                     PositionTables& positions)
    : spec_(a),
      d_model_(d_model),
      memory_(*std::get<arch::TransformerXl>(*a.position).memory),
      positions_(positions),
      qkv_("qkv", inputs_of(a), d_model, make),
      q_norm_(a.qk_norm, a.n_heads, *a.head_dim, make.at("q_norm")),
      k_norm_(a.qk_norm, *a.n_kv_heads, *a.head_dim, make.at("k_norm")),
      r_({a.n_heads * *a.head_dim, d_model}, make.at("r")),
      o_(d_model, a.n_heads * *a.v_head_dim, a.bias.o, make.at("o"), Linear::Ends::in_residual) {
  LAMINA_CHECK(d_model % 2 == 0, "model: position 'transformer_xl' needs pairs of sines and cosines, d_model is ",
               d_model, "; use an even one");
  add_child("", qkv_);
  if (q_norm_.layer) add_child("q_norm", *q_norm_.layer);
  if (k_norm_.layer) add_child("k_norm", *k_norm_.layer);
  add_child("r", r_);
  if (!std::get<arch::TransformerXl>(*a.position).shared_bias) {
    u_ = make.normal("u", {a.n_heads, *a.head_dim});
    v_ = make.normal("v_bias", {a.n_heads, *a.head_dim});
    add_parameter("u", u_);
    add_parameter("v_bias", v_);
  }
  add_child("o", o_);
}

void RelativeAttention::make_tables(int64_t count, const Device& device) {
  if (waves_.defined() && waves_.device() == device && waves_.dim(0) >= count) return;
  constexpr uint64_t kLeast = 64;  // minimum; sizes are powers of two, so that rebuilds are rare
  const auto rows = static_cast<int64_t>(std::bit_ceil(std::max(static_cast<uint64_t>(count), kLeast)));
  tables_ = ops::rotary_tables(rows, d_model_, {}, device);
  waves_ = ops::concat({ops::scale(tables_.sin, -1.0), tables_.cos}, -1);
}

Tensor RelativeAttention::turned(const Tensor& q, int64_t offset, const Tensor& positions) const {
  const int64_t rows = q.dim(0) * q.dim(1);
  const Tensor biased = ops::add(q, position_bias().to(q.dtype()));
  const Tensor by_head = biased.reshape({rows, spec_.n_heads, *spec_.head_dim}).transpose(0, 1);
  const Tensor weight = r_.weight().to(q.dtype()).reshape({spec_.n_heads, *spec_.head_dim, d_model_});
  const Tensor g = ops::matmul(by_head, weight).transpose(0, 1);  // [batch · seq, n_heads, d_model]
  return ops::rotary(g.reshape({q.dim(0), q.dim(1), spec_.n_heads, d_model_}), tables_.cos, tables_.sin,
                     {.pairing = ops::RotaryPairing::half_split, .offset = offset, .positions = positions});
}

Tensor RelativeAttention::waves(int64_t batch, int64_t count, DType dtype) const {
  const Tensor one = waves_.slice(0, 0, count).to(dtype).reshape({1, count, 1, d_model_});
  return ops::add(one, Tensor::zeros({batch, 1, *spec_.n_kv_heads, 1}, dtype, one.device()));
}

Tensor RelativeAttention::attend(const Tensor& q, const Tensor& k, const Tensor& v, ForwardContext& pass) {
  const int64_t keys = k.dim(1);
  make_tables(keys, q.device());
  ops::AttentionExtras extras;
  extras.document_starts = pass.document_starts;
  const Tensor content = ops::add(q, content_bias().to(q.dtype()));
  const Tensor queries = ops::concat({content, turned(q, keys - q.dim(1))}, -1);
  const Tensor all_keys = ops::concat({k, waves(k.dim(0), keys, k.dtype())}, -1);
  const ops::AttentionOptions options = attention_options(*spec_.scale, spec_.soft_cap, spec_.pattern, pass);
  offer_attention(queries, all_keys, options, extras, pass);
  return ops::attention(queries, all_keys, v, options, extras);
}

/// Every token attends to at most `memory_` tokens before it, no matter how the sequence was divided into steps.
Tensor RelativeAttention::attend_paged(const Tensor& q, const Tensor& k, const Tensor& v, ForwardContext& pass) {
  make_tables(pass.end(), q.device());
  const auto flat = [](const Tensor& x) { return x.reshape({x.dim(1), x.dim(2), x.dim(3)}); };
  const Tensor content = ops::add(q, content_bias().to(q.dtype()));
  const Tensor queries = flat(ops::concat({content, turned(q, 0, pass.positions)}, -1));
  const Tensor own = ops::embedding(waves_, pass.positions).to(k.dtype()).reshape({1, pass.seq, 1, d_model_});
  const Tensor every_head = Tensor::zeros({1, 1, *spec_.n_kv_heads, 1}, k.dtype(), k.device());
  const Tensor keys = flat(ops::concat({k, ops::add(own, every_head)}, -1));
  const ops::PagedRows& tables = pass.rows->groups[static_cast<size_t>(pass.memory->group)];
  ops::paged_store(pass.memory->pages, tables, keys, flat(v));
  ops::AttentionOptions options = attention_options(*spec_.scale, spec_.soft_cap, spec_.pattern, pass);
  options.pattern = {.kind = ops::AttentionPattern::Kind::window, .window = memory_ + 1};
  const Tensor y = ops::paged_attention(queries, keys, flat(v), pass.memory->pages, tables, *spec_.v_head_dim, options);
  return y.reshape({1, y.dim(0), y.dim(1), y.dim(2)});
}

CacheLayout RelativeAttention::cache_layout() const {
  CacheLayout layout;
  layout.n_kv_heads = *spec_.n_kv_heads;
  layout.d_qk = *spec_.head_dim + d_model_;
  layout.d_v = *spec_.v_head_dim;
  layout.window = memory_ + 1;
  layout.allows_8_bits = false;
  return layout;
}

Tensor RelativeAttention::attend_memory(const Tensor& q, const Tensor& k, const Tensor& v, int64_t row, int64_t offset,
                                        ForwardContext& pass, const KeyValueCache& cache) {
  const int64_t kept = std::min(offset, memory_);
  if (kept == 0) return attend(q, k, v, pass);
  const auto with_memory = [&](const CachedTokens& stored, const Tensor& fresh) {
    return ops::concat({stored.rows(row, fresh.dim(0)).read(offset - kept, kept, fresh.dtype()), fresh}, 1);
  };
  return attend(q, with_memory(cache.k(), k), with_memory(cache.v(), v), pass);
}

Tensor RelativeAttention::attend_cached(const Tensor& q, const Tensor& k, const Tensor& v, ForwardContext& pass,
                                        KeyValueCache& cache) {
  cache.write(k, v, pass);
  if (pass.offsets.empty()) return attend_memory(q, k, v, 0, pass.offset, pass, cache);
  std::vector<Tensor> rows;
  for (int64_t row = 0; row < pass.batch; ++row) {
    const auto one = [row](const Tensor& tensor) { return tensor.slice(0, row, 1); };
    rows.push_back(attend_memory(one(q), one(k), one(v), row, pass.offset_of(row), pass, cache));
  }
  return ops::concat(rows, 0);
}

Tensor RelativeAttention::forward(const Tensor& x, ForwardContext& pass, LayerCache* cache) {
  std::vector<Tensor> parts = qkv_.forward_parts(x);
  if (spec_.clip_qkv) {
    for (Tensor& part : parts) part = ops::clamp(part, -*spec_.clip_qkv, *spec_.clip_qkv);
  }
  const int64_t kv_heads = *spec_.n_kv_heads;
  const Tensor q = q_norm_.split(parts[0], spec_.n_heads);
  const Tensor k = k_norm_.split(parts[1], kv_heads);
  const Tensor v = parts[2].reshape({x.dim(0), x.dim(1), kv_heads, *spec_.v_head_dim});
  Tensor y;
  if (pass.rows != nullptr) {
    y = attend_paged(q, k, v, pass);
  } else {
    y = cache == nullptr ? attend(q, k, v, pass) : attend_cached(q, k, v, pass, dynamic_cast<KeyValueCache&>(*cache));
  }
  return o_.forward(y.reshape({x.dim(0), x.dim(1), spec_.n_heads * *spec_.v_head_dim}));
}

std::unique_ptr<LayerCache> RelativeAttention::make_cache(int64_t batch, int64_t capacity, DType dtype,
                                                          const Device& device) const {
  const int64_t heads = *spec_.n_kv_heads;
  return KeyValueCache::make({batch, heads, capacity, *spec_.head_dim}, {batch, heads, capacity, *spec_.v_head_dim}, 0,
                             dtype, device);
}

}  // namespace

std::unique_ptr<Mixer> make_relative_attention(const arch::ArchSpec& spec, const arch::Attention& attention,
                                               const ParameterFactory& make, PositionTables& positions) {
  return std::make_unique<RelativeAttention>(spec.d_model, attention, make, positions);
}

}  // namespace lamina::nn
