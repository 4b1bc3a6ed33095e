// The teaching program and the library are the same model: same weights, same numbers.
#define ONE_FILE_MODEL_IS_INCLUDED
#include "../../examples/one_file_model.cpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "lamina/arch/edit.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/autograd/tape.h"
#include "lamina/io/hf.h"
#include "lamina/io/model_file.h"
#include "lamina/nn/model.h"
#include "lamina/ops/optim/adamw.h"
#include "support/close.h"

namespace lamina {
namespace {

using testing::largest_error;
using testing::largest_magnitude;
using testing::rounding_tolerance;

arch::ArchSpec spec_of(const one_file::Config& config) {
  const auto set = [](const std::string& path, int64_t value) { return path + "=" + std::to_string(value); };
  const std::string block = "layers[0].pattern[0].";
  return arch::resolve(arch::with_overrides(
      arch::load_preset("llama-tiny"),
      {set("vocab_size", config.vocab_size), set("d_model", config.d_model), set("context", config.context),
       set("layers[0].repeat", config.n_layers), set(block + "mixer.n_heads", config.n_heads),
       set(block + "mixer.n_kv_heads", config.n_kv_heads), set(block + "ffn.d_ff", config.d_ff), "norm.eps=1e-5"}));
}

/// The weights of a one-file model under the library's names.
std::map<std::string, std::vector<float>> named(const one_file::Model& from) {
  std::map<std::string, std::vector<float>> values{
      {"embedding.weight", from.embedding}, {"final_norm.weight", from.final_norm}, {"head.weight", from.head}};
  for (size_t i = 0; i < from.layers.size(); ++i) {
    const one_file::Layer& layer = from.layers[i];
    const std::string at = "layers." + std::to_string(i) + ".";
    values.insert({{at + "mixer_norm.weight", layer.attention_norm},
                   {at + "mixer.q.weight", layer.q},
                   {at + "mixer.k.weight", layer.k},
                   {at + "mixer.v.weight", layer.v},
                   {at + "mixer.o.weight", layer.o},
                   {at + "ffn_norm.weight", layer.ffn_norm},
                   {at + "ffn.gate.weight", layer.gate},
                   {at + "ffn.up.weight", layer.up},
                   {at + "ffn.down.weight", layer.down}});
  }
  return values;
}

void load(nn::Model& model, const one_file::Model& from) {
  const auto values = named(from);
  nn::StateDict state = model.state_dict();
  ASSERT_EQ(state.size(), values.size());
  for (auto& [name, tensor] : state) {
    ASSERT_TRUE(values.count(name)) << name;
    tensor.copy_(Tensor::from(values.at(name), tensor.shape(), tensor.device()));
  }
}

TEST(OneFileModel, IsTheLibrarysModel) {
  const one_file::Config config;
  one_file::Model small = one_file::random_model(config, 3);
  small.head = one_file::random_model(config, 4).embedding;
  const Device device = Device::cpu();
  nn::Model model(spec_of(config), device);
  load(model, small);

  std::vector<int> tokens;
  for (int i = 0; i < 24; ++i) tokens.push_back(i * 29 % config.vocab_size);
  const std::vector<int64_t> ids(tokens.begin(), tokens.end());
  const auto seq = static_cast<int64_t>(ids.size());
  const std::vector<double> logits = model.logits(Tensor::from(ids, {1, seq}, device)).to_vector<double>();
  one_file::Cache cache(config);
  std::vector<double> rows;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const one_file::Floats row = one_file::forward(small, cache, tokens[t]);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  EXPECT_LE(largest_error(logits, rows), rounding_tolerance(rows, 40, DType::f32));

  const std::vector<int64_t> targets(ids.begin() + 1, ids.end());
  const double loss = model
                          .loss(Tensor::from(std::vector<int64_t>(ids.begin(), ids.end() - 1), {1, seq - 1}, device),
                                Tensor::from(targets, {1, seq - 1}, device))
                          .total.item();
  EXPECT_NEAR(loss, one_file::loss(small, tokens), 1e-5);
}

TEST(OneFileModel, ItsGradientsAndUpdatesAreTheLibrarys) {
  const one_file::Config config;
  one_file::Model small = one_file::random_model(config, 3);
  small.head = one_file::random_model(config, 4).embedding;
  const Device device = Device::cpu();
  nn::Model model(spec_of(config), device);
  load(model, small);
  one_file::AdamW optimizer(small);
  optimizer.lr = 1e-2F;
  std::vector<ops::AdamWSlot> slots;
  for (int step = 1; step <= 3; ++step) {
    std::vector<int> tokens;
    for (int i = 0; i < 24; ++i) tokens.push_back((i * 29 + step * 7) % config.vocab_size);
    one_file::Model gradients = one_file::zeros_like(small);
    const double small_loss = one_file::loss_backward(small, tokens, gradients);
    EXPECT_NEAR(small_loss, one_file::loss(small, tokens), 1e-5);

    const std::vector<int64_t> ids(tokens.begin(), tokens.end() - 1);
    const std::vector<int64_t> targets(tokens.begin() + 1, tokens.end());
    const Shape shape{1, static_cast<int64_t>(ids.size())};
    Tape tape;
    std::vector<Tensor> parameters = model.parameters();
    for (Tensor& parameter : parameters) tape.watch(parameter);
    const Tensor loss = model.loss(Tensor::from(ids, shape, device), Tensor::from(targets, shape, device)).total;
    EXPECT_NEAR(loss.item(), small_loss, 1e-5);
    tape.backward(loss);
    const auto expected = named(gradients);
    const nn::StateDict found = model.named_gradients(tape);
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, gradient] : found) {
      const std::vector<double> ours(expected.at(name).begin(), expected.at(name).end());
      EXPECT_LE(largest_error(gradient.to_vector<double>(), ours), 1e-4 * largest_magnitude(ours)) << name;
    }
    if (slots.empty()) {
      for (const Tensor& parameter : parameters) {
        slots.emplace_back();
        slots.back().m = Tensor::zeros(parameter.shape(), DType::f32, device);
        slots.back().v = Tensor::zeros(parameter.shape(), DType::f32, device);
      }
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      slots[i].param = parameters[i].detach();
      slots[i].grad = tape.grad(parameters[i]);
      slots[i].lr = optimizer.lr;
      slots[i].weight_decay = parameters[i].rank() > 1 ? optimizer.weight_decay : 0;
      slots[i].step = step;
    }
    ops::adamw(slots, {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8});
    optimizer.update(small, gradients);
  }
  // An early update divides small gradients by their own size, which magnifies their rounding.
  const auto expected = named(small);
  for (const auto& [name, weight] : model.state_dict()) {
    const std::vector<double> ours(expected.at(name).begin(), expected.at(name).end());
    EXPECT_LE(largest_error(weight.to_vector<double>(), ours), 1e-3) << name;
  }
}

// A real trained model, end to end: the public stories15M in llama2.c's format (`make stories`).
namespace fs = std::filesystem;

std::vector<int> greedy(const std::string& path, int count, const Device& device) {
  const io::Checkpoint checkpoint = io::read_model(path, device);
  nn::Model model(checkpoint.spec, Device::meta());
  model.adopt_state_dict(checkpoint.tensors);
  nn::ModelCache cache = model.make_cache(1, count + 1);
  std::vector<int> tokens{1};
  for (int i = 0; i < count; ++i) {
    const Tensor ids = Tensor::from(std::vector<int64_t>{tokens.back()}, {1, 1}, device);
    const std::vector<float> logits = model.cached_logits(ids, cache).to_vector<float>();
    tokens.push_back(static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  return tokens;
}

TEST(Stories, TheLibraryTellsWhatTheTeachingProgramTells) {
  const std::string path = LAMINA_STORIES;
  if (!fs::exists(path)) GTEST_SKIP() << path << " is not there; `make stories` fetches it";
  const Device device = Device::cpu();
  const std::vector<int> told = greedy(path, 20, device);
  // "Once upon a time, there was a little girl named Lily."
  const std::vector<int> beginning{1, 9038, 2501, 263, 931, 29892, 727, 471, 263, 2217, 7826, 4257, 365, 2354, 29889};
  EXPECT_EQ(std::vector<int>(told.begin(), told.begin() + static_cast<std::ptrdiff_t>(beginning.size())), beginning);
  EXPECT_EQ(told, one_file::generate(one_file::read_llama2c(path), {1}, 20, 0.0F, 0));

  const fs::path folder = fs::path(::testing::TempDir()) / "stories-hf";
  fs::remove_all(folder);
  io::write_hf(folder.string(), io::read_model(path, device));
  EXPECT_EQ(greedy(folder.string(), 20, device), told);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace lamina
