#include "lamina/nn/cross_attention.h"

#include "lamina/nn/mixers/key_value_cache.h"
#include "lamina/ops/attention/attention_decode.h"
#include "lamina/ops/elementwise/concat.h"

namespace lamina::nn {
namespace {

/// One batch row of x. Without padding the rows are concatenated in dimension 1 and begin at `starts`; otherwise
/// dimension 0 is the batch.
Tensor row_of_batch(const Tensor& x, const std::vector<int64_t>& starts, int64_t row) {
  if (starts.empty()) return x.slice(0, row, 1);
  const auto at = static_cast<size_t>(row);
  return x.slice(1, starts[at], starts[at + 1] - starts[at]);
}

}  // namespace

CrossAttention::CrossAttention(const arch::ArchSpec& spec, const arch::CrossAttention& cross,
                               const ParameterFactory& make, PositionTables& positions)
    : projections_(spec, cross, make, positions) {
  add_child("", projections_);
}

Tensor CrossAttention::attend_source(const Tensor& q, ForwardContext& pass) const {
  const CrossKeys keys = projections_.keys(pass.source.states);
  const auto& [k, v] = keys;
  const std::vector<int64_t>& starts = pass.source.row_starts;
  if (starts.empty() && pass.row_starts.empty()) {
    const int64_t each = q.dim(0) / k.dim(0);  // rows of q per row of the source
    return projections_.attend(q.reshape({k.dim(0), each * q.dim(1), q.dim(2), q.dim(3)}), keys, pass);
  }
  const bool joined = !pass.row_starts.empty();
  const auto rows = joined ? static_cast<int64_t>(pass.row_starts.size()) - 1 : q.dim(0);
  std::vector<Tensor> outputs;
  for (int64_t row = 0; row < rows; ++row) {
    outputs.push_back(projections_.attend(row_of_batch(q, pass.row_starts, row),
                                          {row_of_batch(k, starts, row), row_of_batch(v, starts, row)}, pass));
  }
  return ops::concat(outputs, joined ? 1 : 0);
}

Tensor CrossAttention::attend_cached(const Tensor& q, ForwardContext& pass, const LayerCache& cache) const {
  const auto& stored = dynamic_cast<const KeyValueCache&>(cache);
  const std::vector<int64_t>& lengths = pass.source_lengths;
  if (q.dim(1) == 1) {
    // A single query: treat it as the last position, so that the decode kernel's causal mask hides no key.
    const Tensor seen = Tensor::from(lengths, {q.dim(0)}, q.device());
    return ops::attention_decode(q, stored.k().numbers, stored.v().numbers, seen, {.scale = *projections_.spec().scale},
                                 {}, stored.scales());
  }
  std::vector<Tensor> outputs;
  for (int64_t row = 0; row < q.dim(0); ++row) {
    const int64_t length = lengths[static_cast<size_t>(row)];
    const auto read = [&](const CachedTokens& part) { return part.rows(row, 1).read(0, length, q.dtype()); };
    outputs.push_back(projections_.attend(q.slice(0, row, 1), {read(stored.k()), read(stored.v())}, pass));
  }
  return ops::concat(outputs, 0);
}

Tensor CrossAttention::forward(const Tensor& x, ForwardContext& pass, LayerCache* cache) const {
  LAMINA_CHECK(cache != nullptr || pass.source.states.defined(),
               "model: layers attend to an encoder, but there is no source; give RunOptions::source, or call "
               "read_source() before decoding with a cache");
  const Tensor q = projections_.queries(x, 0);
  const Tensor y = cache != nullptr ? attend_cached(q, pass, *cache) : attend_source(q, pass);
  return projections_.output(y, x.dim(0), x.dim(1));
}

std::unique_ptr<LayerCache> CrossAttention::make_cache(int64_t batch, int64_t capacity, DType dtype,
                                                       const Device& device) const {
  const arch::CrossAttention& spec = projections_.spec();
  const Shape shape{batch, *spec.n_kv_heads, capacity, *spec.head_dim};
  return KeyValueCache::make(shape, shape, 0, dtype, device);
}

void CrossAttention::store(const Tensor& source, LayerCache& cache) const {
  const auto [k, v] = projections_.keys(source);
  ForwardContext pass;
  pass.batch = source.dim(0);
  pass.seq = source.dim(1);
  dynamic_cast<KeyValueCache&>(cache).write(k, v, pass);
}

}  // namespace lamina::nn
