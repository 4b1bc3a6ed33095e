#include "lamina/nn/chunked_cross_attention.h"

#include <algorithm>

#include "lamina/nn/neighbour_encoder.h"
#include "lamina/nn/position_tables.h"
#include "lamina/ops/attention/attention.h"
#include "lamina/ops/elementwise/concat.h"

namespace lamina::nn {
namespace {

Tensor zeros_like_tokens(const Tensor& x, int64_t tokens) {
  return Tensor::zeros({x.dim(0), tokens, x.dim(2)}, x.dtype(), x.device());
}

ForwardContext tokens_at(int64_t batch, int64_t seq, int64_t offset) {
  ForwardContext pass;
  pass.batch = batch;
  pass.seq = seq;
  pass.offset = offset;
  return pass;
}

}  // namespace

/// What later tokens need of the chunks so far. A pass at offset 0 empties it. As long as no neighbours were given,
/// rows may be truncated and differ in length, as those of a plain decoder; then it forgets the states.
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

  Tensor states;  ///< [batch, n < chunk, d_model]: x of the chunk that is not complete; only in the first layer
  Keys keys;      ///< of the last complete chunk of each row; undefined: it has no neighbours
};

ChunkedCrossAttention::ChunkedCrossAttention(const arch::ArchSpec& spec, const arch::CrossAttention& cross,
                                             const ParameterFactory& make, PositionTables& positions)
    : spec_(cross),
      retrieval_(*spec.retrieval),
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

std::unique_ptr<LayerCache> ChunkedCrossAttention::make_cache() const { return std::make_unique<Cache>(); }

/// Encodes the neighbours of the chunks that end in this pass. With a cache, earlier tokens of the first of these
/// chunks come from it.
void ChunkedCrossAttention::encode(const Tensor& x, ForwardContext& pass, Cache* cache) const {
  ChunkNeighbours& neighbours = pass.neighbours;
  const int64_t chunk = retrieval_.chunk;
  const int64_t held = pass.offset % chunk;
  const int64_t ends = (held + x.dim(1)) / chunk;
  neighbours.encoded = true;
  Tensor states;
  if (neighbours.encoder->reads_chunks()) {
    Tensor all = x;
    int64_t first = held;  // tokens of the first chunk that `all` lacks
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

ChunkedCrossAttention::Keys ChunkedCrossAttention::keys_of(const Tensor& states) const {
  const std::vector<Tensor> parts = kv_.forward_parts(states);
  const int64_t chunks = states.dim(0);
  const int64_t n = retrieval_.neighbours;
  const auto by_head = [&](const Tensor& part, int64_t rows) {
    return part.reshape({rows, chunks * states.dim(1) / rows, *spec_.n_kv_heads, *spec_.head_dim});
  };
  if (rotary_ == nullptr) return {by_head(parts[0], chunks), by_head(parts[1], chunks)};
  const Tensor turned = rotary_->rotate(by_head(parts[0], chunks * n), tokens_at(chunks * n, retrieval_.length, 0));
  return {by_head(turned, chunks), by_head(parts[1], chunks)};
}

ChunkedCrossAttention::Keys ChunkedCrossAttention::last_of(const Keys& keys, int64_t rows) {
  const auto last = [rows](const Tensor& x) {
    const int64_t chunks = x.dim(0) / rows;
    const Shape one{rows, x.dim(1), x.dim(2), x.dim(3)};
    const Tensor by_row = x.contiguous().reshape({rows, chunks, x.dim(1) * x.dim(2) * x.dim(3)});
    return by_row.slice(1, chunks - 1, 1).clone().reshape(one);
  };
  return {last(keys.k), last(keys.v)};
}

Tensor ChunkedCrossAttention::attend(const Tensor& x, int64_t place, const Keys& keys, ForwardContext& pass) const {
  Tensor q = q_.forward(x).reshape({x.dim(0), x.dim(1), spec_.n_heads, *spec_.head_dim});
  if (rotary_ != nullptr) q = rotary_->rotate(q, tokens_at(x.dim(0), x.dim(1), retrieval_.chunk - 1 + place));
  ops::AttentionOptions options{.causal = false, .scale = *spec_.scale};
  if (pass.training && pass.dropout.attention > 0.0) {
    options.dropout = pass.dropout.attention;
    options.dropout_key = pass.draw();
  }
  const Tensor y = ops::attention(q, keys.k, keys.v, options);
  return o_.forward(y.reshape({x.dim(0), x.dim(1), spec_.n_heads * *spec_.head_dim}));
}

/// x [batch, tokens, d_model] begins with a chunk's last token. `keys` are of batch · chunks chunks.
Tensor ChunkedCrossAttention::attend_new_chunks(const Tensor& x, const Keys& keys, ForwardContext& pass) const {
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
  // Tokens before `first_end`, the first token here that ends a chunk, see the neighbours of an earlier chunk.
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
    const Keys keys = states.defined() ? keys_of(states) : Keys{};
    parts.push_back(states.defined() ? attend_new_chunks(x.slice(1, first_end, tokens), keys, pass)
                                     : zeros_like_tokens(x, tokens));
    if (cache != nullptr) cache->keys = states.defined() ? last_of(keys, x.dim(0)) : Keys{};
  }
  return parts.size() == 1 ? parts[0].contiguous() : ops::concat(parts, 1);
}

}  // namespace lamina::nn
