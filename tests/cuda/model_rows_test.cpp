// Ragged steps and the engine's runner on a GPU: every tiny preset and switch equals the CPU.
#include "cuda/on_gpu.h"
#include "lamina/infer/engine/engine.h"
#include "lamina/infer/runner/model_runner.h"
#include "nn/row_driver.h"

namespace lamina::testing {
namespace {

using CudaRows = OnGpu<>;

std::unique_ptr<nn::Model> copied(const nn::Model& model, const Device& device) {
  auto copy = std::make_unique<nn::Model>(model.spec(), device);
  copy->load_state_dict(model.state_dict());
  return copy;
}

TEST_F(CudaRows, LogitsEqualAFullForwardOnTheCpu) {
  const Device gpu = Device::cuda();
  uint64_t seed = 0;
  for (const NamedSpec& named : decoder_specs()) {
    nn::Model model(named.spec, Device::cpu(2));
    scramble(model);
    const auto wide = in_double(model, model.device());
    const auto there = copied(model, gpu);
    const int64_t length = std::min<int64_t>(60, named.spec.context);
    const Tensor ids = ids_tensor(random_ids(2 * length, named.spec.vocab_size), 2, model.device());
    const double naive =
        std::max(naive_error(model, *wide, ids),
                 largest_error(there->logits(ids.to(gpu)).to_vector<double>(), wide->logits(ids).to_vector<double>()));
    RowSchedule schedule(*there, *wide, length, ++seed);
    double most = 0;
    const double error = schedule.run(most);
    EXPECT_LE(error, 4 * naive + epsilon(DType::f32) * most) << named.name;
  }
}

/// Tokens of several requests that run together. Activations and caches are f32, as on the CPU.
std::vector<std::vector<infer::TokenId>> engine_tokens(nn::Model& model, int64_t requests,
                                                       const infer::SamplerOptions& sampler) {
  std::vector<std::vector<infer::TokenId>> tokens(static_cast<size_t>(requests));
  infer::ModelRunnerOptions options{.rows = 8, .page_size = 16};
  options.cache_bytes = int64_t{1} << 28;
  options.activations = DType::f32;
  options.cache_dtype = DType::f32;
  infer::Engine engine(std::make_unique<infer::ModelRunner>(model, options), {.step_tokens = 16});
  for (int64_t i = 0; i < requests; ++i) {
    infer::Request request;
    const std::vector<int64_t> ids = random_ids(3 + 4 * i, model.spec().vocab_size, static_cast<uint64_t>(i));
    request.prompt.assign(ids.begin(), ids.end());
    request.max_tokens = 6 + 3 * i;  // rows leave one after the other: many batch sizes, and graphs that are replayed
    request.sampler = sampler;
    engine.submit(request, [&tokens, i](const infer::Update& update) {
      for (const infer::ScoredToken& token : update.tokens) tokens[static_cast<size_t>(i)].push_back(token.id);
      EXPECT_EQ(update.error, "");
      return true;
    });
  }
  engine.run_until_idle();
  return tokens;
}

TEST_F(CudaRows, TheRunnersGraphsChooseWhatTheCpuChooses) {
  const Device gpu = Device::cuda();
  for (const NamedSpec& named : decoder_specs()) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, named.name);
    nn::Model model(named.spec, Device::cpu(2));
    scramble(model);
    const auto there = copied(model, gpu);
    const int64_t requests = named.spec.context < 64 ? 2 : 5;
    EXPECT_EQ(engine_tokens(*there, requests, {.temperature = 0}), engine_tokens(model, requests, {.temperature = 0}));
  }
}

/// Tokens of requests that run one after the other, each longer than the shortest page tables of graphs for one row.
std::vector<std::vector<infer::TokenId>> tokens_in_turn(nn::Model& model, int requests) {
  infer::ModelRunnerOptions options{.rows = 8, .page_size = 16};
  options.cache_bytes = int64_t{1} << 28;
  options.activations = DType::f32;
  options.cache_dtype = DType::f32;
  infer::Engine engine(std::make_unique<infer::ModelRunner>(model, options), {});
  std::vector<std::vector<infer::TokenId>> tokens(static_cast<size_t>(requests));
  for (std::vector<infer::TokenId>& answer : tokens) {
    infer::Request request;
    const std::vector<int64_t> ids = random_ids(8, model.spec().vocab_size, tokens.size());
    request.prompt.assign(ids.begin(), ids.end());
    request.max_tokens = 300;
    request.sampler.temperature = 0;
    engine.submit(request, [&answer](const infer::Update& update) {
      for (const infer::ScoredToken& token : update.tokens) answer.push_back(token.id);
      EXPECT_EQ(update.error, "");
      return true;
    });
    engine.run_until_idle();
  }
  return tokens;
}

/// The graph of short rows is captured first, and replayed after longer ones.
TEST_F(CudaRows, ShortRowsAfterLongOnesChooseWhatTheCpuChooses) {
  const Device gpu = Device::cuda();
  for (const arch::Position& position : {arch::Position(arch::Rope{}), arch::Position(arch::SinusoidalPosition{})}) {
    arch::ArchSpec spec = arch::load_preset("llama-tiny");
    spec.context = 512;
    spec.position = position;
    nn::Model model(arch::resolve(spec, "llama-tiny"), Device::cpu(2));
    scramble(model);
    const auto there = copied(model, gpu);
    EXPECT_EQ(tokens_in_turn(*there, 3), tokens_in_turn(model, 3));
  }
}

TEST_F(CudaRows, TheRunnersPenaltiesAndFiltersEqualTheCpus) {
  const Device gpu = Device::cuda();
  nn::Model model(arch::resolve(arch::load_preset("llama-tiny"), "llama-tiny"), Device::cpu(2));
  scramble(model);
  const auto there = copied(model, gpu);
  const infer::SamplerOptions options{
      .repetition_penalty = 1.3, .presence_penalty = 0.3, .temperature = 0.8, .top_k = 30, .top_p = 0.95};
  EXPECT_EQ(engine_tokens(*there, 5, options), engine_tokens(model, 5, options));
}

/// One row with bf16 weights: attention and feed-forward are one launch each if the fused kernels support them.
TEST_F(CudaRows, StepsOfWholeSublayersChooseWhatTheCpuChooses) {
  const Device gpu = Device::cuda();
  for (const NamedSpec& named : decoder_specs()) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, named.name);
    nn::Model model(named.spec, Device::cpu(2));
    scramble(model);
    const auto there = copied(model, gpu);
    for (nn::Model* with : {there.get(), &model}) with->store_weights(nn::parse_weight_formats("bf16"));
    EXPECT_EQ(engine_tokens(*there, 1, {.temperature = 0}), engine_tokens(model, 1, {.temperature = 0}));
  }
}

}  // namespace
}  // namespace lamina::testing
