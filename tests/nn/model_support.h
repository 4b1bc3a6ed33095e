// Small architectures for model tests: every dense tiny preset, and one per architecture switch.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "lamina/arch/edit.h"
#include "lamina/arch/layers.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/autograd/tape.h"
#include "lamina/nn/model.h"
#include "support/close.h"
#include "support/uniform.h"

namespace lamina::testing {

struct NamedSpec {
  std::string name;
  arch::ArchSpec spec;
};

/// Whether tokens can be decoded without a source.
inline bool generates_alone(const arch::ArchSpec& spec) { return arch::is_causal(spec) && !spec.encoder; }

/// Attention without transformer_xl positions, and no experts.
inline bool is_dense(const arch::ArchSpec& spec) {
  const auto blocks = arch::layer_blocks(spec);
  return std::all_of(blocks.begin(), blocks.end(), [](const arch::Block* block) {
    const auto* attention = std::get_if<arch::Attention>(&block->mixer);
    const bool plain = attention == nullptr ? !arch::has_mixer(*block)
                                            : !std::holds_alternative<arch::TransformerXl>(*attention->position);
    return plain && !std::holds_alternative<arch::Moe>(block->ffn);
  });
}

inline std::vector<NamedSpec> dense_tiny_presets() {
  std::vector<NamedSpec> found;
  for (const std::string& name : arch::preset_names()) {
    if (!name.ends_with("-tiny")) continue;
    arch::ArchSpec spec = arch::resolve(arch::load_preset(name), name);
    if (is_dense(spec) && generates_alone(spec)) found.push_back({name, std::move(spec)});
  }
  return found;
}

inline NamedSpec changed(const std::string& base, const std::vector<std::string>& sets) {
  std::string name = base;
  for (const std::string& set : sets) name += " " + set;
  return {name, arch::resolve(arch::with_overrides(arch::load_preset(base), sets), name)};
}

/// Every norm placement in every wiring that the rules allow, and blocks without mixer or feed-forward.
inline std::vector<NamedSpec> wirings() {
  std::vector<NamedSpec> all;
  for (const char* placement : {"pre", "post", "sandwich", "branch_post", "residual_after_norm"}) {
    const std::string place = std::string("layers[0].pattern[0].placement=") + placement;
    const std::string scale = "layers[0].pattern[0].residual_scale=0.7";
    const std::string parallel = "layers[0].pattern[0].wiring.kind=parallel";
    const std::string own = "layers[0].pattern[0].wiring.shared_norm=false";
    const bool joint = place.ends_with("=post") || place.ends_with("residual_after_norm");
    const std::string skip = "layers[0].pattern[0].skip_scale=1.3";
    all.push_back(changed("llama-tiny", {place, scale}));
    all.push_back(changed("llama-tiny", {place, skip}));
    all.push_back(changed("gpt2-tiny", {place, parallel, scale, skip}));
    if (!joint) all.push_back(changed("gpt2-tiny", {place, parallel, own}));
    all.push_back(changed("gpt2-tiny", {place, "layers[0].pattern[0].ffn.kind=none"}));
  }
  all.push_back(changed("llama-tiny", {"layers[0].pattern[0].mixer.kind=none"}));
  return all;
}

/// One spec per switch of norms, positions, attention, feed-forward, embedding and head that the oracle supports.
inline std::vector<NamedSpec> switches() {
  const std::string mixer = "layers[0].pattern[0].mixer.";
  const std::string ffn = "layers[0].pattern[0].ffn.";
  const std::vector<std::vector<std::string>> sets = {
      {"norm.offset=1"},
      {"norm.group_size=8"},
      {"norm.kind=rms_no_params"},
      {"norm.kind=layer_no_params"},
      {"norm.kind=layer"},
      {"norm.kind=layer", "norm.bias=false", "norm.offset=1"},
      {"embedding.norm={\"kind\":\"layer\"}", "embedding.scale.kind=sqrt_d_model"},
      {"embedding.d_embed=16", "head.tied=true"},
      {"position.kind=learned", "position.offset=2"},
      {"position.kind=sinusoidal", "position.theta=500"},
      {"position.kind=none"},
      {"position.fraction=0.5"},
      {"position.pairing=interleaved"},
      {"position.fraction=0.5", "position.pairing=interleaved", "position.scaling.kind=linear",
       "position.scaling.factor=3"},
      {"position.kind=alibi"},
      {"position.kind=alibi", "position.max_bias=6", "position.slope_scale=0.5", mixer + "n_heads=6",
       mixer + "head_dim=8", mixer + "n_kv_heads=3"},
      {"position.kind=alibi", "position.rounding=bf16", mixer + "scale=0.3"},
      {"position.kind=alibi", "position.rounding=bf16", "position.max_bias=6", "position.slope_scale=0.5",
       mixer + "n_heads=6", mixer + "head_dim=8", mixer + "n_kv_heads=2"},
      {"position.kind=t5", "position.buckets=6", "position.max_distance=10"},
      {"position.kind=t5", "position.buckets=8", "position.max_distance=10", "position.shared=false",
       "position.bidirectional=true"},
      {mixer + "n_kv_heads=1"},
      {mixer + "v_head_dim=12", mixer + "head_dim=10"},
      {mixer + "bias=true"},
      {mixer + "gate=true"},
      {mixer + "gate=true", mixer + "qk_norm.kind=per_head", mixer + "v_head_dim=12"},
      {mixer + "bias.v=true", mixer + "bias.o=true"},
      {mixer + "qk_norm.kind=per_head"},
      {mixer + "qk_norm.kind=per_head", mixer + "qk_norm.own_weights=true"},
      {mixer + "qk_norm.kind=per_head", mixer + "qk_norm.own_weights=true", "norm.kind=layer"},
      {mixer + "qk_norm.kind=per_head", "norm.kind=layer"},
      {mixer + "qk_norm.kind=whole", "norm.offset=1"},
      {mixer + "qk_norm.kind=per_head", mixer + "qk_norm.after_rope=true"},
      {mixer + "qk_norm={\"kind\":\"per_head\",\"norm\":{\"kind\":\"rms_no_params\"},\"after_rope\":true}"},
      {mixer + "qk_norm.kind=whole", mixer + "qk_norm.after_rope=true", "position.pairing=interleaved"},
      {mixer + "temperature={\"scale\":0.7,\"interval\":3}"},
      {mixer + "temperature={\"scale\":0.7,\"interval\":3}", mixer + "qk_norm.kind=per_head"},
      {mixer + "temperature={\"scale\":0.7,\"interval\":2}", "position.kind=none", mixer + "pattern.kind=chunks",
       mixer + "pattern.size=4"},
      {mixer + "clip_qkv=0.4"},
      {mixer + "scale=0.9", mixer + "soft_cap=1.5"},
      {mixer + "sinks=true"},
      {mixer + "pattern.kind=window", mixer + "pattern.size=4"},
      {mixer + "pattern.kind=longformer", mixer + "pattern.window=3", mixer + "pattern.global_tokens=2"},
      {mixer + "pattern.kind=strided", mixer + "pattern.window=2", mixer + "pattern.stride=3"},
      {mixer + "pattern.kind=chunks", mixer + "pattern.size=3"},
      {mixer + "pattern.kind=bigbird", mixer + "pattern.block=2", mixer + "pattern.random_blocks=0"},
      {ffn + "gate=glu"},
      {ffn + "gate=reglu"},
      {ffn + "gate=geglu", ffn + "bias=true"},
      {ffn + "gate=liglu", ffn + "up_offset=1"},
      {ffn + "alpha=1.7", ffn + "limit=0.5", ffn + "up_offset=1"},
      {ffn + "gate_scale=0.7", ffn + "out_scale=1.3"},
      {ffn + "kind=plain", ffn + "activation=relu2"},
      {ffn + "kind=plain", ffn + "activation=selu", ffn + "bias=true"},
      {ffn + "kind=plain", ffn + "activation=elu"},
      {ffn + "kind=plain", ffn + "xielu={}", ffn + "bias=true"},
      {ffn + "kind=plain", ffn + "xielu={\"beta\":0.3,\"eps\":-0.1}"},
      {"head.tied=true", "head.bias=true", "head.scale.kind=constant", "head.scale.value=0.6", "head.soft_cap=2"},
      {"final_norm=false"},
  };
  std::vector<NamedSpec> all;
  for (const auto& set : sets) all.push_back(changed("llama-tiny", set));
  return all;
}

/// Every tiny preset that generates alone, every wiring and every switch.
inline std::vector<NamedSpec> decoder_specs() {
  std::vector<NamedSpec> all;
  for (const std::string& name : arch::preset_names()) {
    if (!name.ends_with("-tiny")) continue;
    arch::ArchSpec spec = arch::resolve(arch::load_preset(name), name);
    if (generates_alone(spec)) all.push_back({name, std::move(spec)});
  }
  for (auto& more : {wirings(), switches()}) all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// Moves parameters far from their initial values, so that each one matters.
inline void scramble(nn::Model& model, uint64_t seed = 7) {
  std::mt19937_64 random(seed);
  for (auto& [name, tensor] : model.state_dict()) {
    std::vector<float> values(static_cast<size_t>(tensor.numel()));
    for (float& value : values)
      value = uniform(random, -0.4F, 0.4F) + (name.find("norm") != std::string::npos ? 0.8F : 0.0F);
    Tensor target = tensor;
    target.copy_(Tensor::from(values, tensor.shape(), Device::cpu(1)));
  }
}

inline std::vector<int64_t> random_ids(int64_t count, int64_t vocab, uint64_t seed = 3) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(vocab)));
  return ids;
}

inline Tensor ids_tensor(const std::vector<int64_t>& ids, int64_t batch, const Device& device) {
  return Tensor::from(ids, {batch, static_cast<int64_t>(ids.size()) / batch}, device);
}

/// Error from rounding alone: the largest error of a full forward over `ids`.
inline double naive_error(nn::Model& model, nn::Model& wide, const Tensor& ids) {
  return largest_error(model.logits(ids).to_vector<double>(), wide.logits(ids).to_vector<double>());
}

/// Expects an error of at most twice the naive error plus one rounding of the largest value.
inline void expect_within(const std::vector<double>& ours, const std::vector<double>& truth, double naive,
                          const std::string& what) {
  EXPECT_LE(largest_error(ours, truth), 2 * naive + epsilon(DType::f32) * largest_magnitude(truth)) << what;
}

/// An upper bound of the roundings that feed one logit or gradient: an element passes through every weight matrix at
/// most once in each direction, and a product rounds as often as its rows are long. Every layer adds over the tokens;
/// 70 is more than any test has.
inline int64_t roundings_of(const nn::Model& model) {
  constexpr int64_t kMostTokens = 70;
  int64_t count = 0;
  for (const auto& [name, tensor] : model.state_dict()) {
    if (tensor.shape().rank() >= 2) count += 2 * tensor.dim(-1);
  }
  return count + kMostTokens * static_cast<int64_t>(arch::layer_blocks(model.spec()).size());
}

/// Expects the results of two ways to compute the same model to differ by rounding only (rounding_tolerance).
inline void expect_same_model(const nn::Model& model, const std::vector<double>& ours, const std::vector<double>& truth,
                              const std::string& what) {
  const DType dtype = model.parameters().front().dtype();
  EXPECT_LE(largest_error(ours, truth), rounding_tolerance(truth, roundings_of(model), dtype)) << what;
}
inline void expect_same_model(const nn::Model& model, const Tensor& ours, const Tensor& truth,
                              const std::string& what) {
  expect_same_model(model, ours.to_vector<double>(), truth.to_vector<double>(), what);
}

/// A copy of the model in f64.
inline std::unique_ptr<nn::Model> in_double(const nn::Model& model, const Device& device) {
  auto wide = std::make_unique<nn::Model>(model.spec(), device, nn::ModelOptions{.dtype = DType::f64});
  wide->load_state_dict(model.state_dict());
  return wide;
}

/// Loss and named gradients of one step; the tape tracks every parameter.
struct Step {
  double loss = 0;
  nn::StateDict grads;
};
inline Step step(nn::Model& model, const Device& device, const nn::RunOptions& run, bool checkpointed = false) {
  Tape tape;
  for (auto& [name, tensor] : model.named_parameters()) tape.watch(tensor);
  const Tensor ids = ids_tensor(random_ids(22, model.spec().vocab_size), 2, device);
  const Tensor targets = ids_tensor(random_ids(22, model.spec().vocab_size, 9), 2, device);
  nn::RunOptions options = run;
  if (checkpointed) options.checkpoint = &tape;
  const auto loss = model.loss(ids, targets, {}, options);
  tape.backward(loss.total);
  return {loss.total.item(), model.named_gradients(tape)};
}

/// The gradient along a random direction v, and the central difference (f(w + h·v) − f(w − h·v)) / 2h, in f64. Leaves
/// the weights changed.
struct Slopes {
  double gradient = 0;
  double differences = 0;
  bool agree() const { return std::abs(gradient - differences) <= 1e-6 * std::max(1.0, std::abs(gradient)); }
};
inline Slopes slopes(nn::Model& model, const Device& device, uint64_t seed) {
  const Step done = step(model, device, {});
  std::mt19937_64 random(seed);
  Slopes result;
  std::vector<std::pair<Tensor, std::vector<double>>> moves;
  std::map<std::string, Tensor> weights;  // includes buffers, which have no gradient and do not move
  for (auto& [name, tensor] : model.state_dict()) weights.emplace(name, tensor);
  for (const auto& [name, gradient] : done.grads) {
    std::vector<double> direction(static_cast<size_t>(gradient.numel()));
    const auto grad = gradient.to_vector<double>();
    for (size_t k = 0; k < direction.size(); ++k)
      result.gradient += (direction[k] = uniform(random, -1.0, 1.0)) * grad[k];
    moves.emplace_back(weights.at(name), std::move(direction));
  }
  const auto moved_loss = [&](double by) {
    for (auto& [weight, direction] : moves) {
      std::vector<double> values = direction;
      for (double& value : values) value *= by;
      weight.add_(Tensor::from(values, weight.shape(), device));
    }
    return step(model, device, {}).loss;
  };
  constexpr double kStep = 1e-7;
  const double up = moved_loss(kStep);
  const double down = moved_loss(-2 * kStep);
  result.differences = (up - down) / (2 * kStep);
  return result;
}

/// Tries several directions: a kink (clip, relu, expert choice) may disturb one of them, but a wrong gradient shows in
/// all.
inline void expect_slope(nn::Model& model, const Device& device, const std::string& what) {
  Slopes found;
  for (uint64_t seed = 5; seed < 8; ++seed) {
    found = slopes(model, device, seed);
    if (found.agree()) return;
  }
  ADD_FAILURE() << what << ": gradient " << found.gradient << ", differences " << found.differences;
}

}  // namespace lamina::testing
