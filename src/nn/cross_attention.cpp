#include "lamina/nn/cross_attention.h"

#include "lamina/nn/mixers/key_value_cache.h"
#include "lamina/nn/position_tables.h"
#include "lamina/ops/attention/attention.h"
#include "lamina/ops/attention/attention_decode.h"
#include "lamina/ops/elementwise/concat.h"

namespace lamina::nn {
namespace {

/// A row of x: rows without padding lie one after another in dimension 1, others in dimension 0.
Tensor row_of_batch(const Tensor& x, const std::vector<int64_t>& starts, int64_t row) {
  if (starts.empty()) return x.slice(0, row, 1);
  const auto at = static_cast<size_t>(row);
  return x.slice(1, starts[at], starts[at + 1] - starts[at]);
}

/// The context of rows that begin at position 0.
ForwardContext from_start(const Tensor& x) {
  ForwardContext pass;
  pass.batch = x.dim(0);
  pass.seq = x.dim(1);
  return pass;
}

}  // namespace

CrossAttention::CrossAttention(const arch::ArchSpec& spec, const arch::CrossAttention& cross,
                               const ParameterFactory& make, PositionTables& positions)
    : spec_(cross),
      q_(cross.n_heads * *cross.head_dim, spec.d_model, cross.bias.q, make.at("q")),
      kv_("kv",
          {{"k", *cross.n_kv_heads * *cross.head_dim, cross.bias.k},
           {"v", *cross.n_kv_heads * *cross.head_dim, cross.bias.v}},
          *cross.d_source, make),
      o_(spec.d_model, cross.n_heads * *cross.head_dim, cross.bias.o, make.at("o"), Linear::Ends::in_residual),
      rotary_(nullptr) {
  if (const auto* rope = std::get_if<arch::Rope>(&*cross.position)) rotary_ = &positions.rotary(*rope);
  add_child("q", q_);
  add_child("", kv_);
  add_child("o", o_);
}

CrossAttention::Keys CrossAttention::keys_of(const Tensor& source) const {
  const std::vector<Tensor> parts = kv_.forward_parts(source);
  const auto by_head = [&](const Tensor& part) {
    return part.reshape({part.dim(0), part.dim(1), *spec_.n_kv_heads, *spec_.head_dim});
  };
  const Tensor k = by_head(parts[0]);
  return {rotary_ == nullptr ? k : rotary_->rotate(k, from_start(k)), by_head(parts[1])};
}

Tensor CrossAttention::attend(const Tensor& q, const Tensor& k, const Tensor& v, ForwardContext& pass) const {
  ops::AttentionOptions options{.causal = false, .scale = *spec_.scale};
  if (pass.training && pass.dropout.attention > 0.0) {
    options.dropout = pass.dropout.attention;
    options.dropout_key = pass.draw();
  }
  return ops::attention(q, k, v, options);
}

Tensor CrossAttention::attend_source(const Tensor& q, ForwardContext& pass) const {
  const auto [k, v] = keys_of(pass.source.states);
  const std::vector<int64_t>& starts = pass.source.row_starts;
  if (starts.empty() && pass.row_starts.empty()) {
    const int64_t each = q.dim(0) / k.dim(0);  // rows of q for a row of the source
    return attend(q.reshape({k.dim(0), each * q.dim(1), q.dim(2), q.dim(3)}), k, v, pass);
  }
  const bool joined = !pass.row_starts.empty();
  const auto rows = joined ? static_cast<int64_t>(pass.row_starts.size()) - 1 : q.dim(0);
  std::vector<Tensor> outputs;
  for (int64_t row = 0; row < rows; ++row) {
    outputs.push_back(attend(row_of_batch(q, pass.row_starts, row), row_of_batch(k, starts, row),
                             row_of_batch(v, starts, row), pass));
  }
  return ops::concat(outputs, joined ? 1 : 0);
}

Tensor CrossAttention::attend_cached(const Tensor& q, ForwardContext& pass, const LayerCache& cache) const {
  const auto& stored = dynamic_cast<const KeyValueCache&>(cache);
  const std::vector<int64_t>& lengths = pass.source_lengths;
  if (q.dim(1) == 1) {
    // A single query is the last position, from which causal attention sees every key.
    const Tensor seen = Tensor::from(lengths, {q.dim(0)}, q.device());
    return ops::attention_decode(q, stored.k().numbers, stored.v().numbers, seen, {.scale = *spec_.scale}, {},
                                 stored.scales());
  }
  std::vector<Tensor> outputs;
  for (int64_t row = 0; row < q.dim(0); ++row) {
    const int64_t length = lengths[static_cast<size_t>(row)];
    outputs.push_back(attend(q.slice(0, row, 1), stored.k().rows(row, 1).read(0, length, q.dtype()),
                             stored.v().rows(row, 1).read(0, length, q.dtype()), pass));
  }
  return ops::concat(outputs, 0);
}

Tensor CrossAttention::forward(const Tensor& x, ForwardContext& pass, LayerCache* cache) const {
  LAMINA_CHECK(cache != nullptr || pass.source.states.defined(),
               "model: layers attend to an encoder, but there is no source; give RunOptions::source, or call "
               "read_source() before decoding with a cache");
  const Tensor projected = q_.forward(x);
  Tensor q = projected.reshape({x.dim(0), x.dim(1), spec_.n_heads, *spec_.head_dim});
  if (rotary_ != nullptr) q = rotary_->rotate(q, from_start(q));
  const Tensor y = cache != nullptr ? attend_cached(q, pass, *cache) : attend_source(q, pass);
  return o_.forward(y.reshape({x.dim(0), x.dim(1), spec_.n_heads * *spec_.head_dim}));
}

std::unique_ptr<LayerCache> CrossAttention::make_cache(int64_t batch, int64_t capacity, DType dtype,
                                                       const Device& device) const {
  const Shape shape{batch, *spec_.n_kv_heads, capacity, *spec_.head_dim};
  return KeyValueCache::make(shape, shape, 0, dtype, device);
}

void CrossAttention::store(const Tensor& source, LayerCache& cache) const {
  const auto [k, v] = keys_of(source);
  ForwardContext pass;
  pass.batch = source.dim(0);
  pass.seq = source.dim(1);
  dynamic_cast<KeyValueCache&>(cache).write(k, v, pass);
}

}  // namespace lamina::nn
