#include "lamina/nn/mixers/mla.h"

#include <optional>

#include "lamina/nn/mixers/attention.h"
#include "lamina/nn/mixers/attention_weights.h"
#include "lamina/nn/mixers/latent_cache.h"
#include "lamina/nn/norm.h"
#include "lamina/nn/position_tables.h"
#include "lamina/nn/projection.h"
#include "lamina/nn/row_batch.h"
#include "lamina/ops/attention/attention_decode.h"
#include "lamina/ops/attention/paged/paged_attention.h"
#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/elementwise/split.h"
#include "lamina/ops/linear/matmul.h"
#include "lamina/ops/parallel/context_attention.h"

namespace lamina::nn {
namespace {

class MlaMixer final : public Mixer {
 public:
  MlaMixer(int64_t d_model, const arch::Mla& spec, const ParameterFactory& make, PositionTables& positions);

  Tensor forward(const Tensor& x, ForwardContext& pass, LayerCache* cache) override;
  std::unique_ptr<LayerCache> make_cache(int64_t batch, int64_t capacity, DType dtype,
                                         const Device& device) const override;
  CacheLayout cache_layout() const override;

 private:
  struct Queries {
    Tensor nope;  ///< [batch, seq, n_heads, qk_nope]
    Tensor rope;  ///< [batch, seq, n_heads, qk_rope], rotated
    Queries row(int64_t i) const { return {nope.slice(0, i, 1), rope.slice(0, i, 1)}; }
    Queries tokens(int64_t begin, int64_t count) const {
      return {nope.slice(1, begin, count), rope.slice(1, begin, count)};
    }
  };
  struct Latents {
    Tensor latent;  ///< [batch, n, 1, kv_lora_rank], normalized
    Tensor key;     ///< [batch, n, 1, qk_rope], rotated
    Latents tokens(int64_t begin, int64_t count) const {
      return {latent.slice(1, begin, count), key.slice(1, begin, count)};
    }
  };

  Queries queries(const Tensor& projected, const ForwardContext& pass);
  Latents latents(const Tensor& projected, const ForwardContext& pass);
  Tensor rotated(const Tensor& x, const ForwardContext& pass) {
    return rotary_ == nullptr ? x : rotary_->rotate(x, pass);
  }

  /// The attend functions return [batch, seq, n_heads, v_head_dim].
  Tensor attend_expanded(const Queries& q, const Latents& kept, ForwardContext& pass) const;
  Tensor attend_cached(const Queries& q, const Latents& fresh, ForwardContext& pass, LatentCache& cache);
  /// Attention of a few queries to the first `lengths` [batch] cached latents, without expanding them (weight
  /// absorption).
  Tensor attend_absorbed(const Queries& q, const LatentCache& cache, const Tensor& lengths, ForwardContext& pass) const;
  /// Attention to the cache for queries of rows [row, row + count), which all have the same offset.
  Tensor attend_rows(const Queries& q, const ForwardContext& pass, const LatentCache& cache, int64_t row,
                     int64_t count);

  /// Paged attention for the rows of a ragged step (pass.rows). Stores the new latents first.
  Tensor attend_paged(const Queries& q, const Latents& fresh, ForwardContext& pass);
  /// Attention of rows without cached tokens, packed into one call.
  Tensor attend_fresh(const Queries& q, const Latents& fresh, const RowBatch& rows, const RowRange& range) const;

  /// Queries projected into the latent space: [batch, seq, n_heads, kv_lora_rank + qk_rope].
  Tensor absorbed(const Queries& q) const;
  /// Weighted sums of latents [batch, seq, n_heads, kv_lora_rank] → values per head.
  Tensor values_of(const Tensor& sums) const;
  /// The weight of kv_up per head: [n_heads, qk_nope + v_head_dim, kv_lora_rank].
  Tensor head_weights(DType dtype) const;
  /// Whether weight absorption needs fewer multiply-adds than expanding every latent. Absorption costs more per (query,
  /// key) pair, because latents are wider than heads; expansion has a fixed cost per key.
  bool absorbs(int64_t seq) const {
    return seq * (2 * spec_.kv_lora_rank - spec_.qk_nope - spec_.v_head_dim) <=
           spec_.kv_lora_rank * (spec_.qk_nope + spec_.v_head_dim);
  }

  ops::AttentionOptions options(ForwardContext& pass) const {
    return attention_options(*spec_.scale, spec_.soft_cap, spec_.pattern, pass);
  }
  static ops::AttentionExtras extras(const ForwardContext& pass) {
    ops::AttentionExtras extras;
    extras.document_starts = pass.document_starts;
    return extras;
  }

  arch::Mla spec_;
  RotaryPosition* rotary_ = nullptr;
  PackedLinear down_;  ///< q_down or q, packed with kv_down
  std::optional<NormLayer> q_norm_;
  std::optional<Linear> q_up_;
  NormLayer kv_norm_;
  Linear kv_up_;
  Linear o_;
};

std::vector<ProjectionPart> inputs_of(const arch::Mla& spec) {
  const ProjectionPart kv{"kv_down", spec.kv_lora_rank + spec.qk_rope, spec.bias};
  if (spec.q_lora_rank) return {{"q_down", *spec.q_lora_rank, spec.bias}, kv};
  return {{"q", spec.n_heads * (spec.qk_nope + spec.qk_rope), false}, kv};
}

MlaMixer::MlaMixer(int64_t d_model, const arch::Mla& spec, const ParameterFactory& make, PositionTables& positions)
    : spec_(spec),
      down_("down", inputs_of(spec), d_model, make),
      kv_norm_(arch::RmsNorm{.eps = spec.norm_eps}, spec.kv_lora_rank, make.at("kv_norm")),
      kv_up_(spec.n_heads * (spec.qk_nope + spec.v_head_dim), spec.kv_lora_rank, false, make.at("kv_up")),
      o_(d_model, spec.n_heads * spec.v_head_dim, spec.bias, make.at("o"), Linear::Ends::in_residual) {
  if (const auto* rope = std::get_if<arch::Rope>(&*spec.position)) rotary_ = &positions.rotary(*rope);
  add_child("", down_);
  if (spec.q_lora_rank) {
    q_norm_.emplace(arch::RmsNorm{.eps = spec.norm_eps}, *spec.q_lora_rank, make.at("q_norm"));
    q_up_.emplace(spec.n_heads * (spec.qk_nope + spec.qk_rope), *spec.q_lora_rank, false, make.at("q_up"));
    add_child("q_norm", *q_norm_);
    add_child("q_up", *q_up_);
  }
  add_child("kv_norm", kv_norm_);
  add_child("kv_up", kv_up_);
  kv_up_.keep_weight();  // stays unquantized: weight absorption multiplies its heads into queries and values
  add_child("o", o_);
}

MlaMixer::Queries MlaMixer::queries(const Tensor& projected, const ForwardContext& pass) {
  const Tensor q = q_up_ ? q_up_->forward(q_norm_->forward(projected)) : projected;
  const Shape heads{q.dim(0), q.dim(1), spec_.n_heads, spec_.qk_nope + spec_.qk_rope};
  const std::vector<Tensor> parts = ops::split(q.reshape(heads), {spec_.qk_nope, spec_.qk_rope}, -1);
  return {parts[0], rotated(parts[1], pass)};
}

MlaMixer::Latents MlaMixer::latents(const Tensor& projected, const ForwardContext& pass) {
  const int64_t batch = projected.dim(0);
  const int64_t seq = projected.dim(1);
  const std::vector<Tensor> parts = ops::split(projected, {spec_.kv_lora_rank, spec_.qk_rope}, -1);
  return {kv_norm_.forward(parts[0]).reshape({batch, seq, 1, spec_.kv_lora_rank}),
          rotated(parts[1].reshape({batch, seq, 1, spec_.qk_rope}), pass)};
}

Tensor MlaMixer::forward(const Tensor& x, ForwardContext& pass, LayerCache* cache) {
  const std::vector<Tensor> parts = down_.forward_parts(x);
  const Queries q = queries(parts[0], pass);
  const Latents fresh = latents(parts[1], pass);
  Tensor y;
  if (pass.rows != nullptr) {
    y = attend_paged(q, fresh, pass);
  } else {
    y = cache == nullptr ? attend_expanded(q, fresh, pass)
                         : attend_cached(q, fresh, pass, dynamic_cast<LatentCache&>(*cache));
  }
  return o_.forward(y.reshape({x.dim(0), x.dim(1), spec_.n_heads * spec_.v_head_dim}));
}

Tensor MlaMixer::attend_expanded(const Queries& q, const Latents& kept, ForwardContext& pass) const {
  const Tensor up = kv_up_.forward(kept.latent);  // [batch, n, 1, n_heads · (qk_nope + v_head_dim)]
  const Shape heads{up.dim(0), up.dim(1), spec_.n_heads, spec_.qk_nope + spec_.v_head_dim};
  const std::vector<Tensor> kv = ops::split(up.reshape(heads), {spec_.qk_nope, spec_.v_head_dim}, -1);
  const Tensor every_head = Tensor::zeros({1, 1, spec_.n_heads, 1}, kept.key.dtype(), kept.key.device());
  const Tensor k = ops::concat({kv[0], ops::add(kept.key, every_head)}, -1);
  const Tensor queries = ops::concat({q.nope, q.rope}, -1);
  const ops::AttentionOptions settings = options(pass);
  offer_attention(queries, k, settings, extras(pass), pass);
  return ops::context_attention(queries, k, kv[1], pass.context, settings, extras(pass));
}

Tensor MlaMixer::attend_fresh(const Queries& q, const Latents& fresh, const RowBatch& rows,
                              const RowRange& range) const {
  std::vector<int64_t> starts{0};
  for (int64_t row = range.first; row < range.first + range.count; ++row) {
    const int64_t count = rows.host_counts[static_cast<size_t>(row)];
    if (count > 0) starts.push_back(starts.back() + count);
  }
  ForwardContext alone;
  alone.batch = 1;
  alone.seq = range.tokens;
  if (starts.size() > 2) {
    alone.document_starts = Tensor::from(starts, {static_cast<int64_t>(starts.size())}, q.nope.device());
  }
  return attend_expanded(q.tokens(range.token, range.tokens), fresh.tokens(range.token, range.tokens), alone);
}

/// Rows without cached tokens expand their own latents. All others use weight absorption on the cached latents.
Tensor MlaMixer::attend_paged(const Queries& q, const Latents& fresh, ForwardContext& pass) {
  const int64_t width = spec_.kv_lora_rank + spec_.qk_rope;
  const Tensor stored = ops::concat({fresh.latent, fresh.key}, -1).reshape({pass.seq, 1, width});
  const ops::PagedRows& tables = pass.rows->groups[static_cast<size_t>(pass.memory->group)];
  ops::paged_store(pass.memory->pages, tables, stored, {});
  const auto expands = [&](int64_t row) {
    const auto i = static_cast<size_t>(row);
    return pass.rows->host_offsets[i] == 0 && !absorbs(pass.rows->host_counts[i]);
  };
  std::vector<Tensor> parts;
  for (const RowRange& range : row_ranges(*pass.rows, expands)) {
    if (range.tokens == 0) continue;
    if (!pass.rows->host_counts.empty() && expands(range.first)) {
      parts.push_back(attend_fresh(q, fresh, *pass.rows, range));
      continue;
    }
    const Tensor queries = absorbed(q.tokens(range.token, range.tokens));
    const Tensor sums = ops::paged_attention(queries.reshape({range.tokens, spec_.n_heads, width}),
                                             stored.slice(0, range.token, range.tokens), {}, pass.memory->pages,
                                             slice_rows(tables, range), spec_.kv_lora_rank, options(pass));
    parts.push_back(values_of(sums.reshape({1, range.tokens, spec_.n_heads, spec_.kv_lora_rank})));
  }
  return ops::concat(parts, 1);
}

CacheLayout MlaMixer::cache_layout() const {
  const auto* window = std::get_if<arch::WindowPattern>(&spec_.pattern);
  CacheLayout layout;
  layout.n_kv_heads = 1;
  layout.d_qk = spec_.kv_lora_rank + spec_.qk_rope;
  layout.window = window == nullptr ? 0 : window->size;
  return layout;
}

Tensor MlaMixer::attend_cached(const Queries& q, const Latents& fresh, ForwardContext& pass, LatentCache& cache) {
  const Tensor joined = ops::concat({fresh.latent, fresh.key}, -1);
  cache.write(joined, pass);
  if (pass.end() == pass.seq) return attend_expanded(q, fresh, pass);  // no row has cached tokens
  if (pass.seq <= kDecodeQueries && absorbs(pass.seq)) {
    std::vector<int64_t> lengths;
    for (int64_t row = 0; row < pass.batch; ++row) lengths.push_back(pass.offset_of(row) + pass.seq);
    return attend_absorbed(q, cache, Tensor::from(lengths, {pass.batch}, q.nope.device()), pass);
  }
  if (pass.offsets.empty()) return attend_rows(q, pass, cache, 0, pass.batch);
  std::vector<Tensor> rows;
  for (int64_t row = 0; row < pass.batch; ++row) {
    rows.push_back(attend_rows(q.row(row), row_of(pass, row), cache, row, 1));
  }
  return ops::concat(rows, 0);
}

/// Sums the rotated key part along with the latents and cuts it off afterwards: cheaper than copying the latents
/// without it.
Tensor MlaMixer::attend_absorbed(const Queries& q, const LatentCache& cache, const Tensor& lengths,
                                 ForwardContext& pass) const {
  const CachedTokens& latents = cache.latents();
  const Tensor sums = ops::attention_decode(absorbed(q), latents.numbers, latents.numbers, lengths, options(pass), {},
                                            {latents.scales, latents.scales});
  return values_of(sums.slice(-1, 0, spec_.kv_lora_rank));
}

Tensor MlaMixer::attend_rows(const Queries& q, const ForwardContext& pass_in, const LatentCache& cache, int64_t row,
                             int64_t count) {
  ForwardContext pass = pass_in;
  const Tensor all = cache.latents().rows(row, count).read(0, pass.end(), q.nope.dtype());
  const Tensor latent = all.slice(-1, 0, spec_.kv_lora_rank);
  if (absorbs(pass.seq)) return values_of(ops::attention(absorbed(q), all, latent, options(pass), extras(pass)));
  return attend_expanded(q, {latent, all.slice(-1, spec_.kv_lora_rank, spec_.qk_rope)}, pass);
}

Tensor MlaMixer::head_weights(DType dtype) const {
  return kv_up_.weight().to(dtype).reshape({spec_.n_heads, spec_.qk_nope + spec_.v_head_dim, spec_.kv_lora_rank});
}

// Both products use all rows of a head of kv_up, and multiply the unused half by zeros or drop it. Slicing the weight
// instead would copy it in every step.
Tensor MlaMixer::absorbed(const Queries& q) const {
  const int64_t batch = q.nope.dim(0);
  const int64_t seq = q.nope.dim(1);
  const Tensor zeros = Tensor::zeros({batch, seq, spec_.n_heads, spec_.v_head_dim}, q.nope.dtype(), q.nope.device());
  const Tensor padded = ops::concat({q.nope, zeros}, -1);
  const Tensor by_head = padded.reshape({batch * seq, spec_.n_heads, padded.dim(3)}).transpose(0, 1);
  const Tensor product = ops::matmul(by_head, head_weights(q.nope.dtype()));  // [n_heads, batch · seq, kv_lora_rank]
  return ops::concat({product.transpose(0, 1).reshape({batch, seq, spec_.n_heads, spec_.kv_lora_rank}), q.rope}, -1);
}

Tensor MlaMixer::values_of(const Tensor& sums) const {
  const int64_t batch = sums.dim(0);
  const int64_t seq = sums.dim(1);
  const Tensor by_head = sums.reshape({batch * seq, spec_.n_heads, spec_.kv_lora_rank}).transpose(0, 1);
  const Tensor up = ops::matmul(by_head, head_weights(sums.dtype()), {.transpose_b = true});
  return up.slice(-1, spec_.qk_nope, spec_.v_head_dim)
      .transpose(0, 1)
      .reshape({batch, seq, spec_.n_heads, spec_.v_head_dim});
}

std::unique_ptr<LayerCache> MlaMixer::make_cache(int64_t batch, int64_t capacity, DType dtype,
                                                 const Device& device) const {
  return std::make_unique<LatentCache>(
      CachedTokens::make({batch, 1, capacity, spec_.kv_lora_rank + spec_.qk_rope}, dtype, device));
}

}  // namespace

std::unique_ptr<Mixer> make_mla(int64_t d_model, const arch::Mla& spec, const ParameterFactory& make,
                                PositionTables& positions) {
  return std::make_unique<MlaMixer>(d_model, spec, make, positions);
}

}  // namespace lamina::nn
