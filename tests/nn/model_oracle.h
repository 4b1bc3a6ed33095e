// A dense decoder from its formulas, in plain loops over one sequence, for any scalar type: double gives the truth,
// float the naive error. It shares only the architecture description and the weight names with the library.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "lamina/arch/layers.h"
#include "lamina/arch/spec.h"

namespace lamina::testing {

using OracleWeights = std::map<std::string, std::vector<double>>;

template <class S>
class ModelOracle {
 public:
  using Row = std::vector<S>;
  using Rows = std::vector<Row>;

  ModelOracle(const arch::ArchSpec& spec, const OracleWeights& weights) : spec_(spec), weights_(weights) {}

  /// Logits [seq, vocab] of one sequence of ids.
  Rows logits(const std::vector<int64_t>& ids) const {
    Rows x = embed(ids);
    size_t index = 0;
    for (const arch::Block* block : arch::layer_blocks(spec_))
      layer(*block, "layers." + std::to_string(index++) + ".", x);
    if (*spec_.final_norm) x = norm(x, spec_.norm, "final_norm");
    if (has("head.project_out.weight")) x = linear(x, "head.project_out");
    x = product(x, at(spec_.head.tied ? "embedding.weight" : "head.weight"),
                has("head.bias") ? at("head.bias") : Row{});
    const S factor = S(std::get<arch::ConstantScale>(spec_.head.scale).value);
    for (Row& row : x) {
      for (S& value : row) {
        value *= factor;
        if (spec_.head.soft_cap) value = S(*spec_.head.soft_cap) * std::tanh(value / S(*spec_.head.soft_cap));
      }
    }
    return x;
  }

  /// Attention weights of the last logits() by mixer ("layers.0.mixer."): for each head a row [seq · seq].
  const std::map<std::string, Rows>& attention() const { return attention_; }

 private:
  bool has(const std::string& name) const { return weights_.count(name) > 0; }
  Row at(const std::string& name) const {
    const std::vector<double>& values = weights_.at(name);
    return Row(values.begin(), values.end());
  }

  static Rows product(const Rows& x, const Row& weight, const Row& bias) {
    const size_t in = x[0].size();
    const size_t out = weight.size() / in;
    Rows y(x.size(), Row(out));
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t o = 0; o < out; ++o) {
        S sum = bias.empty() ? S(0) : bias[o];
        for (size_t i = 0; i < in; ++i) sum += x[t][i] * weight[o * in + i];
        y[t][o] = sum;
      }
    }
    return y;
  }
  Rows linear(const Rows& x, const std::string& name) const {
    return product(x, at(name + ".weight"), has(name + ".bias") ? at(name + ".bias") : Row{});
  }

  /// Norm with statistics per group of `group` consecutive elements; 0: one group per row.
  Rows norm(const Rows& x, const arch::Norm& spec, const std::string& name, size_t group = 0) const {
    const bool centred =
        std::holds_alternative<arch::LayerNorm>(spec) || std::holds_alternative<arch::LayerNormNoParams>(spec);
    const S eps = S(std::visit([](const auto& n) { return n.eps; }, spec));
    S offset = S(0);
    if (const auto* rms = std::get_if<arch::RmsNorm>(&spec)) {
      offset = S(rms->offset);
      if (rms->group_size) group = static_cast<size_t>(*rms->group_size);
    }
    if (const auto* layer = std::get_if<arch::LayerNorm>(&spec)) offset = S(layer->offset);
    const Row weight = has(name + ".weight") ? at(name + ".weight") : Row{};
    const Row bias = has(name + ".bias") ? at(name + ".bias") : Row{};
    Rows y = x;
    for (Row& row : y) {
      const size_t n = group == 0 ? row.size() : group;
      for (size_t first = 0; first < row.size(); first += n) {
        S mean = S(0);
        for (size_t i = 0; i < n; ++i) mean += row[first + i];
        mean = centred ? mean / S(n) : S(0);
        S square = S(0);
        for (size_t i = 0; i < n; ++i) square += (row[first + i] - mean) * (row[first + i] - mean);
        const S inverse = S(1) / std::sqrt(square / S(n) + eps);
        for (size_t i = first; i < first + n; ++i) {
          row[i] = (row[i] - mean) * inverse;
          // A scale narrower than the row is shared by all heads.
          if (!weight.empty()) row[i] *= weight[i % weight.size()] + offset;
          if (!bias.empty()) row[i] += bias[i % bias.size()];
        }
      }
    }
    return y;
  }

  static Rows sum(const Rows& a, const Rows& b, S factor) {
    Rows y = a;
    for (size_t t = 0; t < a.size(); ++t) {
      for (size_t i = 0; i < a[t].size(); ++i) y[t][i] += factor * b[t][i];
    }
    return y;
  }

  Rows embed(const std::vector<int64_t>& ids) const {
    const Row table = at("embedding.weight");
    const auto width = static_cast<size_t>(*spec_.embedding.d_embed);
    const S factor = S(std::get<arch::ConstantScale>(spec_.embedding.scale).value);
    Rows x;
    for (const int64_t id : ids) {
      const auto first = table.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(id) * width);
      x.emplace_back(first, first + static_cast<std::ptrdiff_t>(width));
      for (S& value : x.back()) value *= factor;
    }
    if (has("embedding.project_in.weight")) x = linear(x, "embedding.project_in");
    const auto d = static_cast<size_t>(spec_.d_model);
    if (const auto* learned = std::get_if<arch::LearnedPosition>(&spec_.position)) {
      const Row rows = at("position.weight");
      for (size_t t = 0; t < x.size(); ++t) {
        for (size_t i = 0; i < d; ++i) x[t][i] += rows[(t + static_cast<size_t>(learned->offset)) * d + i];
      }
    }
    if (const auto* waves = std::get_if<arch::SinusoidalPosition>(&spec_.position)) {
      for (size_t t = 0; t < x.size(); ++t) {
        for (size_t i = 0; i < d; ++i) {
          const double angle =
              static_cast<double>(t) / std::pow(waves->theta, static_cast<double>(i / 2 * 2) / static_cast<double>(d));
          x[t][i] += S(i % 2 == 0 ? std::sin(angle) : std::cos(angle));
        }
      }
    }
    return spec_.embedding.norm ? norm(x, *spec_.embedding.norm, "embedding.norm") : x;
  }

  void layer(const arch::Block& block, const std::string& name, Rows& x) const {
    const S factor = S(block.residual_scale);
    const auto add = [&](const Rows& stream, const Rows& output) {
      return sum(sum(Rows(stream.size(), Row(stream.front().size(), S(0))), stream, S(block.skip_scale)), output,
                 factor);
    };
    const auto before = [&](const Rows& in, const char* slot) {
      return has_slot(block, slot) ? norm(in, *block.norm, name + slot) : in;
    };
    const auto mix = [&](const Rows& in) { return mixer(std::get<arch::Attention>(block.mixer), name + "mixer.", in); };
    const auto feed = [&](const Rows& in) { return ffn(block.ffn, name + "ffn.", in); };
    using arch::Placement;
    const auto sublayer = [&](const auto& f, const char* input, const char* output) {
      switch (block.placement) {
        case Placement::pre: x = add(x, f(before(x, input))); break;
        case Placement::post: x = before(add(x, f(x)), input); break;
        case Placement::sandwich: x = add(x, before(f(before(x, input)), output)); break;
        case Placement::branch_post: x = add(x, before(f(x), output)); break;
        case Placement::residual_after_norm: {
          const Rows n = before(x, input);
          x = add(n, f(n));
        }
      }
    };
    const auto* parallel = std::get_if<arch::ParallelWiring>(&block.wiring);
    if (parallel == nullptr) {
      if (arch::has_mixer(block)) sublayer(mix, "mixer_norm", "mixer_output_norm");
      if (arch::has_ffn(block)) sublayer(feed, "ffn_norm", "ffn_output_norm");
      return;
    }
    const Rows start = block.placement == Placement::residual_after_norm ? before(x, "norm") : x;
    const bool plain = block.placement == Placement::post || block.placement == Placement::branch_post ||
                       block.placement == Placement::residual_after_norm;
    const bool shared = parallel->shared_norm;
    const Rows m = before(mix(plain ? start : before(x, shared ? "norm" : "mixer_norm")), "mixer_output_norm");
    const Rows f = before(feed(plain ? start : before(x, shared ? "norm" : "ffn_norm")), "ffn_output_norm");
    x = add(start, sum(m, f, S(1)));
    if (block.placement == Placement::post) x = before(x, "norm");
  }

  static bool has_slot(const arch::Block& block, const std::string& name) {
    for (const arch::NormSlot slot : arch::norm_slots(block)) {
      if (name == names_of(slot)[static_cast<size_t>(slot)]) return true;
    }
    return false;
  }

  static S activate(const std::string& name, S x) {
    const S one = S(1);
    const S half = S(0.5);
    if (name == "relu") return x > S(0) ? x : S(0);
    if (name == "relu2") return x > S(0) ? x * x : S(0);
    if (name == "sigmoid") return one / (one + std::exp(-x));
    if (name == "silu") return x / (one + std::exp(-x));
    if (name == "gelu") return x * half * (one + std::erf(x / std::sqrt(S(2))));
    if (name == "gelu_tanh") {
      return x * half * (one + std::tanh(std::sqrt(S(2) / std::acos(S(-1))) * (x + S(0.044715) * x * x * x)));
    }
    if (name == "tanh") return std::tanh(x);
    if (name == "elu") return x > S(0) ? x : std::exp(x) - one;
    if (name == "selu") {
      return S(1.0507009873554805) * (x > S(0) ? x : S(1.6732632423543772) * (std::exp(x) - one));
    }
    return x;
  }

  S xielu(const arch::Xielu& spec, const std::string& name, S x) const {
    const S beta = S(spec.beta);
    if (x > S(0)) return std::log(S(1) + std::exp(at(name + "xielu.alpha_p")[0])) * x * x + beta * x;
    const S fall = beta + std::log(S(1) + std::exp(at(name + "xielu.alpha_n")[0]));
    return fall * (std::expm1(std::min(x, S(spec.eps))) - x) + beta * x;
  }

  Rows ffn(const arch::Ffn& spec, const std::string& name, const Rows& x) const {
    if (const auto* plain = std::get_if<arch::PlainFfn>(&spec)) {
      Rows inner = linear(x, name + "up");
      const std::string function(names_of(plain->activation)[static_cast<size_t>(plain->activation)]);
      for (Row& row : inner) {
        for (S& value : row) value = plain->xielu ? xielu(*plain->xielu, name, value) : activate(function, value);
      }
      return linear(inner, name + "down");
    }
    const auto& gated = std::get<arch::GatedFfn>(spec);
    static const std::map<arch::Gate, std::string> kFunctions = {
        {arch::Gate::glu, "sigmoid"},          {arch::Gate::reglu, "relu"},  {arch::Gate::geglu, "gelu"},
        {arch::Gate::geglu_tanh, "gelu_tanh"}, {arch::Gate::swiglu, "silu"}, {arch::Gate::liglu, "none"}};
    Rows gate = linear(x, name + "gate");
    const Rows up = linear(x, name + "up");
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t i = 0; i < gate[t].size(); ++i) {
        S g = gate[t][i];
        S u = up[t][i];
        if (gated.limit) {
          g = std::min(g, S(*gated.limit));
          u = std::max(std::min(u, S(*gated.limit)), S(-*gated.limit));
        }
        g = g * S(gated.gate_scale);
        gate[t][i] =
            activate(kFunctions.at(gated.gate), S(gated.alpha) * g) / S(gated.alpha) * (u + S(gated.up_offset));
      }
    }
    Rows out = linear(gate, name + "down");
    for (Row& row : out) {
      for (S& value : row) value = value * S(gated.out_scale);
    }
    return out;
  }

  static bool sees(const arch::Pattern& pattern, int64_t i, int64_t j) {
    if (j > i) return false;
    if (const auto* p = std::get_if<arch::WindowPattern>(&pattern)) return i - j < p->size;
    if (const auto* p = std::get_if<arch::LongformerPattern>(&pattern)) {
      return i - j < p->window || j < p->global_tokens || i < p->global_tokens;
    }
    if (const auto* p = std::get_if<arch::ChunkPattern>(&pattern)) return i / p->size == j / p->size;
    if (const auto* p = std::get_if<arch::StridedPattern>(&pattern))
      return i - j < p->window || (i - j) % p->stride == 0;
    if (const auto* p = std::get_if<arch::BigBirdPattern>(&pattern)) {  // random blocks are not supported here
      return i / p->block - j / p->block <= p->window_blocks || j / p->block < p->global_blocks ||
             i / p->block < p->global_blocks;
    }
    return true;
  }

  static size_t t5_bucket(int64_t distance, const arch::T5Bias& t5) {
    const int64_t buckets = t5.bidirectional ? t5.buckets / 2 : t5.buckets;
    const int64_t exact = buckets / 2;
    if (distance < exact) return static_cast<size_t>(distance);
    const double share = std::log(static_cast<double>(distance) / static_cast<double>(exact)) /
                         std::log(static_cast<double>(t5.max_distance) / static_cast<double>(exact));
    return static_cast<size_t>(
        std::min(buckets - 1, exact + static_cast<int64_t>(share * static_cast<double>(buckets - exact))));
  }

  /// ALiBi slopes of the reference code for any number of heads: 2^(−max_bias·h/n) with n the largest power of two up
  /// to `heads`; the other heads take every second slope of 2n heads.
  static double slope(const arch::Alibi& alibi, int64_t heads, int64_t h) {
    int64_t power = 1;
    while (2 * power <= heads) power *= 2;
    const double exponent = h < power ? static_cast<double>(h + 1) / static_cast<double>(power)
                                      : static_cast<double>(2 * (h - power) + 1) / static_cast<double>(2 * power);
    return std::pow(2.0, -alibi.max_bias * exponent);
  }

  /// Rounds to bf16: eight significant bits.
  static double to_bf16(double value) {
    int exponent = 0;
    const double mantissa = std::frexp(value, &exponent);
    return std::ldexp(std::nearbyint(std::ldexp(mantissa, 8)), exponent - 8);
  }

  static double alibi_bias(const arch::Alibi& alibi, int64_t heads, size_t h, size_t query, size_t key) {
    const double steep = slope(alibi, heads, static_cast<int64_t>(h));
    if (alibi.rounding == arch::BiasRounding::f32) return -alibi.slope_scale * steep * static_cast<double>(query - key);
    return alibi.slope_scale * to_bf16(to_bf16(steep) * to_bf16(static_cast<double>(key)));
  }

  /// Rotates each head of x in place; supports only unscaled RoPE and linear scaling.
  static void rotate(const arch::Rope& rope, size_t heads, Rows& x) {
    const auto* linear = std::get_if<arch::LinearScaling>(&rope.scaling);
    const auto dim = static_cast<size_t>(*rope.rotary_dim);
    const size_t width = x[0].size() / heads;
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t h = 0; h < heads; ++h) {
        for (size_t i = 0; i < dim / 2; ++i) {
          const double turn = std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim)) /
                              (linear ? linear->factor : 1.0);
          const S cos = S(std::cos(static_cast<double>(t) * turn));
          const S sin = S(std::sin(static_cast<double>(t) * turn));
          const bool half = rope.pairing == arch::Pairing::half_split;
          S& a = x[t][h * width + (half ? i : 2 * i)];
          S& b = x[t][h * width + (half ? i + dim / 2 : 2 * i + 1)];
          const S turned = a * cos - b * sin;
          b = b * cos + a * sin;
          a = turned;
        }
      }
    }
  }

  /// The norm of queries and keys, if it has its place before or after the rotation.
  void norm_heads(const arch::Attention& a, const std::string& name, size_t d, bool after, Rows& q, Rows& k) const {
    const auto* per_head = std::get_if<arch::PerHeadQkNorm>(&a.qk_norm);
    if (per_head != nullptr && per_head->after_rope == after) {
      q = norm(q, *per_head->norm, name + "q_norm", d);
      k = norm(k, *per_head->norm, name + "k_norm", d);
    }
    const auto* whole = std::get_if<arch::WholeQkNorm>(&a.qk_norm);
    if (whole != nullptr && whole->after_rope == after) {
      q = norm(q, *whole->norm, name + "q_norm");
      k = norm(k, *whole->norm, name + "k_norm");
    }
  }

  Rows mixer(const arch::Attention& a, const std::string& name, const Rows& x) const {
    const auto heads = static_cast<size_t>(a.n_heads);
    const auto kv_heads = static_cast<size_t>(*a.n_kv_heads);
    const auto d = static_cast<size_t>(*a.head_dim);
    const auto dv = static_cast<size_t>(*a.v_head_dim);
    Rows q = linear(x, name + "q");
    Rows k = linear(x, name + "k");
    Rows v = linear(x, name + "v");
    if (a.clip_qkv) {
      for (Rows* rows : {&q, &k, &v}) {
        for (Row& row : *rows) {
          for (S& value : row) value = std::max(std::min(value, S(*a.clip_qkv)), S(-*a.clip_qkv));
        }
      }
    }
    norm_heads(a, name, d, false, q, k);
    if (const auto* rope = std::get_if<arch::Rope>(&*a.position)) {
      rotate(*rope, heads, q);
      rotate(*rope, kv_heads, k);
    }
    norm_heads(a, name, d, true, q, k);
    for (size_t t = 0; a.temperature && t < q.size(); ++t) {
      const auto steps = std::floor(static_cast<double>(t + 1) / static_cast<double>(a.temperature->interval));
      for (S& value : q[t]) value *= S(1.0 + a.temperature->scale * std::log(1.0 + steps));
    }
    const Row sinks = a.sinks ? at(name + "sinks") : Row{};
    const auto* t5 = std::get_if<arch::T5Bias>(&*a.position);
    const Row buckets = t5 == nullptr ? Row{} : at(t5->shared ? "position.weight" : name + "position.weight");
    const auto* alibi = std::get_if<arch::Alibi>(&*a.position);
    Rows y(x.size(), Row(heads * dv));
    Rows& maps = attention_[name] = Rows(heads, Row(x.size() * x.size()));
    for (size_t h = 0; h < heads; ++h) {
      const size_t g = h / (heads / kv_heads);
      for (size_t i = 0; i < x.size(); ++i) {
        Row scores(i + 1);
        S total = sinks.empty() ? S(0) : std::exp(sinks[h]);
        for (size_t j = 0; j <= i; ++j) {
          S score = S(0);
          for (size_t c = 0; c < d; ++c) score += q[i][h * d + c] * k[j][g * d + c];
          score *= S(*a.scale);
          if (a.soft_cap) score = S(*a.soft_cap) * std::tanh(score / S(*a.soft_cap));
          const auto distance = static_cast<int64_t>(i - j);
          if (alibi != nullptr) score += S(alibi_bias(*alibi, a.n_heads, h, i, j));
          if (t5 != nullptr) score += buckets[t5_bucket(distance, *t5) * heads + h];
          const bool seen = sees(a.pattern, static_cast<int64_t>(i), static_cast<int64_t>(j));
          scores[j] = seen ? std::exp(score) : S(0);
          total += scores[j];
        }
        for (size_t j = 0; j <= i; ++j) {
          maps[h][i * x.size() + j] = scores[j] / total;
          for (size_t c = 0; c < dv; ++c) y[i][h * dv + c] += scores[j] / total * v[j][g * dv + c];
        }
      }
    }
    if (a.gate) {
      const Rows gate = linear(x, name + "gate");
      for (size_t t = 0; t < y.size(); ++t) {
        for (size_t c = 0; c < y[t].size(); ++c) y[t][c] *= activate("sigmoid", gate[t][c]);
      }
    }
    return linear(y, name + "o");
  }

  const arch::ArchSpec& spec_;
  const OracleWeights& weights_;
  mutable std::map<std::string, Rows> attention_;
};

}  // namespace lamina::testing
