#include "lamina/ops/parallel/context_attention.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/attention/attention_kernel.h"
#include "lamina/ops/attention/merge_attention_kernel.h"
#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/parallel/collectives.h"
#include "lamina/ops/parallel/ring_blocks.h"

namespace lamina::ops {
namespace {

constexpr const char* kOp = "context_attention";

Tensor zeros_wide(const Tensor& like) {
  return Tensor::zeros(like.shape(), accumulation_type(like.dtype()), like.device());
}

/// Slice of tokens [begin, begin + count) of x [batch, seq, heads, d].
Tensor tokens_of(const Tensor& x, int64_t begin, int64_t count) {
  return begin == 0 && count == x.dim(1) ? x : x.slice(1, begin, count);
}

/// Slice of queries [begin, begin + count) of the softmax statistics x [batch, n_heads, seq].
Tensor statistics_of(const Tensor& x, int64_t begin, int64_t count) {
  return begin == 0 && count == x.dim(2) ? x : x.slice(2, begin, count).contiguous();
}

/// Tensors that travel around the ring of ranks. At first every rank holds its own; in each step it passes what it
/// holds to the next rank and receives from the previous one.
class Travelling {
 public:
  Travelling(const ContextShare& share, std::vector<Tensor> own) : share_(share), held_(std::move(own)) {
    for (Tensor& x : held_) x = x.contiguous();
  }

  /// The rank that owns the tensors held now.
  int rank() const { return (ranks().rank() - steps_ + ranks().size()) % ranks().size(); }
  const Tensor& operator[](size_t i) const { return held_[i]; }

  void step(std::string_view label) {
    if (ranks().size() == 1) return;
    ++steps_;
    const int next = (ranks().rank() + 1) % ranks().size();
    const int previous = (ranks().rank() + ranks().size() - 1) % ranks().size();
    std::vector<comm::Message> sends;
    std::vector<comm::Message> receives;
    std::vector<Tensor> arriving;
    for (const Tensor& x : held_) {
      Shape shape = x.shape();
      shape[1] = share_.tokens(rank());
      arriving.push_back(Tensor::empty(shape, x.dtype(), x.device()));
      sends.push_back({next, x});
      receives.push_back({previous, arriving.back()});
    }
    ranks().exchange(sends, receives, {.label = label});
    held_ = std::move(arriving);
  }

 private:
  comm::Communicator& ranks() const { return *share_.ranks; }

  const ContextShare& share_;
  std::vector<Tensor> held_;
  int steps_ = 0;
};

constexpr const char* kBlocks = "key and value blocks";
constexpr const char* kBlockGradients = "key and value gradients";

/// Ring attention of this rank's queries: processes one block of keys and values at a time.
class Ring {
 public:
  Ring(const ContextShare& share, const AttentionOptions& options, const AttentionExtras& extras, const Device& device)
      : share_(share), options_(options), sinks_(extras.sinks) {
    const std::vector<int64_t> starts = own_document_starts(share);
    if (!starts.empty()) starts_ = Tensor::from(starts, {static_cast<int64_t>(starts.size())}, device);
  }

  /// Returns the output. Saves what backward() needs besides q, k, v and the output.
  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v) {
    const Tensor y = Tensor::zeros({q.dim(0), q.dim(1), q.dim(2), v.dim(3)}, accumulation_type(q.dtype()), q.device());
    log_sum_exp_ =
        Tensor::full({q.dim(0), q.dim(2), q.dim(1)}, -std::numeric_limits<double>::infinity(), y.dtype(), q.device());
    Travelling kv(share_, {k, v});
    for (int step = 0; step < share_.ranks->size(); ++step) {
      if (step > 0) kv.step(kBlocks);
      for (const RingBlock& block : blocks(kv.rank())) {
        AttentionForward args = block_of(block, kv.rank(), q, kv[0], kv[1]);
        LAMINA_LAUNCH(q.device(), attention_work(args, false), attention_forward, args);
        saved_log_sum_exp_.push_back(args.saved_log_sum_exp);
        const MergeAttention merge{
            y, log_sum_exp_, block.query, args.y, args.row_max, args.row_inv_sum, args.saved_log_sum_exp};
        LAMINA_LAUNCH(q.device(), (Work{4 * args.y.numel(), 3 * args.y.nbytes()}), merge_attention, merge);
      }
    }
    return y.to(q.dtype());
  }

  struct Gradients {
    Tensor q, k, v;  ///< accumulation type
    Tensor sinks;    ///< undefined if not needed
  };
  /// Gradients, given the output y and its gradient dy.
  Gradients backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y, const Tensor& dy,
                     bool needs_sinks) const {
    Gradients result{zeros_wide(q), {}, {}, {}};
    if (needs_sinks) result.sinks = Tensor::empty(sinks_.shape(), accumulation_type(q.dtype()), q.device());
    Travelling kv(share_, {k, v});
    Travelling dkv(share_, {zeros_wide(k), zeros_wide(v)});
    size_t index = 0;
    for (int step = 0; step < share_.ranks->size(); ++step) {
      if (step > 0) {
        kv.step(kBlocks);
        dkv.step(kBlockGradients);
      }
      for (const RingBlock& block : blocks(kv.rank())) {
        AttentionBackward args;
        args.forward = block_of(block, kv.rank(), q, kv[0], kv[1]);
        args.forward.saved_log_sum_exp = saved_log_sum_exp_[index++];
        // Softmax weights relative to all keys, not only to the block's: exp(score − lse) · 1.
        args.forward.row_max = statistics_of(log_sum_exp_, block.query, block.queries);
        args.forward.row_inv_sum.fill_(1.0);
        args.forward.y = tokens_of(y, block.query, block.queries).contiguous();
        args.dy = tokens_of(dy, block.query, block.queries).contiguous();
        const auto like = [](const Tensor& x) { return Tensor::empty(x.shape(), x.dtype(), x.device()); };
        args.dq = like(args.forward.q);
        args.dk = like(args.forward.k);
        args.dv = like(args.forward.v);
        if (args.forward.extras.sinks.defined()) args.dsinks = result.sinks;
        LAMINA_LAUNCH(q.device(), attention_work(args.forward, true), attention_backward, args);
        tokens_of(result.q, block.query, block.queries).add_(args.dq);
        tokens_of(dkv[0], block.key, block.keys).add_(args.dk);
        tokens_of(dkv[1], block.key, block.keys).add_(args.dv);
      }
    }
    dkv.step(kBlockGradients);  // the last step brings the gradients back to the owners of the keys
    result.k = dkv[0];
    result.v = dkv[1];
    return result;
  }

 private:
  std::vector<RingBlock> blocks(int key_rank) const {
    const int64_t own = share_.tokens();
    if (key_rank == share_.ranks->rank()) return {{0, own, 0, own}};
    return ring_blocks(share_, options_.causal, key_rank);
  }

  /// Arguments of attention() for a block. A block of own tokens uses the mask, because these tokens are in the order
  /// of the sequence. Other blocks need no mask. Every query has exactly one block of own keys, so that one counts the
  /// attention sink.
  AttentionForward block_of(const RingBlock& block, int key_rank, const Tensor& q, const Tensor& k,
                            const Tensor& v) const {
    AttentionOptions options = options_;
    AttentionExtras extras;
    if (key_rank == share_.ranks->rank()) {
      extras.sinks = sinks_;
      extras.document_starts = starts_;
    } else {
      options.causal = false;
    }
    return checked_attention(kOp, tokens_of(q, block.query, block.queries), tokens_of(k, block.key, block.keys),
                             tokens_of(v, block.key, block.keys), options, extras);
  }

  ContextShare share_;
  AttentionOptions options_;
  Tensor sinks_;
  Tensor starts_;
  Tensor log_sum_exp_;
  std::vector<bool> saved_log_sum_exp_;  ///< one per processed block, in order
};

Tensor ring_attention(const Tensor& q, const Tensor& k, const Tensor& v, const ContextShare& share,
                      const AttentionOptions& options, const AttentionExtras& extras) {
  AttentionExtras detached = extras;
  if (detached.sinks.defined()) detached.sinks = detached.sinks.detach();
  Ring ring(share, options, detached, q.device());
  const std::vector<Tensor> own{q.detach(), k.detach(), v.detach()};
  Tensor y = ring.forward(own[0], own[1], own[2]);
  record(kOp, {q, k, v, extras.sinks}, {y}, {own[0], own[1], own[2], y}, [ring](Backward& b) {
    enum { kQ, kK, kV, kSinks };
    const Ring::Gradients gradients =
        ring.backward(b.saved(0), b.saved(1), b.saved(2), b.saved(3), b.grad(0), b.needs(kSinks));
    const DType dtype = b.saved(0).dtype();
    if (b.needs(kQ)) b.add(kQ, gradients.q.to(dtype));
    if (b.needs(kK)) b.add(kK, gradients.k.to(dtype));
    if (b.needs(kV)) b.add(kV, gradients.v.to(dtype));
    if (b.needs(kSinks)) b.add(kSinks, gradients.sinks);
  });
  return y;
}

/// Gathers the tokens of all ranks in the order of the sequence: x [batch, tokens, heads, d] to [batch, seq, heads, d].
Tensor gathered(const Tensor& x, const ContextShare& share) {
  std::vector<int64_t> counts;
  std::vector<Tensor> chunks(static_cast<size_t>(2 * share.ranks->size()));
  for (int rank = 0; rank < share.ranks->size(); ++rank) counts.push_back(share.tokens(rank));
  const Tensor all = gather_for_ranks(x.transpose(0, 1), *share.ranks, counts, "gathered keys and values");
  int64_t at = 0;
  for (int rank = 0; rank < share.ranks->size(); ++rank) {
    const auto own = share.chunks(rank);
    chunks[static_cast<size_t>(rank)] = all.slice(0, at, own[0].size());
    chunks[chunks.size() - 1 - static_cast<size_t>(rank)] = all.slice(0, at + own[0].size(), own[1].size());
    at += counts[static_cast<size_t>(rank)];
  }
  return concat(chunks, 0).transpose(0, 1);
}

/// Attention without a ring: every rank gathers all keys and values. Attends once per document in each of this rank's
/// two chunks. The queries are then the last positions of the keys, as the causal mask expects.
Tensor gathered_attention(const Tensor& q, const Tensor& k_own, const Tensor& v_own, const ContextShare& share,
                          const AttentionOptions& options, const AttentionExtras& extras) {
  const Tensor k = gathered(k_own, share);
  const Tensor v = gathered(v_own, share);
  std::vector<Tensor> parts;
  int64_t own = 0;
  for (const PositionRange& chunk : share.chunks()) {
    for (int64_t at = chunk.begin; at < chunk.end;) {
      const PositionRange document = share.document(at);
      const int64_t end = std::min(chunk.end, document.end);
      const int64_t keys = end - document.begin;
      parts.push_back(attention(q.slice(1, own, end - at), k.slice(1, document.begin, keys),
                                v.slice(1, document.begin, keys), options, extras));
      own += end - at;
      at = end;
    }
  }
  return concat(parts, 1);
}

}  // namespace

Tensor context_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                         const std::shared_ptr<const ContextShare>& share, const AttentionOptions& options,
                         const AttentionExtras& extras) {
  if (!share) return attention(q, k, v, options, extras);
  LAMINA_CHECK(share->seq >= 2 * share->ranks->size(), kOp, ": ", share->seq, " positions for ", share->ranks->size(),
               " ranks; expected at least two per rank");
  LAMINA_CHECK(q.rank() == 4 && q.dim(1) == share->tokens() && k.rank() == 4 && k.dim(1) == q.dim(1), kOp, ": q is ",
               q.shape(), ", k is ", k.shape(), "; expected the ", share->tokens(), " positions of this rank");
  LAMINA_CHECK(options.dropout == 0.0, kOp, ": dropout is ", options.dropout, "; expected 0");
  AttentionExtras own = extras;
  own.document_starts = Tensor();
  const bool by_distance =
      options.pattern.kind != AttentionPattern::Kind::full || extras.alibi_slopes.defined() || extras.t5_bias.defined();
  if (!by_distance) return ring_attention(q, k, v, *share, options, own);
  LAMINA_CHECK(options.causal, kOp,
               ": patterns and distance biases need causal attention if ranks share the positions");
  return gathered_attention(q, k, v, *share, options, own);
}

}  // namespace lamina::ops
