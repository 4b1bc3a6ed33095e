#include "lamina/nn/chunked_cross_attention.h"

#include <algorithm>

#include "lamina/nn/neighbour_encoder.h"
#include "lamina/ops/elementwise/concat.h"

namespace lamina::nn {
namespace {

Tensor zeros_like_tokens(const Tensor& x, int64_t tokens) {
  return Tensor::zeros({x.dim(0), tokens, x.dim(2)}, x.dtype(), x.device());
}

}  // namespace

/// Cache during generation: the hidden states of the unfinished chunk, and keys and values of the neighbours of the
/// last finished chunk. A call at offset 0 empties it. Before any neighbours are given, rows may have different lengths
/// and may be truncated, as in a plain decoder; truncating drops the states.
class ChunkedCrossAttention::Cache final : public LayerCache {
 public:
  int64_t bytes() const override {
    int64_t total = 0;
    for (const Tensor* part : {&states, &keys.k, &keys.v}) total += part->defined() ? part->nbytes() : 0;
    return total;
  }
  void reset(int64_t /*row*/) override {
    states = Tensor();
    keys = {};
  }
  bool can_truncate() const override { return !keys.k.defined(); }
  void reorder(std::span<const int64_t> sources) override {
    for (Tensor* part : {&states, &keys.k, &keys.v}) {
      if (part->defined() && part->numel() > 0) reorder_rows(*part, sources);
    }
  }
  std::unique_ptr<LayerCache> rows(int64_t /*begin*/, int64_t /*count*/) const override {
    LAMINA_CHECK(!keys.k.defined(),
                 "cache: rows that attend to neighbours cannot be filled separately; make a cache for ", "each row");
    return std::make_unique<Cache>();
  }

  Tensor states;   ///< [batch, n < chunk, d_model]: inputs x of the unfinished chunk; only in the first layer
  CrossKeys keys;  ///< for the last complete chunk of each row; undefined: it has no neighbours
};

ChunkedCrossAttention::ChunkedCrossAttention(const arch::ArchSpec& spec, const arch::CrossAttention& cross,
                                             const ParameterFactory& make, PositionTables& positions)
    : retrieval_(*spec.retrieval), projections_(spec, cross, make, positions) {
  add_child("", projections_);
}

std::unique_ptr<LayerCache> ChunkedCrossAttention::make_cache() const { return std::make_unique<Cache>(); }

/// Encodes the neighbours of the chunks that end in this call. With a cache, the first of these chunks may have begun
/// in an earlier call; its earlier tokens are in the cache.
void ChunkedCrossAttention::encode(const Tensor& x, ForwardContext& pass, Cache* cache) const {
  ChunkNeighbours& neighbours = pass.neighbours;
  const int64_t chunk = retrieval_.chunk;
  const int64_t held = pass.offset % chunk;
  const int64_t ends = (held + x.dim(1)) / chunk;
  neighbours.encoded = true;
  Tensor states;
  if (neighbours.encoder->reads_chunks()) {
    Tensor all = x;
    int64_t first = held;  // cached tokens of the first chunk, to prepend to `all`
    if (held > 0 && cache != nullptr && cache->states.defined() && cache->states.dim(1) == held) {
      all = ops::concat({cache->states, x}, 1);
      first = 0;
    }
    LAMINA_CHECK(first == 0 || !neighbours.ids.defined(), "model: the cache lacks the first ", first,
                 " tokens of a chunk that has neighbours, because its rows were truncated or differed in length; reset "
                 "the rows and feed them again");
    const int64_t rest = (held + x.dim(1)) % chunk;
    if (cache != nullptr) {
      cache->states = rest <= all.dim(1) ? all.slice(1, all.dim(1) - rest, rest).clone() : Tensor();
    }
    if (first == 0) states = all.slice(1, 0, ends * chunk).contiguous().reshape({x.dim(0) * ends, chunk, x.dim(2)});
  }
  if (ends > 0 && neighbours.ids.defined())
    neighbours.states = neighbours.encoder->forward(neighbours.ids, states, pass);
}

CrossKeys ChunkedCrossAttention::last_of(const CrossKeys& keys, int64_t rows) {
  const auto last = [rows](const Tensor& x) {
    const int64_t chunks = x.dim(0) / rows;
    const Shape one{rows, x.dim(1), x.dim(2), x.dim(3)};
    const Tensor by_row = x.contiguous().reshape({rows, chunks, x.dim(1) * x.dim(2) * x.dim(3)});
    return by_row.slice(1, chunks - 1, 1).clone().reshape(one);
  };
  return {last(keys.k), last(keys.v)};
}

Tensor ChunkedCrossAttention::attend(const Tensor& x, int64_t place, const CrossKeys& keys,
                                     ForwardContext& pass) const {
  const Tensor q = projections_.queries(x, retrieval_.chunk - 1 + place);
  return projections_.output(projections_.attend(q, keys, pass), x.dim(0), x.dim(1));
}

/// Attends to the neighbours of `chunks` chunks. x [batch, tokens, d_model] begins with the last token of a chunk;
/// `keys` has batch · chunks rows.
Tensor ChunkedCrossAttention::attend_new_chunks(const Tensor& x, const CrossKeys& keys, ForwardContext& pass) const {
  const int64_t chunks = keys.k.dim(0) / x.dim(0);
  const int64_t tokens = x.dim(1);
  if (chunks == 1) return attend(x, 0, keys, pass);
  const int64_t missing = chunks * retrieval_.chunk - tokens;
  const Tensor whole = missing == 0 ? x.contiguous() : ops::concat({x, zeros_like_tokens(x, missing)}, 1);
  const Tensor y = attend(whole.reshape({x.dim(0) * chunks, retrieval_.chunk, x.dim(2)}), 0, keys, pass);
  return y.reshape({x.dim(0), chunks * retrieval_.chunk, x.dim(2)}).slice(1, 0, tokens);
}

Tensor ChunkedCrossAttention::forward(const Tensor& x, ForwardContext& pass, LayerCache* given) const {
  auto* cache = dynamic_cast<Cache*>(given);
  if (cache != nullptr && pass.offset == 0) cache->reset(0);
  if (!pass.neighbours.encoded) encode(x, pass, cache);
  const int64_t chunk = retrieval_.chunk;
  const int64_t seq = x.dim(1);
  // Tokens before `first_end` still attend to the neighbours of an earlier chunk. `first_end` is the first token here
  // that ends a chunk.
  const int64_t first_end = std::min(chunk - 1 - pass.offset % chunk, seq);
  std::vector<Tensor> parts;
  if (first_end > 0) {
    const bool sees = cache != nullptr && cache->keys.k.defined();
    const Tensor before = x.slice(1, 0, first_end);
    parts.push_back(sees ? attend(before, pass.offset % chunk + 1, cache->keys, pass)
                         : zeros_like_tokens(x, first_end));
  }
  if (first_end < seq) {
    const int64_t tokens = seq - first_end;
    const Tensor& states = pass.neighbours.states;
    const CrossKeys keys = states.defined() ? projections_.keys(states, retrieval_.neighbours) : CrossKeys{};
    parts.push_back(states.defined() ? attend_new_chunks(x.slice(1, first_end, tokens), keys, pass)
                                     : zeros_like_tokens(x, tokens));
    if (cache != nullptr) cache->keys = states.defined() ? last_of(keys, x.dim(0)) : CrossKeys{};
  }
  return parts.size() == 1 ? parts[0].contiguous() : ops::concat(parts, 1);
}

}  // namespace lamina::nn
