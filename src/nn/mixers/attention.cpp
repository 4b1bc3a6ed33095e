#include "lamina/nn/mixers/attention.h"

#include <algorithm>
#include <optional>

#include "lamina/autograd/tape.h"
#include "lamina/nn/mixers/alibi_slopes.h"
#include "lamina/nn/mixers/attention_weights.h"
#include "lamina/nn/mixers/global_attention.h"
#include "lamina/nn/mixers/head_norm.h"
#include "lamina/nn/mixers/key_value_cache.h"
#include "lamina/nn/mixers/published_bigbird.h"
#include "lamina/nn/mixers/query_temperature.h"
#include "lamina/nn/mixers/rounded_alibi.h"
#include "lamina/nn/position_tables.h"
#include "lamina/nn/projection.h"
#include "lamina/nn/row_batch.h"
#include "lamina/nn/weight_table.h"
#include "lamina/ops/attention/attention_decode.h"
#include "lamina/ops/attention/paged/paged_attention.h"
#include "lamina/ops/attention/paged/paged_step.h"
#include "lamina/ops/elementwise/clamp.h"
#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/elementwise/split.h"
#include "lamina/ops/parallel/context_attention.h"

namespace lamina::nn {
namespace {

class AttentionMixer final : public Mixer {
 public:
  AttentionMixer(const arch::ArchSpec& spec, const arch::Attention& a, const ParameterFactory& make,
                 PositionTables& positions);

  Tensor forward(const Tensor& x, ForwardContext& pass, LayerCache* cache) override;
  Tensor forward_normed(ResidualStream& stream, const NormLayer& norm, ForwardContext& pass,
                        LayerCache* cache) override;
  std::unique_ptr<LayerCache> make_cache(int64_t batch, int64_t capacity, DType dtype,
                                         const Device& device) const override;
  CacheLayout cache_layout() const override;

 private:
  struct Heads {
    Tensor q;  ///< [batch, seq, n_heads, head_dim]
    Tensor k;  ///< [batch, seq, n_kv_heads, head_dim]
    Tensor v;  ///< [batch, seq, n_kv_heads, v_head_dim]
  };
  /// Whether q, k and v can be used as views of the packed projection.
  bool keeps_qkv_packed(const ForwardContext& pass) const;
  Heads packed_heads(const Tensor& projected, const ForwardContext& pass);
  /// q, k and v of a packed projection with QK norm: q and k are written to new memory.
  Heads normed_heads(const Tensor& projected, const ForwardContext& pass);
  Heads separate_heads(std::vector<Tensor> parts, const ForwardContext& pass);
  /// Norm and RoPE of queries or keys: `part` of the projection → [batch, seq, heads, head_dim].
  Tensor normed_and_turned(const HeadNorm& norm, const Tensor& part, int64_t heads, const ForwardContext& pass);
  /// Attention of x [batch, seq, d_model] with global tokens, which have their own projections (GlobalAttention).
  Tensor attend_with_globals(const Tensor& x, ForwardContext& pass);
  /// Paged attention for the rows of a ragged step (pass.rows). Stores the new keys and values first.
  Tensor attend_paged(const Heads& heads, ForwardContext& pass);
  /// attend_paged() on a packed projection, if every row has one new token.
  Tensor attend_paged_step(const Tensor& projected, ForwardContext& pass);
  /// The whole sublayer, including norm and projections, if every row has one new token.
  Tensor paged_step_normed(ResidualStream& stream, const NormLayer& norm, ForwardContext& pass);
  const ops::PagedRows& page_tables(const ForwardContext& pass) const {
    return pass.rows->groups[static_cast<size_t>(pass.memory->group)];
  }
  /// Everything between the QKV projections and the output projection: returns [batch, seq, n_heads, v_head_dim].
  Tensor mix(Heads heads, ForwardContext& pass, LayerCache* cache);
  Tensor mix_packed(const Tensor& projected, ForwardContext& pass, LayerCache* cache);
  /// forward() for attention with an output gate.
  Tensor gated(const Tensor& x, ForwardContext& pass, LayerCache* cache);
  /// The output projection of y [batch, seq, n_heads, v_head_dim].
  Tensor merged(const Tensor& y) const;
  ops::AttentionOptions options(ForwardContext& pass) const;
  ops::AttentionExtras extras(const Tensor& q, const ForwardContext& pass);
  /// Attention on a packed projection without a cache, with RoPE fused.
  Tensor attend_rotated(const Tensor& projected, ForwardContext& pass);
  Tensor attend_cached(const Tensor& q, const Tensor& k, const Tensor& v, ForwardContext& pass, KeyValueCache& cache);
  Tensor attend_sliding(const Tensor& q, const Tensor& k, const Tensor& v, ForwardContext& pass, KeyValueCache& cache);
  ops::StepRotation step_rotation(const ForwardContext& pass, const Device& device);
  /// Attention of a few queries to the first `lengths` [batch] tokens of the cache.
  Tensor attend_stored(const Tensor& q, const Tensor& lengths, ForwardContext& pass, const KeyValueCache& cache);
  /// Attention to the cache for queries of rows [row, row + count), which all have the same offset.
  Tensor attend_rows(const Tensor& q, const ForwardContext& pass, KeyValueCache& cache, int64_t row, int64_t count);

  arch::Attention spec_;
  PositionTables& positions_;
  RotaryPosition* rotary_ = nullptr;
  PackedLinear qkv_;
  HeadNorm q_norm_;
  HeadNorm k_norm_;
  Tensor sinks_;
  std::optional<WeightTable> t5_;
  std::vector<float> slopes_;
  Tensor slopes_tensor_;  ///< cached on the device that used it last
  std::optional<RoundedAlibi> rounded_alibi_;
  std::optional<GlobalAttention> global_;
  std::optional<QueryTemperature> temperature_;
  std::optional<PublishedBigBird> bigbird_;
  std::optional<Linear> gate_;
  Linear o_;
};

AttentionMixer::AttentionMixer(const arch::ArchSpec& spec, const arch::Attention& a, const ParameterFactory& make,
                               PositionTables& positions)
    : spec_(a),
      positions_(positions),
      qkv_("qkv",
           {{"q", a.n_heads * *a.head_dim, a.bias.q},
            {"k", *a.n_kv_heads * *a.head_dim, a.bias.k},
            {"v", *a.n_kv_heads * *a.v_head_dim, a.bias.v}},
           spec.d_model, make),
      q_norm_(a.qk_norm, a.n_heads, *a.head_dim, make.at("q_norm")),
      k_norm_(a.qk_norm, *a.n_kv_heads, *a.head_dim, make.at("k_norm")),
      o_(spec.d_model, a.n_heads * *a.v_head_dim, a.bias.o, make.at("o"), Linear::Ends::in_residual) {
  add_child("", qkv_);
  if (q_norm_.layer) add_child("q_norm", *q_norm_.layer);
  if (k_norm_.layer) add_child("k_norm", *k_norm_.layer);
  if (a.sinks) {
    sinks_ = make.normal("sinks", {a.n_heads});
    add_parameter("sinks", sinks_);
  }
  if (const auto* rope = std::get_if<arch::Rope>(&*a.position)) rotary_ = &positions.rotary(*rope);
  if (const auto* alibi = std::get_if<arch::Alibi>(&*a.position)) {
    if (alibi->rounding == arch::BiasRounding::bf16) {
      const std::vector<float> slopes = alibi_slopes({.max_bias = alibi->max_bias}, a, make);
      rounded_alibi_.emplace(slopes, *a.n_kv_heads, alibi->slope_scale / *a.scale);
    } else {
      slopes_ = alibi_slopes(*alibi, a, make);
    }
  }
  if (const auto* t5 = std::get_if<arch::T5Bias>(&*a.position); t5 != nullptr && !t5->shared) {
    t5_.emplace(Shape{t5->buckets, a.n_heads}, make.at("position"));
    add_child("position", *t5_);
  }
  if (a.temperature) temperature_.emplace(*a.temperature);
  const auto* blocks = std::get_if<arch::BigBirdPattern>(&a.pattern);
  if (blocks != nullptr && blocks->draw == arch::BlockDraw::numpy) bigbird_.emplace(a, spec.context);
  const auto* pattern = std::get_if<arch::LongformerPattern>(&a.pattern);
  if (pattern != nullptr && pattern->global_projections) {
    global_.emplace(spec.d_model, a, make);
    add_child("", *global_);
  }
  if (a.gate) {
    gate_.emplace(a.n_heads * *a.v_head_dim, spec.d_model, false, make.at("gate"));
    add_child("gate", *gate_);
  }
  add_child("o", o_);
}

ops::AttentionOptions AttentionMixer::options(ForwardContext& pass) const {
  ops::AttentionOptions options = attention_options(*spec_.scale, spec_.soft_cap, spec_.pattern, pass);
  options.causal = *spec_.causal;
  if (const auto* t5 = std::get_if<arch::T5Bias>(&*spec_.position)) options.t5_max_distance = t5->max_distance;
  return options;
}

ops::AttentionExtras AttentionMixer::extras(const Tensor& q, const ForwardContext& pass) {
  ops::AttentionExtras extras;
  extras.sinks = sinks_;
  extras.document_starts = pass.document_starts;
  if (!slopes_.empty()) {
    if (!slopes_tensor_.defined() || !(slopes_tensor_.device() == q.device())) {
      slopes_tensor_ = Tensor::from(slopes_, {spec_.n_heads}, q.device());
    }
    extras.alibi_slopes = slopes_tensor_;
  }
  if (const auto* t5 = std::get_if<arch::T5Bias>(&*spec_.position)) {
    extras.t5_bias = t5_ ? t5_->weight() : positions_.weight();
    // In causal attention no key follows its query, so only the first half of a bidirectional bias table is used.
    if (t5->bidirectional && *spec_.causal) extras.t5_bias = extras.t5_bias.slice(0, 0, t5->buckets / 2);
  }
  return extras;
}

/// Queries, keys and values as views of their packed projection, rotated in place. The gradient is packed, too.
AttentionMixer::Heads AttentionMixer::packed_heads(const Tensor& projected, const ForwardContext& pass) {
  const int64_t kv_heads = *spec_.n_kv_heads;
  const Shape by_head{projected.dim(0), projected.dim(1), spec_.n_heads + 2 * kv_heads, *spec_.head_dim};
  Tensor all = projected.reshape(by_head);
  if (rotary_ != nullptr) all = rotary_->rotate_packed(all, spec_.n_heads + kv_heads, pass);
  std::vector<Tensor> parts = ops::split(all, {spec_.n_heads, kv_heads, kv_heads}, 2);
  return {parts[0], parts[1], parts[2]};
}

Tensor AttentionMixer::normed_and_turned(const HeadNorm& norm, const Tensor& part, int64_t heads,
                                         const ForwardContext& pass) {
  if (rotary_ == nullptr) return norm.split(part, heads);
  if (norm.after_rope) {
    const Tensor turned = rotary_->rotate(part.reshape({part.dim(0), part.dim(1), heads, *spec_.head_dim}), pass);
    return norm.split(turned.reshape(part.shape()), heads);
  }
  if (!norm.is_rms_of_heads()) return rotary_->rotate(norm.split(part, heads), pass);
  return rotary_->rotate_normed(part.reshape({part.dim(0), part.dim(1), heads, *spec_.head_dim}),
                                norm.layer->row_norm(), pass);
}

AttentionMixer::Heads AttentionMixer::separate_heads(std::vector<Tensor> parts, const ForwardContext& pass) {
  if (spec_.clip_qkv) {
    for (Tensor& part : parts) part = ops::clamp(part, -*spec_.clip_qkv, *spec_.clip_qkv);
  }
  const int64_t kv_heads = *spec_.n_kv_heads;
  Tensor q = normed_and_turned(q_norm_, parts[0], spec_.n_heads, pass);
  Tensor k = normed_and_turned(k_norm_, parts[1], kv_heads, pass);
  if (temperature_) q = temperature_->apply(q, pass);
  Tensor v = parts[2].reshape({parts[2].dim(0), parts[2].dim(1), kv_heads, *spec_.v_head_dim});
  // Copy v for backward: a view would keep the unused q and k parts of the packed projection alive.
  if (is_tracked({v}) && !k.shares_memory_with(v)) v = v.contiguous();
  return {q, k, v};
}

AttentionMixer::Heads AttentionMixer::normed_heads(const Tensor& projected, const ForwardContext& pass) {
  const bool together = *spec_.head_dim == *spec_.v_head_dim && !spec_.clip_qkv && q_norm_.is_rms_of_heads() &&
                        k_norm_.is_rms_of_heads() && !temperature_ && rotary_ != nullptr && rotary_->rotates() &&
                        !rotary_->frequencies_differ_by_row(pass);
  if (!together) return separate_heads(qkv_.split(projected), pass);
  const int64_t kv_heads = *spec_.n_kv_heads;
  const Shape by_head{projected.dim(0), projected.dim(1), spec_.n_heads + 2 * kv_heads, *spec_.head_dim};
  const auto heads = rotary_->rotate_normed(projected.reshape(by_head), spec_.n_heads, kv_heads,
                                            q_norm_.layer->row_norm(), k_norm_.layer->row_norm(), pass);
  return {heads.q, heads.k, heads.v};
}

bool AttentionMixer::keeps_qkv_packed(const ForwardContext& pass) const {
  return qkv_.is_packed() && *spec_.head_dim == *spec_.v_head_dim && !spec_.clip_qkv && !temperature_ &&
         !q_norm_.layer && !k_norm_.layer && (rotary_ == nullptr || !rotary_->frequencies_differ_by_row(pass));
}

Tensor AttentionMixer::attend_with_globals(const Tensor& x, ForwardContext& pass) {
  const Heads heads = separate_heads(qkv_.forward_parts(x), pass);
  const Tensor y = ops::attention(heads.q, heads.k, heads.v, options(pass), extras(heads.q, pass));
  return global_->replace(x, y, pass);
}

Tensor AttentionMixer::forward(const Tensor& x, ForwardContext& pass, LayerCache* cache) {
  if (global_) return merged(attend_with_globals(x, pass));
  if (bigbird_) {
    const Heads heads = separate_heads(qkv_.forward_parts(x), pass);
    return merged(bigbird_->attend(heads.q, heads.k, heads.v, options(pass), pass));
  }
  if (gate_) return gated(x, pass, cache);
  if (keeps_qkv_packed(pass)) return mix_packed(qkv_.forward(x), pass, cache);
  if (qkv_.is_packed()) return merged(mix(normed_heads(qkv_.forward(x), pass), pass, cache));
  return merged(mix(separate_heads(qkv_.forward_parts(x), pass), pass, cache));
}

Tensor AttentionMixer::gated(const Tensor& x, ForwardContext& pass, LayerCache* cache) {
  const Tensor y = qkv_.is_packed() ? mix(normed_heads(qkv_.forward(x), pass), pass, cache)
                                    : mix(separate_heads(qkv_.forward_parts(x), pass), pass, cache);
  return merged(ops::mul(y, gate_->forward(x, ops::Activation::sigmoid).reshape(y.shape())));
}

Tensor AttentionMixer::forward_normed(ResidualStream& stream, const NormLayer& norm, ForwardContext& pass,
                                      LayerCache* cache) {
  if (!qkv_.is_packed() || global_ || bigbird_ || gate_) return forward(stream.normed(norm), pass, cache);
  const bool paged_step = pass.rows != nullptr && pass.rows->is_decode() && !rounded_alibi_;
  if (paged_step && keeps_qkv_packed(pass)) return paged_step_normed(stream, norm, pass);
  const Tensor projected = qkv_.forward_normed(stream, norm);
  if (keeps_qkv_packed(pass)) return mix_packed(projected, pass, cache);
  return merged(mix(normed_heads(projected, pass), pass, cache));
}

Tensor AttentionMixer::mix_packed(const Tensor& projected, ForwardContext& pass, LayerCache* cache) {
  if (pass.rows != nullptr) {
    if (!pass.rows->is_decode() || rounded_alibi_) return merged(mix(packed_heads(projected, pass), pass, nullptr));
    return merged(attend_paged_step(projected, pass));
  }
  const bool rotates = cache == nullptr && rotary_ != nullptr && rotary_->rotates() && !pass.context;
  if (rotates && !observes_attention(pass)) return merged(attend_rotated(projected, pass));
  return merged(mix(packed_heads(projected, pass), pass, cache));
}

Tensor AttentionMixer::attend_rotated(const Tensor& projected, ForwardContext& pass) {
  const int64_t kv_heads = *spec_.n_kv_heads;
  const Shape by_head{projected.dim(0), projected.dim(1), spec_.n_heads + 2 * kv_heads, *spec_.head_dim};
  const Tensor all = projected.reshape(by_head);
  return ops::rotary_attention(all, spec_.n_heads, kv_heads, rotary_->rotation(pass, all.device()), options(pass),
                               extras(all, pass));
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): q, k, v below are references to its members
Tensor AttentionMixer::mix(Heads heads, ForwardContext& pass, LayerCache* cache) {
  auto& [q, k, v] = heads;
  if (rounded_alibi_) {
    q = rounded_alibi_->extend_queries(q);
    k = rounded_alibi_->extend_keys(k, pass);
  }
  if (pass.rows != nullptr) return attend_paged(heads, pass);
  if (cache != nullptr) return attend_cached(q, k, v, pass, dynamic_cast<KeyValueCache&>(*cache));
  const ops::AttentionOptions settings = options(pass);
  offer_attention(q, k, settings, extras(q, pass), pass);
  return ops::context_attention(q, k, v, pass.context, settings, extras(q, pass));
}

Tensor AttentionMixer::merged(const Tensor& y) const {
  return o_.forward(y.reshape({y.dim(0), y.dim(1), spec_.n_heads * *spec_.v_head_dim}));
}

Tensor AttentionMixer::attend_paged(const Heads& heads, ForwardContext& pass) {
  const auto flat = [](const Tensor& x) { return x.reshape({x.dim(1), x.dim(2), x.dim(3)}); };
  const Tensor q = flat(heads.q);
  const Tensor k = flat(heads.k);
  const Tensor v = flat(heads.v);
  ops::paged_store(pass.memory->pages, page_tables(pass), k, v);
  const Tensor y = ops::paged_attention(q, k, v, pass.memory->pages, page_tables(pass), *spec_.v_head_dim,
                                        options(pass), extras(q, pass));
  return y.reshape({1, y.dim(0), y.dim(1), y.dim(2)});
}

Tensor AttentionMixer::attend_paged_step(const Tensor& projected, ForwardContext& pass) {
  const Tensor all = projected.reshape({pass.seq, spec_.n_heads + 2 * *spec_.n_kv_heads, *spec_.head_dim});
  const Tensor y = ops::paged_attention_step(all, pass.memory->pages, page_tables(pass),
                                             step_rotation(pass, all.device()), options(pass), extras(all, pass));
  return y.reshape({1, pass.seq, spec_.n_heads, *spec_.v_head_dim});
}

Tensor AttentionMixer::paged_step_normed(ResidualStream& stream, const NormLayer& norm, ForwardContext& pass) {
  const ops::AttentionProjections weights{qkv_.used_weight(), qkv_.packed_bias(), o_.used_weight(), o_.bias()};
  // ops::attention_step takes x [rows, 1, width] and parts [n, rows, 1, width].
  const Shape shape = stream.x.shape();
  const auto by_row = [&](const Tensor& x) {
    if (!x.defined()) return x;
    return x.rank() == 3 ? x.reshape({pass.seq, 1, x.dim(2)}) : x.reshape({x.dim(0), pass.seq, 1, x.dim(3)});
  };
  const ops::SublayerOutput step = ops::paged_attention_sublayer_step(
      by_row(stream.x), by_row(stream.branch), norm.row_norm(), weights, pass.memory->pages, page_tables(pass),
      step_rotation(pass, stream.x.device()), options(pass), extras(stream.x, pass));
  return stream.take({step.h.reshape(shape), step.parts.reshape({step.parts.dim(0), 1, pass.seq, shape[2]})});
}

CacheLayout AttentionMixer::cache_layout() const {
  const auto* window = std::get_if<arch::WindowPattern>(&spec_.pattern);
  CacheLayout layout;
  layout.n_kv_heads = *spec_.n_kv_heads;
  layout.d_qk = *spec_.head_dim + (rounded_alibi_ ? rounded_alibi_->width() : 0);
  layout.d_v = *spec_.v_head_dim;
  layout.window = window == nullptr ? 0 : window->size;
  layout.allows_8_bits = !rounded_alibi_;
  return layout;
}

Tensor AttentionMixer::attend_cached(const Tensor& q, const Tensor& k, const Tensor& v, ForwardContext& pass,
                                     KeyValueCache& cache) {
  const bool fresh = pass.end() == pass.seq;  // no cached tokens: the new keys are all the keys
  if (cache.slides() && !fresh && pass.seq > kDecodeQueries) return attend_sliding(q, k, v, pass, cache);
  cache.write(k, v, pass);
  if (fresh) return ops::attention(q, k, v, options(pass), extras(q, pass));
  if (pass.seq <= kDecodeQueries) {
    std::vector<int64_t> lengths;
    for (int64_t row = 0; row < pass.batch; ++row) {
      lengths.push_back(pass.offset_of(row) + pass.seq - cache.first(row));
    }
    return attend_stored(q, Tensor::from(lengths, {pass.batch}, q.device()), pass, cache);
  }
  if (pass.offsets.empty()) return attend_rows(q, pass, cache, 0, pass.batch);
  std::vector<Tensor> rows;
  for (int64_t row = 0; row < pass.batch; ++row) {
    rows.push_back(attend_rows(q.slice(0, row, 1), row_of(pass, row), cache, row, 1));
  }
  return ops::concat(rows, 0);
}

ops::StepRotation AttentionMixer::step_rotation(const ForwardContext& pass, const Device& device) {
  return rotary_ == nullptr ? ops::StepRotation{} : rotary_->step_rotation(pass, device);
}

Tensor AttentionMixer::attend_stored(const Tensor& q, const Tensor& lengths, ForwardContext& pass,
                                     const KeyValueCache& cache) {
  return ops::attention_decode(q, cache.k().numbers, cache.v().numbers, lengths, options(pass), extras(q, pass),
                               cache.scales());
}

/// Attention with a sliding-window cache. Many new tokens may overwrite cached tokens that the first of them still
/// attend to, so the cached window is read before writing. Only distances matter within a window, so positions may
/// start at the first available key.
Tensor AttentionMixer::attend_sliding(const Tensor& q, const Tensor& k, const Tensor& v, ForwardContext& pass,
                                      KeyValueCache& cache) {
  std::vector<Tensor> rows;
  const int64_t step = pass.offsets.empty() ? pass.batch : 1;
  for (int64_t row = 0; row < pass.batch; row += step) {
    const int64_t offset = pass.offset_of(row);
    const auto joined = [&](const CachedTokens& held, const Tensor& more) {
      return ops::concat({cache.read_before(held, row, step, offset, q.dtype()), more.slice(0, row, step)}, 1);
    };
    rows.push_back(ops::attention(q.slice(0, row, step), joined(cache.k(), k), joined(cache.v(), v), options(pass),
                                  extras(q, pass)));
  }
  cache.write(k, v, pass);
  return ops::concat(rows, 0);
}

Tensor AttentionMixer::attend_rows(const Tensor& q, const ForwardContext& pass_in, KeyValueCache& cache, int64_t row,
                                   int64_t count) {
  ForwardContext pass = pass_in;
  const Tensor k = cache.k().rows(row, count).read(0, pass.end(), q.dtype());
  const Tensor v = cache.v().rows(row, count).read(0, pass.end(), q.dtype());
  return ops::attention(q, k, v, options(pass), extras(q, pass));
}

std::unique_ptr<LayerCache> AttentionMixer::make_cache(int64_t batch, int64_t capacity, DType dtype,
                                                       const Device& device) const {
  LAMINA_CHECK(!rounded_alibi_ || dtype != DType::u8,
               "attention: with rounded ALiBi the cached keys contain biases, which 8 bits cannot represent; keep the "
               "cache in f32 or bf16");
  const int64_t heads = *spec_.n_kv_heads;
  const int64_t width = *spec_.head_dim + (rounded_alibi_ ? rounded_alibi_->width() : 0);
  const auto* window = std::get_if<arch::WindowPattern>(&spec_.pattern);
  return KeyValueCache::make({batch, heads, capacity, width}, {batch, heads, capacity, *spec_.v_head_dim},
                             window == nullptr ? 0 : window->size, dtype, device);
}

}  // namespace

std::unique_ptr<Mixer> make_attention(const arch::ArchSpec& spec, const arch::Attention& attention,
                                      const ParameterFactory& make, PositionTables& positions) {
  return std::make_unique<AttentionMixer>(spec, attention, make, positions);
}

}  // namespace lamina::nn
