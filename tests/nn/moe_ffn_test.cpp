// Mixture of experts against plain loops over tokens and their chosen experts.
#include <algorithm>
#include <numeric>

#include "support/block_oracle.h"

namespace lamina::testing {
namespace {

constexpr int64_t kMoeWidth = 5;

/// The feed-forward of one expert, or of the shared experts, for one token.
template <class S>
std::vector<S> feed_forward(const Weights<S>& w, const std::string& name, int64_t expert, const arch::ExpertFfn& spec,
                            int64_t d_ff, const S* x) {
  const auto product = [&](const std::string& part, const S* from, int64_t out, int64_t in) {
    const Array<S>& weight = w.at(name + "." + part + ".weight");
    const auto bias = w.find(name + "." + part + ".bias");
    std::vector<S> y;
    for (int64_t o = expert * out; o < (expert + 1) * out; ++o) {
      S sum = bias == w.end() ? S(0) : bias->second[o];
      for (int64_t i = 0; i < in; ++i) sum += weight[o * in + i] * from[i];
      y.push_back(sum);
    }
    return y;
  };
  std::vector<S> inner = product("up", x, d_ff, kMoeWidth);
  if (const auto* gated = std::get_if<arch::GatedFfn>(&spec)) {
    const std::vector<S> gate = product("gate", x, d_ff, kMoeWidth);
    for (size_t i = 0; i < inner.size(); ++i) {
      S g = gate[i];
      S u = inner[i];
      if (gated->limit) {
        const double limit = *gated->limit;
        if (value_of(g) > limit) g = S(limit);
        if (value_of(u) > limit) u = S(limit);
        if (value_of(u) < -limit) u = S(-limit);
      }
      g = g * S(gated->gate_scale);
      inner[i] = g * plain::sigmoid(S(gated->alpha) * g) * (u + S(gated->up_offset));
    }
  } else {
    for (S& value : inner) value = plain::gelu(value);
  }
  std::vector<S> out = product("down", inner.data(), kMoeWidth, d_ff);
  const auto* gated = std::get_if<arch::GatedFfn>(&spec);
  for (S& value : out) value = value * S(gated == nullptr ? 1.0 : gated->out_scale);
  return out;
}

/// The chosen experts of one token, best first.
std::vector<int64_t> choose(const arch::Moe& m, const std::vector<double>& scores) {
  std::vector<bool> open(scores.size(), m.groups == 1);
  const auto size = static_cast<size_t>(m.experts / m.groups);
  if (m.groups > 1) {
    std::vector<std::pair<double, size_t>> groups;
    for (size_t g = 0; g < static_cast<size_t>(m.groups); ++g) {
      std::vector<double> own(scores.begin() + static_cast<std::ptrdiff_t>(g * size),
                              scores.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
      std::sort(own.rbegin(), own.rend());
      groups.emplace_back(-std::accumulate(own.begin(), own.begin() + m.group_best, 0.0), g);
    }
    std::sort(groups.begin(), groups.end());
    for (size_t g = 0; g < static_cast<size_t>(m.top_groups); ++g) {
      std::fill_n(open.begin() + static_cast<std::ptrdiff_t>(groups[g].second * size), size, true);
    }
  }
  std::vector<std::pair<double, int64_t>> order;
  for (size_t e = 0; e < scores.size(); ++e) {
    if (open[e]) order.emplace_back(-scores[e], static_cast<int64_t>(e));
  }
  std::sort(order.begin(), order.end());
  std::vector<int64_t> chosen;
  for (int64_t k = 0; k < m.top_k; ++k) chosen.push_back(order[static_cast<size_t>(k)].second);
  return chosen;
}

/// Replaces the logits of the chosen experts by their softmax among the experts that are left and near.
template <class S>
void weigh_near(const arch::Moe& m, const std::vector<int64_t>& chosen, std::vector<S>& logits) {
  using std::exp;
  const std::vector<S> z = logits;
  for (size_t j = 0; j < chosen.size(); ++j) {
    const S own = z[static_cast<size_t>(chosen[j])];
    S sum(0);
    for (size_t e = 0; e < z.size(); ++e) {
      const auto before = chosen.begin() + static_cast<std::ptrdiff_t>(j);
      if (std::find(chosen.begin(), before, static_cast<int64_t>(e)) != before) continue;
      const double other = value_of(z[e]);
      if ((value_of(own) - other) / std::max(std::abs(other), value_of(own)) <= m.near) sum += exp(z[e] - own);
    }
    logits[static_cast<size_t>(chosen[j])] = S(1) / sum;
  }
}

struct MoeOracle {
  arch::Moe m;

  template <class S>
  Array<S> operator()(const Weights<S>& w, const Array<S>& x) const {
    using std::exp;
    const Array<S> logits = plain::linear(w, "ffn.router", x);
    const int64_t d_ff = std::visit([](const auto& e) { return *e.d_ff; }, m.expert);
    Array<S> y(x.shape);
    for (int64_t t = 0; t < plain::rows_of(x); ++t) {
      const S* z = logits.values.data() + t * m.experts;
      std::vector<S> scores;
      S sum(0);
      for (int64_t e = 0; e < m.experts; ++e) sum += exp(z[e]);
      for (int64_t e = 0; e < m.experts; ++e) {
        if (m.score == arch::RouterScore::sigmoid) scores.push_back(plain::sigmoid(z[e]));
        if (m.score == arch::RouterScore::softmax) scores.push_back(exp(z[e]) / sum);
        if (m.score == arch::RouterScore::softmax_of_chosen) scores.push_back(z[e]);
        if (m.score == arch::RouterScore::softmax_of_near) scores.push_back(z[e]);
      }
      std::vector<double> biased;
      for (int64_t e = 0; e < m.experts; ++e) {
        const double bias = m.selection_bias ? value_of(w.at("ffn.selection_bias")[e]) : 0.0;
        biased.push_back(value_of(scores[static_cast<size_t>(e)]) + bias);
      }
      const std::vector<int64_t> chosen = choose(m, biased);
      if (m.score == arch::RouterScore::softmax_of_near) weigh_near(m, chosen, scores);
      S total(0);
      for (const int64_t e : chosen) {
        S& score = scores[static_cast<size_t>(e)];
        if (m.score == arch::RouterScore::softmax_of_chosen) score = exp(score);
        total += score;
      }
      const bool divided = m.renormalise || m.score == arch::RouterScore::softmax_of_chosen;
      for (const int64_t e : chosen) {
        S weight = S(m.weight_scale) * scores[static_cast<size_t>(e)];
        if (divided) weight /= total;
        std::vector<S> input(x.values.begin() + t * kMoeWidth, x.values.begin() + (t + 1) * kMoeWidth);
        for (S& value : input) value *= m.weigh_inputs ? weight : S(1);
        const auto out = feed_forward(w, "ffn.experts", e, m.expert, d_ff, input.data());
        if (m.weigh_inputs) weight = S(1);
        for (int64_t i = 0; i < kMoeWidth; ++i) y[t * kMoeWidth + i] += weight * out[static_cast<size_t>(i)];
      }
      if (m.shared_experts == 0) continue;
      const auto out = feed_forward(w, "ffn.shared", 0, m.expert, *m.shared_d_ff, x.values.data() + t * kMoeWidth);
      S gate(1);
      if (m.shared_gate) {
        S dot(0);
        for (int64_t i = 0; i < kMoeWidth; ++i) dot += w.at("ffn.shared_gate.weight")[i] * x[t * kMoeWidth + i];
        gate = plain::sigmoid(dot);
      }
      for (int64_t i = 0; i < kMoeWidth; ++i) y[t * kMoeWidth + i] += gate * out[static_cast<size_t>(i)];
    }
    return y;
  }
};

BlockPart moe_part(const arch::Moe& m) { return BlockPart(one_block(kMoeWidth, arch::NoMixer{}, m)); }
arch::Moe moe_of(const BlockPart& part) { return std::get<arch::Moe>(part.block().ffn); }

std::vector<arch::Moe> variants() {
  return {
      {.experts = 4, .top_k = 2, .expert = arch::GatedFfn{.d_ff = 3}, .renormalise = true},
      {.experts = 3, .top_k = 1, .expert = arch::PlainFfn{.d_ff = 4, .bias = true}, .router_bias = true},
      {.experts = 4,
       .top_k = 3,
       .expert = arch::GatedFfn{.d_ff = 3,
                                .bias = true,
                                .alpha = 1.7,
                                .limit = 0.8,
                                .up_offset = 1.0,
                                .gate_scale = 0.6,
                                .out_scale = 1.4},
       .score = arch::RouterScore::softmax_of_chosen,
       .router_bias = true},
      {.experts = 6,
       .top_k = 2,
       .expert = arch::GatedFfn{.d_ff = 2},
       .score = arch::RouterScore::sigmoid,
       .renormalise = true,
       .weight_scale = 2.5,
       .selection_bias = true,
       .groups = 3,
       .top_groups = 2,
       .group_best = 2,
       .shared_experts = 2},
      {.experts = 2, .top_k = 2, .expert = arch::PlainFfn{.d_ff = 3}, .shared_experts = 1, .shared_d_ff = 5},
      {.experts = 5,
       .top_k = 2,
       .expert = arch::GatedFfn{.d_ff = 3},
       .score = arch::RouterScore::softmax_of_near,
       .near = 0.6},
      {.experts = 4,
       .top_k = 1,
       .expert = arch::GatedFfn{.d_ff = 3},
       .score = arch::RouterScore::sigmoid,
       .weigh_inputs = true,
       .shared_experts = 1,
       .shared_gate = true},
      {.experts = 5,
       .top_k = 3,
       .expert = arch::PlainFfn{.d_ff = 2, .bias = true},
       .score = arch::RouterScore::sigmoid,
       .renormalise = true,
       .weigh_inputs = true},
  };
}

TEST(MoeFfn, HasTheListedWeights) {
  for (const arch::Moe& m : variants()) expect_listed_weights(moe_part(m));
}

TEST(MoeFfn, ForwardAndGradientsAreThoseOfTheFormula) {
  for (const arch::Moe& m : variants()) {
    const BlockPart part = moe_part(m);
    expect_as_oracle(part, {2, 7, kMoeWidth}, MoeOracle{moe_of(part)});
  }
}

TEST(MoeFfn, OneExpertIsTheFeedForward) {
  const arch::GatedFfn expert{.d_ff = 6, .bias = true};
  const BlockPart one = moe_part({.experts = 1, .top_k = 1, .expert = expert});
  const BlockPart dense(one_block(kMoeWidth, arch::NoMixer{}, expert));
  for (const char* name : {"gate.weight", "gate.bias", "up.weight", "up.bias", "down.weight", "down.bias"}) {
    dense.set(str("ffn.", name), one.weights().at(str("ffn.experts.", name)).values);
  }
  const Tensor x = one.input({2, 5, kMoeWidth});
  expect_near(one.forward(x).to_vector<double>(), dense.forward(x).to_vector<double>(), 1e-12, "one expert");
}

/// A checkpoint loaded without a copy keeps separate gate and up weights.
TEST(MoeFfn, AdoptedWeightsGiveTheSame) {
  for (const arch::Moe& m : variants()) {
    const BlockPart part = moe_part(m);
    const Tensor x = part.input({1, 6, kMoeWidth});
    const std::vector<double> before = part.forward(x).to_vector<double>();
    nn::StateDict apart;
    for (const auto& [name, tensor] : part.ffn->state_dict()) apart.push_back({name, tensor.clone()});
    part.ffn->adopt_state_dict(apart);
    expect_near(part.forward(x).to_vector<double>(), before, 1e-12, "apart");
  }
}

Tensor buffer(const nn::Module& module, const std::string& wanted) {
  for (const auto& [name, tensor] : module.named_buffers()) {
    if (name == wanted) return tensor;
  }
  return {};
}

TEST(MoeFfn, CapacityDropsTheLastTokensWhileTrainingAndCountsThem) {
  const BlockPart part =
      moe_part({.experts = 2, .top_k = 1, .expert = arch::GatedFfn{.d_ff = 3}, .capacity_factor = 1.0});
  // A token whose first input is positive goes to expert 0.
  part.set("ffn.router.weight", {9, 0, 0, 0, 0, -9, 0, 0, 0, 0});
  Tensor x = part.input({1, 8, kMoeWidth});
  for (int64_t t = 0; t < 8; ++t) x.slice(1, t, 1).slice(2, 0, 1).fill_(t < 7 ? 1.0 : -1.0);
  const std::vector<double> whole = part.forward(x).to_vector<double>();
  EXPECT_EQ(buffer(*part.ffn, "dropped").item(), 0);
  EXPECT_EQ(buffer(*part.ffn, "chosen").to_vector<int64_t>(), (std::vector<int64_t>{7, 1}));
  nn::ForwardContext pass = BlockPart::pass_of(x);
  pass.training = true;
  std::vector<double> expected = whole;
  std::fill(expected.begin() + 4 * kMoeWidth, expected.begin() + 7 * kMoeWidth,
            0.0);  // capacity: ceil(8 / 2) tokens per expert
  expect_near(part.ffn->forward(x, pass).to_vector<double>(), expected, 1e-12, "training");
  EXPECT_EQ(buffer(*part.ffn, "dropped").item(), 3);
}

TEST(MoeFfn, LossesGoToThePassWithTheirCoefficients) {
  const BlockPart part =
      moe_part({.experts = 3, .top_k = 2, .expert = arch::GatedFfn{.d_ff = 3}, .balance_loss = 0.25, .z_loss = 0.5});
  Tensor x = part.input({2, 4, kMoeWidth});
  Array<double> plain_x(x.shape());
  plain_x.values = x.to_vector<double>();
  const Array<double> logits = plain::linear(part.weights(), "ffn.router", plain_x);
  std::vector<double> share(3, 0.0);
  std::vector<double> mean(3, 0.0);
  double z_loss = 0;
  for (size_t t = 0; t < 8; ++t) {
    const std::vector<double> z(logits.values.begin() + static_cast<std::ptrdiff_t>(3 * t),
                                logits.values.begin() + static_cast<std::ptrdiff_t>(3 * t + 3));
    double sum = 0;
    for (const double value : z) sum += std::exp(value);
    z_loss += std::log(sum) * std::log(sum) / 8;
    for (const int64_t e : choose(moe_of(part), z)) share[static_cast<size_t>(e)] += 1.0 / 16;
    for (size_t e = 0; e < 3; ++e) mean[e] += std::exp(z[e]) / sum / 8;
  }
  double balance = 0;
  for (size_t e = 0; e < 3; ++e) balance += 3 * share[e] * mean[e];
  Tape tape;
  for (Tensor& parameter : part.ffn->parameters()) tape.watch(parameter);
  nn::ForwardContext pass = BlockPart::pass_of(x);
  part.ffn->forward(x, pass);
  ASSERT_EQ(pass.losses.size(), 2U);
  EXPECT_NEAR(pass.losses[0].item(), 0.25 * balance, 1e-12);
  EXPECT_NEAR(pass.losses[1].item(), 0.5 * z_loss, 1e-12);
  tape.backward(ops::add(pass.losses[0], pass.losses[1]));
  for (const auto& [name, gradient] : part.ffn->named_gradients(tape)) {
    EXPECT_EQ(gradient.defined(), name == "router.weight") << name;
  }
}

/// bf16 experts with an f32 router: rounding of the logits must not change the choice of experts.
TEST(MoeFfn, RoutesInF32) {
  const arch::ArchSpec spec =
      one_block(kMoeWidth, arch::NoMixer{}, arch::Moe{.experts = 2, .top_k = 1, .expert = arch::GatedFfn{.d_ff = 3}});
  const BlockPart part(spec, 0.6, DType::bf16);
  part.set("ffn.router.weight", {1, 0, 0, 0, 0, 1, 0x1p-9, 0, 0, 0});
  const Tensor x = Tensor::full({1, 1, kMoeWidth}, 1.0, DType::bf16, part.device);
  part.forward(x);  // the logits are 1 and 1 + 2^-9: equal in bf16
  EXPECT_EQ(buffer(*part.ffn, "chosen").to_vector<int64_t>(), (std::vector<int64_t>{0, 1}));
}

}  // namespace
}  // namespace lamina::testing
