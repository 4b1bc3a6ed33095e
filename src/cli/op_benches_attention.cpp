// Attention benchmarks: plain causal attention, each feature at the same shape, and decoding.
#include <cmath>

#include "lamina/cli/op_bench.h"
#include "lamina/ops/attention/attention.h"
#include "lamina/ops/attention/attention_decode.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/linear/linear.h"
#include "lamina/ops/loss/softmax.h"
#include "lamina/ops/position/norm_rotary.h"
#include "lamina/ops/position/tables.h"

namespace lamina::cli {
namespace {

using Setting = OpBenchSetting;
using Tensors = std::vector<Tensor>;

/// A size of attention. text() is "batch x heads x seq x head_dim", which begins a benchmark's name.
struct AttentionSize {
  int64_t batch, heads, seq, head_dim, kv_heads;
  /// Memory order [batch, heads, seq, head_dim] instead of [batch, seq, heads, head_dim].
  bool heads_outermost = false;
  std::string text() const { return str(batch, "x", heads, "x", seq, "x", head_dim); }
};

AttentionSize size_of_features(const Setting& s) {
  const int64_t heads = s.pick(12, 12, 4);
  return {s.pick(64, 4, 1), heads, s.pick(1024, 512, 32), s.pick(64, 64, 16), heads};
}

/// A feature of attention. `extras` creates additional tensors; those that need gradients become leaves.
struct Feature {
  std::string name;
  ops::AttentionOptions options = {};
  std::function<ops::AttentionExtras(const Setting&, const AttentionSize&)> extras = {};
};

std::function<OpCall(const Setting&)> maker(const AttentionSize& size, const Feature& feature) {
  return [size, feature](const Setting& at) {
    const auto random = [&](int64_t heads) {
      if (!size.heads_outermost) return at.random({size.batch, size.seq, heads, size.head_dim});
      return at.random({size.batch, heads, size.seq, size.head_dim}).transpose(1, 2);
    };
    OpCall call{{random(size.heads), random(size.kv_heads), random(size.kv_heads)}, {}};
    const ops::AttentionExtras extras = feature.extras ? feature.extras(at, size) : ops::AttentionExtras{};
    if (extras.t5_bias.defined()) call.leaves.emplace_back(extras.t5_bias);
    if (extras.sinks.defined()) call.leaves.emplace_back(extras.sinks);
    call.run = [options = feature.options, extras](const Tensors& t) {
      ops::AttentionExtras given = extras;
      if (given.t5_bias.defined()) given.t5_bias = t[3];
      if (given.sinks.defined()) given.sinks = t.back();
      return Tensors{ops::attention(t[0], t[1], t[2], options, given)};
    };
    return call;
  };
}

std::vector<Feature> features(const Setting& s) {
  using Extras = ops::AttentionExtras;
  using Kind = ops::AttentionPattern::Kind;
  const int64_t window = s.pick(256, 128, 8);
  std::vector<Feature> all;
  all.push_back({str("window ", window)});
  all.back().options.pattern = {.kind = Kind::window, .window = window};
  all.push_back({"soft cap 50"});
  all.back().options.soft_cap = 50;
  all.push_back({"ALiBi", {}, [](const Setting& at, const AttentionSize& size) {
                   return Extras{.alibi_slopes = ops::alibi_slopes(size.heads, at.device)};
                 }});
  all.push_back({"T5 bias", {}, [](const Setting& at, const AttentionSize& size) {
                   return Extras{.t5_bias = at.random_f32({32, size.heads})};
                 }});
  all.push_back({"sinks", {}, [](const Setting& at, const AttentionSize& size) {
                   return Extras{.sinks = at.random_f32({size.heads})};
                 }});
  all.push_back({"dropout 0.1"});
  all.back().options.dropout = 0.1;
  all.back().options.dropout_key = {1, 2};
  all.push_back({"sparse blocks"});
  all.back().options.pattern = {.kind = Kind::blocks, .block = s.pick(64, 64, 8), .random_blocks = 2};
  return all;
}

/// RMSNorm and RoPE of queries and keys, at 65,536 tokens.
void add_normed_rotation(const Setting& s, const std::vector<OpWay>& ways, std::vector<OpBench>& list) {
  const Shape shape{s.pick(16, 2, 1), s.pick(4096, 512, 16), s.pick(16, 16, 2), s.pick(128, 128, 16)};
  list.push_back(
      {str("norm + rotary ", shape[0], "x", shape[2], "x", shape[1], "x", shape[3]), ways, [shape](const Setting& at) {
         const ops::RotaryTables tables = ops::rotary_tables(shape[1], shape[3], {}, at.device);
         return OpCall{{at.random(shape), {at.random({shape[3]}), DType::f32}}, [tables](const Tensors& t) {
                         return Tensors{ops::norm_rotary(t[0], t[1], tables.cos, tables.sin)};
                       }};
       }});
}

/// Four documents of equal length per row. The GPU operator does not read the document boundaries on the host, so it
/// reports the work of one document per row. Therefore the work is counted for four times as many rows with a quarter
/// of the length.
OpBench packed_documents(const AttentionSize& size, const std::vector<OpWay>& ways) {
  constexpr int64_t kDocuments = 4;
  const auto extras = [](const Setting& at, const AttentionSize& of) {
    std::vector<int64_t> starts;
    for (int64_t i = 0; i <= kDocuments; ++i) starts.push_back(of.seq * i / kDocuments);
    return ops::AttentionExtras{.document_starts = Tensor::from(starts, {kDocuments + 1}, at.device)};
  };
  AttentionSize one = size;
  one.batch *= kDocuments;
  one.seq /= kDocuments;
  return {str("attention ", size.text(), ", 4 documents"), ways, maker(size, {"", {}, extras}), maker(one, {""})};
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): std::function deletes what it holds

/// Attention without tiles: the T × T scores of each head are computed, masked, normalised and stored.
OpBench stored_scores(const AttentionSize& size, const std::vector<OpWay>& ways) {
  return {str("stored-scores attention ", size.text()), ways, [size](const Setting& at) {
            std::vector<double> hidden;
            for (int64_t i = 0; i < size.seq * size.seq; ++i) hidden.push_back(i % size.seq > i / size.seq ? -1e30 : 0);
            const Tensor mask = Tensor::from(hidden, {size.seq, size.seq}, at.device).to(at.dtype);
            const Shape all{size.batch * size.heads, size.seq, size.head_dim};
            OpCall call{{at.random(all), at.random(all), at.random(all)}, {}};
            call.run = [size, mask](const Tensors& t) {
              Tensors outputs;
              for (int64_t i = 0; i < size.batch * size.heads; ++i) {
                const auto head = [&](const Tensor& x) { return x.slice(0, i, 1).reshape({size.seq, size.head_dim}); };
                const Tensor q = ops::scale(head(t[0]), 1 / std::sqrt(static_cast<double>(size.head_dim)));
                const Tensor weights = ops::softmax(ops::add(ops::linear(q, head(t[1])), mask));
                outputs.push_back(ops::linear(weights, head(t[2]).transpose(0, 1)));
              }
              return outputs;
            };
            return call;
          }};
}

void add_decode(const Setting& s, std::vector<OpBench>& list) {
  const int64_t heads = s.pick(32, 32, 4);
  const int64_t kv_heads = s.pick(4, 4, 2);
  const int64_t length = s.pick(4096, 4096, 32);
  const int64_t head_dim = s.pick(64, 64, 16);
  for (const int64_t batch : {int64_t{1}, int64_t{16}}) {
    list.push_back({str("attention decode ", batch, "x", heads, "/", kv_heads, "x", length, "x", head_dim),
                    {OpWay::forward},
                    [=](const Setting& at) {
                      OpCall call{{at.random({batch, 1, heads, head_dim})}, {}};
                      const Tensor cache = at.random({batch, kv_heads, length, head_dim});
                      const std::vector<int64_t> all(static_cast<size_t>(batch), length);
                      const Tensor lengths = Tensor::from(all, {batch}, at.device);
                      call.cycle = at.copies_beyond_caches(2 * cache.nbytes());
                      Tensors caches(1, cache);
                      while (std::ssize(caches) < 2 * call.cycle) caches.push_back(cache.clone());
                      call.run = [caches, lengths, turn = size_t{0}](const Tensors& t) mutable {
                        const size_t k = 2 * turn++ % caches.size();
                        return Tensors{ops::attention_decode(t[0], caches[k], caches[k + 1], lengths)};
                      };
                      return call;
                    }});
  }
}

}  // namespace

void add_attention_benches(const OpBenchSetting& setting, std::vector<OpBench>& list) {
  const std::vector<OpWay> ways{OpWay::forward, OpWay::backward};
  const AttentionSize size = size_of_features(setting);
  AttentionSize longer{setting.pick(4, 1, 1), setting.pick(16, 4, 2), setting.pick(8192, 2048, 64),
                       setting.pick(128, 128, 16), 0};
  longer.kv_heads = longer.heads;
  AttentionSize grouped = size;
  grouped.kv_heads = setting.pick(4, 4, 2);
  list.push_back({"attention " + size.text() + ", positions outermost", ways, maker(size, {""})});
  // The sizes of the recipe shakespeare-char.
  const int64_t few_heads = setting.pick(6, 6, 2);
  const AttentionSize shorter{setting.pick(64, 12, 1), few_heads, setting.pick(256, 256, 16), setting.pick(64, 64, 16),
                              few_heads};
  list.push_back({"attention " + shorter.text() + ", positions outermost", ways, maker(shorter, {""})});
  AttentionSize plain = size;
  // The layout that the PyTorch peers use.
  plain.heads_outermost = longer.heads_outermost = grouped.heads_outermost = true;
  list.push_back({"attention " + plain.text(), ways, maker(plain, {""})});
  list.push_back({"attention " + longer.text(), ways, maker(longer, {""})});
  list.push_back({str("attention ", size.text(), ", ", grouped.kv_heads, " kv heads"), ways, maker(grouped, {""})});
  const int64_t stored_heads = setting.pick(16, 16, 2);
  const AttentionSize stored{1, stored_heads, setting.pick(2048, 2048, 32), setting.pick(64, 64, 16), stored_heads};
  list.push_back({"attention " + stored.text(), ways, maker(stored, {""})});
  for (const Feature& feature : features(setting)) {
    list.push_back({str("attention ", size.text(), ", ", feature.name), ways, maker(size, feature)});
  }
  list.push_back(packed_documents(size, ways));
  add_decode(setting, list);
  list.push_back({"rotary " + size.text(), ways, [size](const Setting& at) {
                    const ops::RotaryTables tables = ops::rotary_tables(size.seq, size.head_dim, {}, at.device);
                    return OpCall{
                        {at.random({size.batch, size.seq, size.heads, size.head_dim})},
                        [tables](const Tensors& t) { return Tensors{ops::rotary(t[0], tables.cos, tables.sin)}; }};
                  }});
  add_normed_rotation(setting, ways, list);
  for (OpBench& bench : list) {
    if (bench.name.starts_with("attention decode")) {
      bench.forward_choice = "attention_decode";
    } else if (bench.name.starts_with("attention")) {
      bench.forward_choice = "attention_forward";
      bench.backward_choice = "attention_backward";
    }
  }
  list.push_back(stored_scores(stored, ways));
}

}  // namespace lamina::cli
