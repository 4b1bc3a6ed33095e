#pragma once

#include "fuzz_world.h"
#include "lamina/ops.h"

// One entry per operator. Shapes mostly fit together, so that calls pass the first checks; options come from the
// fuzzer's bytes.
namespace lamina::fuzz {

using Call = void (*)(World&);

/// Mostly a small extent, rarely an invalid one; small enough that entries may add and multiply extents.
inline int64_t extent(Bytes& b) {
  if (b.below(32) != 0) return b.below(6);
  return b.flag() ? -1 : 1024;  // with more, attention of many heads takes minutes under a sanitizer
}

inline ops::RmsNormOptions norm_options(Bytes& b) { return {b.number(), b.flag() ? 0 : b.integer(), b.number()}; }

inline ops::CrossEntropyOptions loss_options(Bytes& b) {
  return {b.flag() ? -100 : b.integer(),          b.number(), b.number(), b.number(), b.number(),
          static_cast<ops::Reduction>(b.below(3))};
}

inline ops::AttentionOptions attention_options(Bytes& b) {
  ops::AttentionOptions options;
  options.causal = b.flag();
  options.scale = b.flag() ? 0 : b.number();
  options.pattern.kind = static_cast<ops::AttentionPattern::Kind>(b.below(4));
  options.pattern.window = b.integer();
  options.pattern.global_tokens = b.flag() ? 0 : b.integer();
  options.pattern.block = b.integer();
  options.pattern.window_blocks = b.flag() ? 1 : b.integer();
  options.pattern.global_blocks = b.flag() ? 1 : b.integer();
  options.pattern.last_blocks = b.flag() ? 0 : b.integer();
  options.pattern.random_blocks = b.flag() ? 0 : b.integer();
  options.pattern.stride = b.integer();
  options.soft_cap = b.flag() ? 0 : b.number();
  options.dropout = b.flag() ? 0 : b.number();
  options.t5_max_distance = b.integer();
  return options;
}

inline ops::AttentionExtras attention_extras(World& w, int64_t heads) {
  ops::AttentionExtras extras;
  extras.alibi_slopes = w.fits_or_none({heads});
  extras.t5_bias = w.fits_or_none({extent(w.bytes()), heads});
  extras.sinks = w.fits_or_none({heads});
  if (w.bytes().below(4) == 0) extras.document_starts = w.fits({extent(w.bytes())}, DType::i32);
  return extras;
}

inline void attention(World& w) {
  Bytes& b = w.bytes();
  const int64_t batch = extent(b), query = extent(b), key = extent(b), kv = extent(b), dim = extent(b);
  const int64_t heads = kv * b.below(3);
  w.keep(ops::attention(w.fits({batch, query, heads, dim}), w.fits({batch, key, kv, dim}),
                        w.fits({batch, key, kv, extent(b)}), attention_options(b), attention_extras(w, heads)));
}

inline void attention_decode(World& w) {
  Bytes& b = w.bytes();
  const int64_t batch = extent(b), query = extent(b), capacity = extent(b), kv = extent(b), dim = extent(b);
  const int64_t heads = kv * b.below(3);
  w.keep(ops::attention_decode(w.fits({batch, query, heads, dim}), w.fits({batch, kv, capacity, dim}),
                               w.fits({batch, kv, capacity, extent(b)}), w.fits({batch}, DType::i64),
                               attention_options(b), attention_extras(w, heads)));
}

inline ops::PagedRows paged_rows(World& w, int64_t count, int64_t tokens) {
  Bytes& b = w.bytes();
  ops::PagedRows rows{
      w.fits({count, extent(b)}, DType::i32), w.fits({count}, DType::i32), w.fits({count + 1}, DType::i32), {}, {}};
  if (b.flag() || count < 0 || count > 64) return rows;
  // Mostly valid rows: one page each, tokens evenly divided.
  std::vector<int32_t> tables, lengths, starts{0};
  for (int64_t r = 0; r < count; ++r) {
    tables.push_back(static_cast<int32_t>(b.below(4)) - 1);
    starts.push_back(static_cast<int32_t>((r + 1) * tokens / count));
    lengths.push_back(b.below(8) == 0 ? b.below(40) : starts.back() - starts[static_cast<size_t>(r)]);
  }
  const Device device = rows.lengths.defined() ? rows.lengths.device() : w.device();
  rows.tables = Tensor::from(tables, {count, 1}, device);
  rows.lengths = Tensor::from(lengths, {count}, device);
  rows.starts = Tensor::from(starts, {count + 1}, device);
  return rows;
}

inline void paged_attention(World& w) {
  Bytes& b = w.bytes();
  const int64_t rows = extent(b), tokens = extent(b), kv = extent(b), dim = extent(b), d_v = extent(b);
  const int64_t heads = kv * b.below(3), pages = extent(b), page_size = b.below(8) == 0 ? extent(b) : 16;
  const ops::PagedCache cache{
      w.fits({pages, kv, page_size, dim}), b.below(4) == 0 ? Tensor() : w.fits({pages, kv, page_size, d_v}), {}};
  const ops::PagedRows paged = paged_rows(w, rows, tokens);
  const Tensor k = w.fits({tokens, kv, dim});
  const Tensor v = cache.v.defined() ? w.fits({tokens, kv, d_v}) : Tensor();
  if (b.flag()) ops::paged_store(cache, paged, k, v);
  w.keep(ops::paged_attention(w.fits({tokens, heads, dim}), k, v, cache, paged, d_v, attention_options(b),
                              attention_extras(w, heads)));
  w.keep(ops::paged_attention_step(w.fits({rows, heads + 2 * kv, dim}), cache, paged, {}, attention_options(b),
                                   attention_extras(w, heads)));
}

inline void sample_rows(World& w) {
  Bytes& b = w.bytes();
  const int64_t rows = extent(b), vocab = extent(b), top = b.below(3);
  const auto option = [&] { return w.fits_or_none({rows}); };
  const ops::RowSampling options{.temperature = option(),
                                 .top_k = w.fits_or_none({rows}, DType::i32),
                                 .top_p = option(),
                                 .min_p = option(),
                                 .typical_p = option(),
                                 .repetition = option(),
                                 .presence = option(),
                                 .frequency = option(),
                                 .seed = w.fits_or_none({rows}, DType::i64),
                                 .drawn = w.fits_or_none({rows}, DType::i64),
                                 .counts = w.fits_or_none({rows, vocab}, DType::i32),
                                 .bias = w.fits_or_none({rows, vocab}),
                                 .mask = w.fits_or_none({rows, (vocab + 31) / 32}, DType::i32)};
  const Tensor ids = w.fits({rows}, DType::i64);
  ops::sample_rows(w.fits({rows, vocab}), options, b.flag() ? 0 : b.integer(), top, ids,
                   w.fits_or_none({rows, 1 + top}), w.fits_or_none({rows, top}, DType::i64));
  ops::count_tokens(w.fits({rows, vocab}, DType::i32), w.fits({rows}, DType::i32), ids);
}

inline void experts(World& w) {
  Bytes& b = w.bytes();
  const int64_t tokens = extent(b), count = extent(b), k = extent(b), width = extent(b);
  const ops::RouteOptions options{
      k, static_cast<ops::RouterScore>(b.below(3)), b.flag(), b.number(), extent(b), extent(b), extent(b)};
  const Tensor logits = w.fits({tokens, count});
  const ops::Routing routing = ops::route_top_k(logits, options, w.fits_or_none({count}));
  w.keep(routing.weights);
  w.keep(ops::balance_loss(logits, routing.indices));
  w.keep(ops::router_z_loss(logits));
  const ops::DispatchPlan plan = ops::plan_dispatch(b.flag() ? routing.indices : w.fits({tokens, k}, DType::i64), count,
                                                    b.flag() ? 0 : b.integer());
  const Tensor rows = ops::dispatch(w.fits({tokens, width}), plan);
  const Tensor out =
      ops::grouped_linear(rows, w.fits({count, width, width}), plan.offsets, w.fits_or_none({count, width}));
  w.keep(ops::combine(out, routing.weights, plan));
}

inline void grouped_linear(World& w) {
  Bytes& b = w.bytes();
  const int64_t rows = extent(b), in = extent(b), count = extent(b);
  w.keep(ops::grouped_linear(w.fits({rows, in}), w.fits({count, extent(b), in}), w.fits({count + 1}, DType::i64)));
}

inline void conv(World& w) {
  Bytes& b = w.bytes();
  const int64_t batch = extent(b), seq = extent(b), channels = extent(b), kernel = extent(b);
  const Tensor weight = w.fits({channels, kernel});
  const Tensor bias = w.fits_or_none({channels});
  const auto activation = static_cast<ops::ConvActivation>(b.below(2));
  Tensor state = w.fits({batch, channels, kernel - 1});
  w.keep(ops::causal_conv1d(w.fits({batch, seq, channels}), weight, bias, state, activation));
  w.keep(ops::causal_conv1d_state(w.fits({batch, seq, channels}), kernel, state));
  w.keep(ops::causal_conv1d_step(w.fits({batch, channels}), state, weight, bias, activation));
}

inline void selective_scan(World& w) {
  Bytes& b = w.bytes();
  const int64_t batch = extent(b), seq = extent(b), channels = extent(b), n = extent(b);
  const bool step = b.flag();
  const Shape along = step ? Shape{batch, channels} : Shape{batch, seq, channels};
  const Shape narrow = step ? Shape{batch, n} : Shape{batch, seq, n};
  const ops::SelectiveScanExtras extras{w.fits_or_none({channels}), w.fits_or_none(along), w.fits_or_none({channels}),
                                        w.fits_or_none({batch, channels, n}), b.flag()};
  const Tensor u = w.fits(along), delta = w.fits(along), a = w.fits({channels, n}), bb = w.fits(narrow),
               c = w.fits(narrow);
  Tensor state = w.fits({batch, channels, n});
  w.keep(step ? ops::selective_scan_step(u, delta, a, bb, c, state, extras)
              : ops::selective_scan(u, delta, a, bb, c, extras).y);
}

inline void ssd_scan(World& w) {
  Bytes& b = w.bytes();
  const int64_t batch = extent(b), seq = extent(b), groups = extent(b), p = extent(b), n = extent(b);
  const int64_t heads = groups * b.below(3);
  const bool step = b.flag();
  const auto shape = [&](std::initializer_list<int64_t> rest) {
    Shape result{batch};
    if (!step) result.push_back(seq);
    for (const int64_t one : rest) result.push_back(one);
    return result;
  };
  ops::SsdExtras extras{w.fits_or_none({heads}), w.fits_or_none({heads}), w.fits_or_none({batch, heads, p, n}),
                        b.flag()};
  if (b.flag()) extras.dt_min = b.number();
  if (b.flag()) extras.dt_max = b.number();
  extras.chunk_size = b.integer();
  const Tensor x = w.fits(shape({heads, p})), dt = w.fits(shape({heads})), a = w.fits({heads}),
               bb = w.fits(shape({groups, n})), c = w.fits(shape({groups, n}));
  Tensor state = w.fits({batch, heads, p, n});
  w.keep(step ? ops::ssd_step(x, dt, a, bb, c, state, extras) : ops::ssd_scan(x, dt, a, bb, c, extras).y);
}

inline void diagonal(World& w) {
  Bytes& b = w.bytes();
  const int64_t channels = extent(b), n = extent(b), batch = extent(b), seq = extent(b);
  const ops::S4dParameters parameters{w.fits({channels}), w.fits({channels, n}), w.fits({channels, n}),
                                      w.fits({channels, n, 2})};
  const Tensor u = w.fits({batch, seq, channels});
  const Tensor d = w.fits_or_none({channels});
  w.keep(ops::long_conv(u, ops::s4d_kernel(parameters, b.flag() ? seq : b.integer()), d));
  w.keep(ops::s4d_recurrence(u, parameters, d, w.fits_or_none({batch, channels, n, 2})).y);
  w.keep(ops::rg_lru(u, w.fits({batch, seq, channels}), w.fits({batch, seq, channels}), w.fits({channels}),
                     w.fits_or_none({batch, channels}), w.fits_or_none({batch}))
             .y);
  const int64_t heads = extent(b), key_heads = extent(b), d_v = extent(b);
  const Tensor keys = w.fits({batch, seq, key_heads, n});
  w.keep(ops::gated_delta(keys, w.fits({batch, seq, key_heads, n}), w.fits({batch, seq, heads, d_v}),
                          w.fits({batch, seq, heads}), w.fits({batch, seq, heads}),
                          w.fits_or_none({batch, heads, n, d_v}))
             .y);
  w.keep(ops::wkv(u, w.fits({batch, seq, channels}), w.fits({channels}), w.fits({channels}),
                  w.fits_or_none({batch, 3, channels}))
             .y);
}

inline void rotary(World& w) {
  Bytes& b = w.bytes();
  const int64_t batch = extent(b), seq = extent(b), dim = 2 * extent(b), rows = extent(b) + seq;
  ops::RotaryOptions options{
      static_cast<ops::RotaryPairing>(b.below(2)), b.flag() ? 0 : b.integer(), b.flag() ? 0 : b.integer(), {}};
  if (b.flag()) options.positions = w.fits({batch, seq}, DType::i64);
  const Shape table{rows, b.flag() ? dim : dim / 2};
  const int64_t heads = extent(b);
  const Tensor x = w.fits({batch, seq, heads, dim});
  if (b.flag()) return w.keep(ops::rotary(x, w.fits(table), w.fits(table), options));
  const ops::RmsNormOptions norm{b.number(), b.flag() ? 0 : b.integer(), b.number()};
  const Tensor weight = w.vector_like(x);
  if (b.flag()) return w.keep(ops::norm_rotary(x, weight, w.fits(table), w.fits(table), norm, options));
  const int64_t kv_heads = extent(b);
  w.keep(ops::norm_rotary_packed(x, heads - 2 * kv_heads, kv_heads, weight, weight, w.fits(table), w.fits(table), norm,
                                 options)
             .k);
}

inline void tables(World& w) {
  Bytes& b = w.bytes();
  w.keep(ops::rotary_tables(b.integer(), b.integer(), {b.number(), {}, b.number(), b.integer()}, w.device()).cos);
  w.keep(ops::sinusoidal_table(b.integer(), b.integer(), w.device()));
  w.keep(ops::alibi_slopes(b.integer(), w.device()));
  w.keep(ops::t5_bucket_table(b.integer(), {b.flag(), b.integer(), b.integer()}, w.device()));
}

const Call kOperators[] = {
    [](World& w) {
      const Tensor x = w.tensor();
      w.keep(ops::rms_norm(x, w.vector_like(x), norm_options(w.bytes())));
    },
    [](World& w) {
      const Tensor x = w.tensor();
      const auto out = ops::add_rms_norm(x, w.like(x), w.vector_like(x), norm_options(w.bytes()));
      w.keep(out.h);
      w.keep(out.y);
    },
    [](World& w) {
      const Tensor x = w.tensor();
      w.keep(ops::layer_norm(x, w.vector_like(x), w.vector_like(x), w.bytes().number()));
    },
    [](World& w) {
      const Tensor x = w.tensor();
      w.keep(ops::add_layer_norm(x, w.like(x), w.vector_like(x), w.vector_like(x), w.bytes().number()).y);
    },
    [](World& w) { w.keep(ops::activation(w.tensor(), static_cast<ops::Activation>(w.bytes().below(10)))); },
    [](World& w) {
      Bytes& b = w.bytes();
      w.keep(ops::gated_activation(w.tensor(), static_cast<ops::Gate>(b.below(6)),
                                   {b.flag(), b.number(), b.number(), b.number()}));
    },
    [](World& w) {
      const Tensor a = w.tensor();
      w.keep(ops::add(a, w.like(a)));
    },
    [](World& w) { w.keep(ops::sub(w.tensor(), w.tensor())); },
    [](World& w) {
      const Tensor a = w.tensor();
      w.keep(ops::mul(a, w.vector_like(a)));
    },
    [](World& w) { w.keep(ops::add_scaled(w.tensor(), w.tensor(), w.bytes().number())); },
    [](World& w) { w.keep(ops::scale(w.tensor(), w.bytes().number())); },
    [](World& w) { w.keep(ops::soft_cap(w.tensor(), w.bytes().number())); },
    [](World& w) {
      w.keep(ops::xielu(w.tensor(), w.fits({1}), w.fits({1}), {.beta = w.bytes().number(), .eps = w.bytes().number()}));
    },
    [](World& w) { w.keep(ops::sum(w.tensor())); },
    [](World& w) { w.keep(ops::sum(w.tensor(), w.bytes().axis())); },
    [](World& w) { w.keep(ops::mean(w.tensor())); },
    [](World& w) { w.keep(ops::mean(w.tensor(), w.bytes().axis())); },
    [](World& w) {
      w.keep(ops::concat({w.tensor(), w.tensor()}, w.bytes().axis()));
    },
    [](World& w) {
      w.keep(ops::dropout(w.tensor(), w.bytes().number(), {1, 2}));
    },
    [](World& w) {
      const Tensor ids = w.fits({extent(w.bytes())}, w.bytes().flag() ? DType::i64 : DType::i32);
      const Tensor table = w.fits({extent(w.bytes()), extent(w.bytes())});
      w.keep(w.bytes().flag() ? ops::embedding(table, ids)
                              : ops::embedding(table, ids, {w.bytes().integer(), w.bytes().integer()}));
    },
    [](World& w) {
      const Tensor table = w.fits({extent(w.bytes()), extent(w.bytes())}).clone();
      const Tensor slots = w.fits({extent(w.bytes())}, w.bytes().flag() ? DType::i64 : DType::i32);
      ops::scatter_rows_(table, slots, w.fits({slots.defined() ? slots.numel() : 1, extent(w.bytes())}));
    },
    [](World& w) {
      const int64_t in = extent(w.bytes());
      const int64_t out = extent(w.bytes());
      w.keep(ops::linear(w.fits({extent(w.bytes()), in}), w.fits({out, in}), w.fits_or_none({out}),
                         static_cast<ops::Activation>(w.bytes().below(10))));
    },
    [](World& w) {
      const int64_t k = extent(w.bytes());
      w.keep(ops::matmul(w.fits({extent(w.bytes()), k}), w.fits({k, extent(w.bytes())}),
                         {w.bytes().flag(), w.bytes().flag(), w.bytes().number()}));
    },
    [](World& w) { w.keep(ops::softmax(w.tensor())); },
    [](World& w) { w.keep(ops::log_softmax(w.tensor())); },
    [](World& w) {
      const int64_t rows = extent(w.bytes());
      w.keep(
          ops::cross_entropy(w.fits({rows, extent(w.bytes())}), w.fits({rows}, DType::i64), loss_options(w.bytes())));
    },
    [](World& w) {
      const int64_t rows = extent(w.bytes());
      const int64_t width = extent(w.bytes());
      const int64_t classes = extent(w.bytes());
      w.keep(ops::linear_cross_entropy(w.fits({rows, width}), w.fits({classes, width}), w.fits({rows}, DType::i64),
                                       loss_options(w.bytes()), w.fits_or_none({classes})));
    },
    attention,
    attention_decode,
    paged_attention,
    sample_rows,
    experts,
    grouped_linear,
    conv,
    selective_scan,
    ssd_scan,
    diagonal,
    rotary,
    tables,
};

}  // namespace lamina::fuzz
