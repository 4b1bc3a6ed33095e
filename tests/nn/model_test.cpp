// Model properties besides the values: names, gradients, causality, activation checkpointing, determinism, errors.
#include "lamina/nn/model.h"

#include <gtest/gtest.h>

#include <ctime>
#include <map>

#include "lamina/arch/weights.h"
#include "lamina/autograd/tape.h"
#include "nn/model_support.h"

namespace lamina::testing {
namespace {

std::map<std::string, Shape> listed_weights(const arch::ArchSpec& spec) {
  std::map<std::string, Shape> listed;
  const auto add = [&](const std::string& prefix, const std::vector<arch::Weight>& weights) {
    for (const arch::Weight& weight : weights) {
      listed.emplace(prefix + weight.name, Shape(std::span<const int64_t>(weight.shape)));
    }
  };
  add("", arch::outer_weights(spec));
  const auto blocks = arch::layer_blocks(spec);
  for (size_t i = 0; i < blocks.size(); ++i) add(str("layers.", i, "."), arch::block_weights(spec, *blocks[i]));
  if (!spec.retrieval) return listed;
  add("retrieval.", arch::neighbour_outer_weights(spec));
  const auto encoder = arch::layer_blocks(spec.retrieval->layers);
  for (size_t i = 0; i < encoder.size(); ++i) {
    add(str("retrieval.layers.", i, "."), arch::block_weights(*spec.retrieval->d_model, *encoder[i]));
  }
  return listed;
}

TEST(Model, ParametersAreThoseTheArchitectureLists) {
  std::vector<NamedSpec> all = dense_tiny_presets();
  for (auto& more : {wirings(), switches()}) all.insert(all.end(), more.begin(), more.end());
  for (const NamedSpec& named : all) {
    const nn::Model model(named.spec, Device::meta());
    std::map<std::string, Shape> found;
    for (const auto& [name, tensor] : model.state_dict()) found.emplace(name, tensor.shape());
    EXPECT_EQ(found, listed_weights(named.spec)) << named.name;
  }
}

TEST(Model, EveryParameterOfEveryDensePresetLearns) {
  const Device device = Device::cpu(2);
  for (const NamedSpec& named : dense_tiny_presets()) {
    nn::Model model(named.spec, device, {.seed = 4});
    nn::RunOptions run;
    if (const auto& retrieval = named.spec.retrieval) {  // its encoder learns from neighbours; a row has 11 tokens
      const Shape shape{2, 11 / retrieval->chunk, retrieval->neighbours, retrieval->length};
      run.neighbours = Tensor::from(random_ids(shape.numel(), named.spec.vocab_size, 5), shape, device);
    }
    const Step done = step(model, device, run);
    EXPECT_TRUE(std::isfinite(done.loss)) << named.name;
    EXPECT_LT(std::abs(done.loss - std::log(static_cast<double>(named.spec.vocab_size))), 1.0) << named.name;
    EXPECT_EQ(done.grads.size(), listed_weights(named.spec).size());
    for (const auto& [name, grad] : done.grads) {
      ASSERT_TRUE(grad.defined()) << named.name << " " << name;
      double sum = 0;
      for (const double value : grad.to_vector<double>()) sum += std::abs(value);
      EXPECT_TRUE(std::isfinite(sum) && sum > 0) << named.name << " " << name << " " << sum;
    }
  }
}

TEST(Model, GradientsAgreeWithDifferences) {
  const Device device = Device::cpu(2);
  for (const char* preset : {"llama-tiny", "gpt2-tiny", "gemma-2-tiny", "t5-tiny", "falcon-tiny"}) {
    nn::Model model(changed(preset, {}).spec, device, {.dtype = DType::f64});
    scramble(model);
    expect_slope(model, device, preset);
  }
}

TEST(Model, TheFutureNeverMatters) {
  const Device device = Device::cpu(2);
  for (const NamedSpec& named : dense_tiny_presets()) {
    nn::Model model(named.spec, device);
    scramble(model);
    auto ids = random_ids(12, named.spec.vocab_size);
    const auto before = model.logits(ids_tensor(ids, 1, device)).slice(1, 0, 7).to_vector<float>();
    const auto all = model.logits(ids_tensor(ids, 1, device)).slice(1, 7, 5).to_vector<float>();
    for (size_t t = 7; t < 12; ++t) ids[t] = (ids[t] + 1) % named.spec.vocab_size;
    EXPECT_EQ(model.logits(ids_tensor(ids, 1, device)).slice(1, 0, 7).to_vector<float>(), before) << named.name;
    EXPECT_NE(model.logits(ids_tensor(ids, 1, device)).slice(1, 7, 5).to_vector<float>(), all) << named.name;
  }
}

void expect_same_step(const Step& a, const Step& b, const std::string& what) {
  EXPECT_EQ(a.loss, b.loss) << what;
  ASSERT_EQ(a.grads.size(), b.grads.size());
  for (size_t i = 0; i < a.grads.size(); ++i) {
    EXPECT_EQ(a.grads[i].tensor.to_vector<float>(), b.grads[i].tensor.to_vector<float>()) << what << a.grads[i].name;
  }
}

TEST(Model, CheckpointedLayersGiveTheSameBits) {
  const Device device = Device::cpu(2);
  std::vector<NamedSpec> all = wirings();
  all.push_back(changed("gemma-2-tiny", {}));
  for (const NamedSpec& named : all) {
    nn::Model model(named.spec, device);
    const nn::RunOptions run{.training = true, .dropout = {0.1, 0.2, 0.3}, .seed = 5, .step = 2};
    expect_same_step(step(model, device, run, true), step(model, device, run), named.name);
  }
}

TEST(Model, CheckpointedLayersKeepLess) {
  const Device device = Device::cpu(2);
  nn::Model model(changed("llama-tiny", {"layers[0].repeat=8"}).spec, device);
  const Tensor ids = ids_tensor(random_ids(256, 96), 4, device);
  const auto kept = [&](bool checkpointed) {
    Tape tape;
    for (auto& [name, tensor] : model.named_parameters()) tape.watch(tensor);
    const int64_t before = device.allocator().counters().live;
    const auto loss = model.loss(ids, ids, {}, {.checkpoint = checkpointed ? &tape : nullptr});
    return device.allocator().counters().live - before;
  };
  EXPECT_LT(kept(true), kept(false) / 4);
}

TEST(Model, SameBitsForAnyNumberOfThreads) {
  std::vector<Step> steps;
  for (const int threads : {1, 2, 3}) {
    const Device device = Device::cpu(threads);
    nn::Model model(changed("llama-tiny", {"d_model=96", "vocab_size=700"}).spec, device, {.seed = 11});
    steps.push_back(step(model, device, {.training = true, .dropout = {0.1, 0.1, 0.1}}));
  }
  expect_same_step(steps[0], steps[1], "two threads ");
  expect_same_step(steps[0], steps[2], "three threads ");
}

TEST(Model, DropoutFollowsSeedAndStepAndRestsOutsideTraining) {
  const Device device = Device::cpu(2);
  nn::Model model(changed("gpt2-tiny", {}).spec, device);
  const auto loss = [&](bool training, const nn::DropoutRates& rates, uint64_t seed, uint64_t at) {
    return step(model, device, {.training = training, .dropout = rates, .seed = seed, .step = at}).loss;
  };
  const double plain = step(model, device, {}).loss;
  const nn::DropoutRates all{0.2, 0.2, 0.2};
  EXPECT_EQ(loss(false, all, 1, 1), plain);
  EXPECT_EQ(loss(true, {}, 1, 1), plain);
  EXPECT_EQ(loss(true, all, 1, 1), loss(true, all, 1, 1));
  EXPECT_NE(loss(true, all, 1, 1), loss(true, all, 1, 2));
  EXPECT_NE(loss(true, all, 1, 1), loss(true, all, 2, 1));
  for (const nn::DropoutRates& one :
       {nn::DropoutRates{0.2, 0, 0}, nn::DropoutRates{0, 0.2, 0}, nn::DropoutRates{0, 0, 0.2}}) {
    EXPECT_NE(loss(true, one, 1, 1), plain);
  }
}

TEST(Model, PackedDocumentsAreAsIfAlone) {
  const Device device = Device::cpu(2);
  std::vector<NamedSpec> all{
      changed("llama-tiny", {"position.scaling={\"kind\":\"dynamic_ntk\",\"original_length\":5}"})};
  for (const char* preset : {"llama-tiny", "gpt2-tiny", "bloom-tiny", "t5-tiny", "gemma-3-tiny", "transformer-tiny"}) {
    all.push_back(changed(preset, {}));
  }
  for (const NamedSpec& named : all) {
    nn::Model model(named.spec, device);
    scramble(model);
    const auto ids = random_ids(14, named.spec.vocab_size);
    const Tensor starts = Tensor::from(std::vector<int64_t>{0, 5, 9, 14}, {4}, device);
    const auto packed = model.logits(ids_tensor(ids, 1, device), {.document_starts = starts});
    const auto wide = in_double(model, device);
    const Tensor last = ids_tensor({ids.begin() + 9, ids.end()}, 1, device);
    expect_within(packed.slice(1, 9, 5).to_vector<double>(), wide->logits(last).to_vector<double>(),
                  naive_error(model, *wide, ids_tensor(ids, 1, device)), named.name);
  }
}

TEST(Model, BuildsOnMetaWithoutMemoryAndFast) {
  const auto spec = arch::resolve(arch::load_preset("llama-3.2-1b"));
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const std::clock_t start = std::clock();
    const nn::Model model(spec, Device::meta());
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    for (const auto& [name, tensor] : model.state_dict()) EXPECT_EQ(tensor.raw(), nullptr) << name;
  }
  EXPECT_LT(best, 0.05);
  nn::Model model(spec, Device::meta(), {.dtype = DType::bf16});
  const Tensor ids = Tensor::empty({2, 64}, DType::i64, Device::meta());
  EXPECT_EQ(model.logits(ids).shape(), (Shape{2, 64, spec.vocab_size}));
}

TEST(Model, InitialValuesDependOnSeedAndNameAlone) {
  const Device device = Device::cpu(2);
  const auto spec = changed("llama-tiny", {"d_model=128", "layers[0].repeat=8"}).spec;
  const nn::Model a(spec, device, {.seed = 1});
  const nn::Model b(spec, Device::cpu(3), {.seed = 1});
  const nn::Model c(spec, device, {.seed = 2});
  const nn::StateDict values = a.state_dict();
  const nn::StateDict same = b.state_dict();
  const nn::StateDict others = c.state_dict();
  for (size_t i = 0; i < values.size(); ++i) {
    const auto& [name, tensor] = values[i];
    const auto numbers = tensor.to_vector<double>();
    EXPECT_EQ(numbers, same[i].tensor.to_vector<double>()) << name;
    if (name.find("norm") != std::string::npos) {
      EXPECT_EQ(numbers, std::vector<double>(numbers.size(), 1.0)) << name;
      continue;
    }
    EXPECT_NE(numbers, others[i].tensor.to_vector<double>()) << name;
    double square = 0;
    for (const double value : numbers) square += value * value;
    const bool residual = name.ends_with("mixer.o.weight") || name.ends_with("ffn.down.weight");
    const double expected = residual ? 0.02 / 4 : 0.02;  // 16 residual branches
    EXPECT_NEAR(std::sqrt(square / static_cast<double>(numbers.size())), expected, 0.05 * expected) << name;
  }
}

TEST(Model, AdoptedTensorsAreUsedInPlaceAndGiveTheSame) {
  const Device device = Device::cpu(2);
  for (const char* preset : {"llama-tiny", "gpt2-tiny", "qwen2-tiny"}) {
    const auto spec = changed(preset, {}).spec;
    nn::Model model(spec, device);
    scramble(model);
    nn::StateDict values;
    for (const auto& [name, tensor] : model.state_dict()) values.push_back({name, tensor.clone()});
    nn::Model adopted(spec, Device::meta());
    adopted.adopt_state_dict(values);
    const nn::StateDict taken = adopted.state_dict();
    ASSERT_EQ(taken.size(), values.size());
    for (size_t i = 0; i < taken.size(); ++i) EXPECT_EQ(taken[i].tensor.raw(), values[i].tensor.raw()) << taken[i].name;
    const Tensor ids = ids_tensor(random_ids(9, 96), 1, device);
    expect_same_model(model, adopted.logits(ids), model.logits(ids), preset);
    const Step ours = step(adopted, device, {});
    const Step other = step(model, device, {});
    // All together: a bias of keys has no gradient but rounding, so its own size says nothing about its error.
    const auto all = [](const Step& of) {
      std::vector<double> values;
      for (const NamedTensor& grad : of.grads) {
        const auto part = grad.tensor.to_vector<double>();
        values.insert(values.end(), part.begin(), part.end());
      }
      return values;
    };
    expect_same_model(model, all(ours), all(other), str(preset, " gradients"));
    values.pop_back();
    values.front().tensor = Tensor::zeros({3}, DType::f32, device);
    const std::string message = error_of([&] { adopted.adopt_state_dict(values); });
    EXPECT_NE(message.find("is missing"), std::string::npos) << message;
    EXPECT_NE(message.find("is [3], the module has"), std::string::npos) << message;
  }
}

TEST(Model, NarrowWeightsComputeInTheirType) {
  const Device device = Device::cpu(2);
  for (const char* preset : {"llama-tiny", "gpt2-tiny"}) {
    nn::Model model(changed(preset, {}).spec, device);
    scramble(model);
    nn::Model narrow(model.spec(), device, {.dtype = DType::bf16});
    narrow.load_state_dict(model.state_dict());
    const Tensor ids = ids_tensor(random_ids(9, 96), 1, device);
    const Tensor logits = narrow.logits(ids);
    EXPECT_EQ(logits.dtype(), DType::bf16);
    const Tensor wide = model.logits(ids);
    EXPECT_LT(largest_error(logits, wide), 0.06 * largest_magnitude(wide)) << preset;
  }
}

TEST(Model, BadInputIsNamed) {
  const Device device = Device::cpu(1);
  nn::Model learned(changed("gpt2-tiny", {}).spec, device);
  expect_error([&] { learned.logits(ids_tensor(random_ids(65, 96), 1, device)); },
               "position 64, but the table of learned positions has 64");
  nn::ModelCache cache = learned.make_cache(1, 80);
  learned.cached_logits(ids_tensor(random_ids(64, 96), 1, device), cache);
  expect_error([&] { learned.cached_logits(ids_tensor({1}, 1, device), cache); }, "table of learned positions has 64");
  nn::Model model(changed("llama-tiny", {}).spec, device);
  EXPECT_EQ(model.logits(ids_tensor(random_ids(65, 96), 1, device)).dim(1), 65);
  expect_error([&] { model.logits(Tensor::zeros({4}, DType::i64, device)); }, "[batch, seq]");
  expect_error([&] { model.logits(Tensor::zeros({1, 4}, DType::f32, device)); }, "i64 or i32");
  expect_error([&] { model.logits(ids_tensor({1, 96}, 1, device)); }, "96");
  expect_error([&] { model.loss(ids_tensor({1, 2}, 1, device), ids_tensor({1, 2}, 2, device)); }, "targets are [2,1]");
  expect_error([&] { model.make_cache(0, 4); }, "positive");
  const Tensor starts = Tensor::from(std::vector<int64_t>{0, 5}, {2}, device);
  expect_error(
      [&] {
        model.logits(ids_tensor({1, 2}, 1, device), {.document_starts = starts});
      },
      "ascend from 0 to seq");
  expect_error([&] { nn::Model(arch::load_preset("llama-tiny"), device); }, "not resolved");
  expect_error([&] { nn::Model(changed("llama-tiny", {}).spec, device, {.dtype = DType::i32}); }, "cannot be i32");
}

}  // namespace
}  // namespace lamina::testing
