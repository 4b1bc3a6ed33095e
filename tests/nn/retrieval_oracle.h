// A decoder with retrieval (arXiv:2112.04426) from its formulas, in plain f64 loops over one sequence. It supports the
// switches of retro-tiny: RMS norm before sublayers, RoPE or no positions, grouped queries, plain and gated
// feed-forwards. It shares only the architecture description and the weight names with the library.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "lamina/arch/layers.h"
#include "lamina/arch/spec.h"

namespace lamina::testing {

class RetrievalOracle {
 public:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;
  using Weights = std::map<std::string, Row>;

  RetrievalOracle(const arch::ArchSpec& spec, const Weights& weights) : spec_(spec), weights_(weights) {}

  /// Logits [seq, vocab]. neighbours[u][j] are the tokens of neighbour j of chunk u (from 0).
  Rows logits(const std::vector<int64_t>& ids, const std::vector<std::vector<std::vector<int64_t>>>& neighbours) const {
    Rows x = embed(ids, "");
    std::vector<std::vector<Rows>> encoded;  // of chunk u, neighbour j
    size_t index = 0;
    for (const arch::Block* block : arch::layer_blocks(spec_)) {
      const std::string name = "layers." + std::to_string(index++) + ".";
      add(x,
          self_attention(std::get<arch::Attention>(block->mixer), name + "mixer.", norm(x, name + "mixer_norm"), true));
      if (block->cross && !neighbours.empty()) {
        const Rows in = norm(x, name + "cross_norm");
        if (encoded.empty()) encoded = encode(neighbours, in);
        add(x, chunked(*block->cross, name + "cross.", in, encoded));
      }
      add(x, feed_forward(block->ffn, name + "ffn.", norm(x, name + "ffn_norm")));
    }
    return product(norm(x, "final_norm"), at(spec_.head.tied ? "embedding.weight" : "head.weight"));
  }

 private:
  const Row& at(const std::string& name) const { return weights_.at(name); }
  size_t m() const { return static_cast<size_t>(spec_.retrieval->chunk); }

  static Rows product(const Rows& x, const Row& weight) {
    Rows y;
    for (const Row& row : x) {
      const size_t in = row.size();
      Row out(weight.size() / in);
      for (size_t o = 0; o < out.size(); ++o) {
        for (size_t i = 0; i < in; ++i) out[o] += row[i] * weight[o * in + i];
      }
      y.push_back(out);
    }
    return y;
  }
  Rows linear(const Rows& x, const std::string& name) const {
    Rows y = product(x, at(name + ".weight"));
    if (weights_.count(name + ".bias") == 0) return y;
    for (Row& row : y) {
      for (size_t i = 0; i < row.size(); ++i) row[i] += at(name + ".bias")[i];
    }
    return y;
  }
  Rows norm(Rows x, const std::string& name) const {
    for (Row& row : x) {
      double square = 0;
      for (const double value : row) square += value * value;
      const double inverse =
          1 / std::sqrt(square / static_cast<double>(row.size()) + std::get<arch::RmsNorm>(spec_.norm).eps);
      for (size_t i = 0; i < row.size(); ++i) row[i] *= inverse * at(name + ".weight")[i];
    }
    return x;
  }
  static void add(Rows& x, const Rows& y) {
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t i = 0; i < x[t].size(); ++i) x[t][i] += y[t][i];
    }
  }
  Rows embed(const std::vector<int64_t>& ids, const std::string& prefix) const {
    const Row& table = at(prefix + "embedding.weight");
    const size_t width = table.size() / static_cast<size_t>(spec_.vocab_size);
    Rows x;
    for (const int64_t id : ids) {
      const auto first = table.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(id) * width);
      x.emplace_back(first, first + static_cast<std::ptrdiff_t>(width));
    }
    return x;
  }
  Rows feed_forward(const arch::Ffn& ffn, const std::string& name, const Rows& x) const {
    Rows up = linear(x, name + "up");
    const bool gated = std::holds_alternative<arch::GatedFfn>(ffn);
    const Rows gate = gated ? linear(x, name + "gate") : Rows();
    for (size_t t = 0; t < up.size(); ++t) {
      for (size_t i = 0; i < up[t].size(); ++i) {
        double& u = up[t][i];
        if (gated)
          u *= gate[t][i] / (1 + std::exp(-gate[t][i]));  // SwiGLU
        else
          u = u * 0.5 * (1 + std::erf(u / std::sqrt(2.0)));  // GELU
      }
    }
    return linear(up, name + "down");
  }

  /// One head row of width d, rotated for a position; pairs are (i, i + dim/2).
  static void rotate(const arch::LayerPosition& position, double place, double* head) {
    const auto* rope = std::get_if<arch::Rope>(&position);
    if (rope == nullptr) return;
    const auto half = static_cast<size_t>(*rope->rotary_dim) / 2;
    for (size_t i = 0; i < half; ++i) {
      const double angle = place * std::pow(rope->theta, -static_cast<double>(i) / static_cast<double>(half));
      const double cos = static_cast<float>(std::cos(angle));  // tables of rotations are f32
      const double sin = static_cast<float>(std::sin(angle));
      const double a = head[i];
      const double b = head[i + half];
      head[i] = a * cos - b * sin;
      head[i + half] = b * cos + a * sin;
    }
  }
  struct Heads {
    size_t n;
    size_t kv;
    size_t d;
    double scale;
  };
  static void rotate_all(const arch::LayerPosition& position, size_t heads, size_t d, double place, Row& row) {
    for (size_t h = 0; h < heads; ++h) rotate(position, place, row.data() + h * d);
  }
  /// softmax(scale · q kᵀ) v of one query row over the given keys.
  static Row attend(const Heads& heads, const Row& q, const Rows& k, const Rows& v) {
    Row y(heads.n * heads.d);
    for (size_t h = 0; h < heads.n; ++h) {
      const size_t g = h / (heads.n / heads.kv);
      Row weight(k.size());
      double total = 0;
      for (size_t j = 0; j < k.size(); ++j) {
        double score = 0;
        for (size_t c = 0; c < heads.d; ++c) score += q[h * heads.d + c] * k[j][g * heads.d + c];
        weight[j] = std::exp(heads.scale * score);
        total += weight[j];
      }
      for (size_t j = 0; j < k.size(); ++j) {
        for (size_t c = 0; c < heads.d; ++c) y[h * heads.d + c] += weight[j] / total * v[j][g * heads.d + c];
      }
    }
    return y;
  }
  static Heads heads_of(const auto& a) {
    return {static_cast<size_t>(a.n_heads), static_cast<size_t>(*a.n_kv_heads), static_cast<size_t>(*a.head_dim),
            *a.scale};
  }

  Rows self_attention(const arch::Attention& a, const std::string& name, const Rows& x, bool causal) const {
    const Heads heads = heads_of(a);
    Rows q = linear(x, name + "q");
    Rows k = linear(x, name + "k");
    const Rows v = linear(x, name + "v");
    for (size_t t = 0; t < x.size(); ++t) {
      rotate_all(*a.position, heads.n, heads.d, static_cast<double>(t), q[t]);
      rotate_all(*a.position, heads.kv, heads.d, static_cast<double>(t), k[t]);
    }
    Rows y;
    for (size_t t = 0; t < x.size(); ++t) {
      const size_t seen = causal ? t + 1 : x.size();
      const auto first = [seen](const Rows& rows) {
        return Rows(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(seen));
      };
      y.push_back(attend(heads, q[t], first(k), first(v)));
    }
    return linear(y, name + "o");
  }

  /// Every neighbour by itself; layers with cross-attention see the decoder's states of its chunk.
  std::vector<std::vector<Rows>> encode(const std::vector<std::vector<std::vector<int64_t>>>& neighbours,
                                        const Rows& states) const {
    std::vector<std::vector<Rows>> all;
    for (size_t u = 0; u < neighbours.size(); ++u) {
      const Rows chunk(states.begin() + static_cast<std::ptrdiff_t>(u * m()),
                       states.begin() + static_cast<std::ptrdiff_t>((u + 1) * m()));
      std::vector<Rows>& of_chunk = all.emplace_back();
      for (const std::vector<int64_t>& ids : neighbours[u]) {
        Rows e = embed(ids, *spec_.retrieval->shared_embedding ? "" : "retrieval.");
        size_t index = 0;
        for (const arch::Block* block : arch::layer_blocks(spec_.retrieval->layers)) {
          const std::string name = "retrieval.layers." + std::to_string(index++) + ".";
          add(e, self_attention(std::get<arch::Attention>(block->mixer), name + "mixer.", norm(e, name + "mixer_norm"),
                                false));
          if (block->cross) add(e, cross(*block->cross, name + "cross.", norm(e, name + "cross_norm"), chunk));
          add(e, feed_forward(block->ffn, name + "ffn.", norm(e, name + "ffn_norm")));
        }
        of_chunk.push_back(norm(e, "retrieval.final_norm"));
      }
    }
    return all;
  }

  Rows cross(const arch::CrossAttention& a, const std::string& name, const Rows& x, const Rows& source) const {
    const Heads heads = heads_of(a);
    Rows q = linear(x, name + "q");
    Rows k = linear(source, name + "k");
    for (size_t t = 0; t < q.size(); ++t) rotate_all(*a.position, heads.n, heads.d, static_cast<double>(t), q[t]);
    for (size_t t = 0; t < k.size(); ++t) rotate_all(*a.position, heads.kv, heads.d, static_cast<double>(t), k[t]);
    Rows y;
    for (const Row& row : q) y.push_back(attend(heads, row, k, linear(source, name + "v")));
    return linear(y, name + "o");
  }

  Rows chunked(const arch::CrossAttention& a, const std::string& name, const Rows& x,
               const std::vector<std::vector<Rows>>& encoded) const {
    const Heads heads = heads_of(a);
    Rows out(x.size(), Row(x[0].size()));
    for (size_t t = 0; t < x.size(); ++t) {
      const size_t complete = (t + 1) / m();  // chunks that end at or before t
      if (complete == 0) continue;
      Rows k;
      Rows v;
      for (const Rows& neighbour : encoded[complete - 1]) {
        Rows own = linear(neighbour, name + "k");
        for (size_t i = 0; i < own.size(); ++i)
          rotate_all(*a.position, heads.kv, heads.d, static_cast<double>(i), own[i]);
        k.insert(k.end(), own.begin(), own.end());
        own = linear(neighbour, name + "v");
        v.insert(v.end(), own.begin(), own.end());
      }
      Rows q = linear({x[t]}, name + "q");
      rotate_all(*a.position, heads.n, heads.d, static_cast<double>(m() - 1 + (t + 1) % m()), q[0]);
      out[t] = linear({attend(heads, q[0], k, v)}, name + "o")[0];
    }
    return out;
  }

  const arch::ArchSpec& spec_;
  const Weights& weights_;
};

}  // namespace lamina::testing
