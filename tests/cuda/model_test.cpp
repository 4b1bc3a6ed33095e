// Every tiny preset and switch on a GPU: equal to the CPU in f32, and in bf16 as close to it as the CPU's own bf16.
// Operators have their own oracle tests; this one covers the code between them.
#include "cuda/on_gpu.h"
#include "lamina/infer/generator.h"
#include "nn/model_support.h"

namespace lamina::testing {
namespace {

using CudaModel = OnGpu<>;

constexpr int64_t kBatch = 2;
constexpr int64_t kSeq = 16;

struct Results {
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;
  std::vector<double> decoded;
};

Results results_of(nn::Model& model, const std::vector<int64_t>& ids) {
  const Device& device = model.device();
  Results results;
  {
    Tape tape;
    for (auto& [name, parameter] : model.named_parameters()) tape.watch(parameter);
    const Tensor batch = ids_tensor(ids, kBatch, device);
    const Tensor loss = model.loss(batch, batch).total;
    results.loss = loss.item();
    tape.backward(loss);
    for (auto& [name, gradient] : model.named_gradients(tape)) {
      if (gradient.defined()) results.gradients[name] = gradient.template to_vector<double>();
    }
  }
  nn::ModelCache cache = model.make_cache(kBatch, kSeq);
  const Tensor batch = ids_tensor(ids, kBatch, device);
  model.cached_logits(batch.slice(1, 0, kSeq - 2).contiguous(), cache);
  model.cached_logits(batch.slice(1, kSeq - 2, 1).contiguous(), cache);
  results.decoded = model.cached_logits(batch.slice(1, kSeq - 1, 1).contiguous(), cache).to_vector<double>();
  return results;
}

std::unique_ptr<nn::Model> moved(nn::Model& model, const Device& device, DType dtype) {
  auto copy = std::make_unique<nn::Model>(model.spec(), device, nn::ModelOptions{.dtype = dtype});
  copy->load_state_dict(model.state_dict());
  return copy;
}

TEST_F(CudaModel, LossGradientsAndDecodingEqualTheCpus) {
  const Device gpu = Device::cuda();
  for (const NamedSpec& named : decoder_specs()) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, named.name);
    nn::Model model(named.spec, Device::cpu(2));
    scramble(model);
    const auto there = moved(model, gpu, DType::f32);
    const std::vector<int64_t> ids = random_ids(kBatch * kSeq, named.spec.vocab_size);
    const Results ours = results_of(*there, ids);
    const Results truth = results_of(model, ids);
    EXPECT_NEAR(ours.loss, truth.loss, 2e-5 * std::abs(truth.loss));
    double most = 0;
    for (const auto& [name, gradient] : truth.gradients) most = std::max(most, largest_magnitude(gradient));
    for (const auto& [name, gradient] : truth.gradients) {
      const auto found = ours.gradients.find(name);
      ASSERT_NE(found, ours.gradients.end()) << name;
      EXPECT_LE(largest_error(found->second, gradient), 1e-3 * std::max(largest_magnitude(gradient), 1e-3 * most))
          << name;
    }
    EXPECT_LE(largest_error(ours.decoded, truth.decoded), 1e-4 * largest_magnitude(truth.decoded));
  }
}

TEST_F(CudaModel, Bf16IsAsNearAsOnTheCpu) {
  const Device gpu = Device::cuda();
  for (const char* name : {"gpt2-tiny", "llama-tiny", "gemma-2-tiny", "mixtral-tiny", "mamba-tiny", "mamba2-tiny"}) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, name);
    nn::Model model(arch::resolve(arch::load_preset(name), name), Device::cpu(2));
    const auto narrow = moved(model, Device::cpu(2), DType::bf16);
    const auto there = moved(model, gpu, DType::bf16);
    const std::vector<int64_t> ids = random_ids(kBatch * kSeq, model.spec().vocab_size);
    const double truth = results_of(model, ids).loss;
    const double on_cpu = results_of(*narrow, ids).loss;
    const double on_gpu = results_of(*there, ids).loss;
    EXPECT_NEAR(on_gpu, truth, 3 * std::abs(on_cpu - truth) + 4e-3 * std::abs(truth));
  }
}

TEST_F(CudaModel, ARecordedForwardSeesWhatIsPutIn) {
  const Device gpu = Device::cuda(0, /*deterministic=*/true);
  nn::Model model(arch::resolve(arch::load_preset("llama-tiny"), "llama-tiny"), gpu);
  const std::vector<int64_t> first = random_ids(kBatch * kSeq, model.spec().vocab_size, 1);
  const std::vector<int64_t> second = random_ids(kBatch * kSeq, model.spec().vocab_size, 2);
  Tensor ids = ids_tensor(first, kBatch, gpu);
  const double expected = model.loss(ids_tensor(second, kBatch, gpu), ids_tensor(second, kBatch, gpu)).total.item();
  const double before = model.loss(ids, ids).total.item();
  Tensor loss;
  Replay replay(gpu, [&] { loss = model.loss(ids, ids).total; });
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(replay.run(), i < 3);
    EXPECT_EQ(loss.item(), before) << i;
  }
  ids.copy_(ids_tensor(second, kBatch, gpu));
  EXPECT_FALSE(replay.run());
  EXPECT_EQ(loss.item(), expected);
}

/// Greedy tokens for three prompts of different lengths.
std::vector<infer::Generation> generated(nn::Model& model, const infer::GenerateOptions& options) {
  std::vector<std::vector<text::TokenId>> prompts;
  for (const int64_t length : {5, 9, 6}) {
    const std::vector<int64_t> ids = random_ids(length, model.spec().vocab_size, static_cast<uint64_t>(length));
    prompts.emplace_back(ids.begin(), ids.end());
  }
  return infer::generate(model, prompts, options);
}

TEST_F(CudaModel, RecordedStepsChooseWhatTheCpuChooses) {
  const Device gpu = Device::cuda();
  int stepped = 0;
  for (const NamedSpec& named : decoder_specs()) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, named.name);
    nn::Model model(named.spec, Device::cpu(2));
    scramble(model);
    const auto there = moved(model, gpu, DType::f32);
    stepped += there->supports_row_graphs() ? 1 : 0;
    const infer::GenerateOptions greedy{.max_tokens = 12, .sampler = {.temperature = 0}};
    const auto ours = generated(*there, greedy);
    const auto truth = generated(model, greedy);
    for (size_t row = 0; row < ours.size(); ++row) EXPECT_EQ(ours[row].ids, truth[row].ids) << row;
  }
  EXPECT_GT(stepped, 30);
}

/// CPU and GPU may round a tie differently. The bound is far below the error of 8-bit caches.
TEST_F(CudaModel, CachesOf8BitsEqualTheCpus) {
  const Device gpu = Device::cuda();
  for (const char* name : {"llama-tiny", "gpt2-tiny", "gemma-3-tiny", "mistral-tiny", "hybrid-tiny"}) {
    nn::Model model(arch::resolve(arch::load_preset(name), name), Device::cpu(2));
    scramble(model);
    const auto there = moved(model, gpu, DType::f32);
    const std::vector<int64_t> ids = random_ids(2 * 44, model.spec().vocab_size);
    const auto decoded = [&](nn::Model& with, DType dtype) {
      nn::ModelCache cache = with.make_cache(2, 44, dtype);
      const Tensor all = ids_tensor(ids, 2, with.device());
      std::vector<double> logits;
      int64_t at = 0;
      for (const int64_t size : {20, 1, 1, 18, 1, 2, 1}) {
        logits = with.cached_logits(all.slice(1, at, size).contiguous(), cache).to_vector<double>();
        at += size;
      }
      return logits;
    };
    const std::vector<double> truth = decoded(model, DType::u8);
    EXPECT_LE(largest_error(decoded(*there, DType::u8), truth), 0.25 * largest_error(decoded(model, DType::f32), truth))
        << name;
    const infer::GenerateOptions greedy{.max_tokens = 12, .sampler = {.temperature = 0}, .cache_dtype = DType::u8};
    const auto ours = generated(*there, greedy);
    const auto theirs = generated(model, greedy);
    for (size_t row = 0; row < ours.size(); ++row) EXPECT_EQ(ours[row].ids, theirs[row].ids) << name << " " << row;
  }
}

TEST_F(CudaModel, SamplingOnTheDeviceDrawsWhatTheHostDraws) {
  const Device gpu = Device::cuda();
  nn::Model model(arch::resolve(arch::load_preset("llama-tiny"), "llama-tiny"), Device::cpu(2));
  scramble(model);
  const auto there = moved(model, gpu, DType::f32);
  for (const infer::SamplerOptions& sampler :
       {infer::SamplerOptions{.temperature = 0.9, .seed = 3}, infer::SamplerOptions{.top_k = 8, .seed = 4},
        infer::SamplerOptions{.top_p = 0.7, .min_p = 0.01, .seed = 5},
        infer::SamplerOptions{.repetition_penalty = 1.3, .typical_p = 0.8, .seed = 6}}) {
    // A row that stops early does not affect the others; steps that were queued ahead are discarded.
    infer::GenerateOptions options{.max_tokens = 20, .sampler = sampler, .stop_tokens = {3, 17, 40}};
    const auto ours = generated(*there, options);
    const auto truth = generated(model, options);
    for (size_t row = 0; row < ours.size(); ++row) {
      EXPECT_EQ(ours[row].ids, truth[row].ids) << row;
      EXPECT_EQ(ours[row].finish, truth[row].finish) << row;
    }
  }
}

TEST_F(CudaModel, TurnsGoOnWhereTheLastOneEnded) {
  const Device gpu = Device::cuda();
  for (const char* name : {"llama-tiny", "mamba-tiny"}) {
    nn::Model model(arch::resolve(arch::load_preset(name), name), Device::cpu(2));
    scramble(model);
    const auto there = moved(model, gpu, DType::f32);
    infer::Session ours(*there, 64);
    infer::Session truth(model, 64);
    const infer::GenerateOptions options{.max_tokens = 7, .sampler = {.temperature = 0}};
    for (const text::TokenId said : {5, 9, 11}) {
      const std::vector<text::TokenId> ids{said, said + 1};
      EXPECT_EQ(ours.turn(ids, options).ids, truth.turn(ids, options).ids) << name;
    }
  }
}

}  // namespace
}  // namespace lamina::testing
