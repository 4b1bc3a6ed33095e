// Ranks that are processes, over MPI, TCP or NCCL: collectives have the bits of local ranks, training and the engine
// have the results of one process on the same device. The script launched_test starts the processes.
#include <cstdio>
#include <cstring>

#include "parallel/launched.h"
#include "parallel/parallel_support.h"
#include "parallel/shared_engine_support.h"

namespace lamina::testing {
namespace {

/// Element i of rank r's input: numbers of very different size, so that the order of additions shows in the bits.
Tensor input_of(int rank, int64_t count, DType dtype, const Device& device) {
  std::vector<float> values;
  std::vector<int64_t> whole;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t word = philox_word({11, static_cast<uint64_t>(rank)}, static_cast<uint64_t>(i));
    values.push_back(std::ldexp(static_cast<float>(word % 20001) - 10000.0F, static_cast<int>(word >> 28U) - 8));
    whole.push_back(static_cast<int64_t>(word) - (int64_t{1} << 31U));
  }
  const Device host = Device::cpu(1);
  const Tensor x = dtype == DType::i64 ? Tensor::from(whole, {count}, host) : Tensor::from(values, {count}, host);
  return x.to(dtype).to(device);
}

/// The bytes of results by name, in the order of the calls.
using Outcomes = std::vector<std::pair<std::string, std::string>>;

void keep(Outcomes& outcomes, const std::string& what, const Tensor& result) {
  const Tensor here = result.to(Device::cpu(1));
  std::string bytes(static_cast<size_t>(here.nbytes()), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), here.raw(), bytes.size());
  outcomes.emplace_back(what, std::move(bytes));
}

/// Runs every collective once and keeps this rank's results.
void call_all(comm::Communicator& c, const Device& device, DType dtype, int64_t count, Outcomes& outcomes) {
  const int n = c.size();
  const int own = c.rank();
  const auto id = static_cast<size_t>(own);
  const std::string what = str(dtype, " × ", count, ", ");
  const auto input = [&](int64_t elements) { return input_of(own, elements, dtype, device); };

  Tensor sum = input(count);
  c.all_reduce(sum, {.label = "sum"});
  keep(outcomes, what + "all_reduce", sum);
  Tensor copy = input(count);
  c.broadcast(copy, n - 1, {.label = "copy"});
  keep(outcomes, what + "broadcast", copy);

  std::vector<int64_t> counts;  // uneven, and rank 1 has nothing
  for (int64_t r = 0; r < n; ++r) counts.push_back(r == 1 ? 0 : count + r);
  int64_t total = 0;
  for (const int64_t one : counts) total += one;
  const Tensor part = Tensor::empty({counts[id]}, dtype, device);
  c.reduce_scatter(input(total), part, counts, {.label = "parts"});
  keep(outcomes, what + "reduce_scatter", part);
  const Tensor whole = Tensor::empty({total}, dtype, device);
  c.all_gather(part, whole, counts, {.label = "whole"});
  keep(outcomes, what + "all_gather", whole);

  std::vector<int64_t> pairs;  // ranks s and r send each other s + r + count elements
  int64_t elements = 0;
  for (int64_t r = 0; r < n; ++r) elements += pairs.emplace_back(own + r + count);
  const Tensor received = Tensor::empty({elements}, dtype, device);
  c.all_to_all(input(elements), received, pairs, pairs, {.label = "experts"});
  keep(outcomes, what + "all_to_all", received);
  const Tensor from_left = Tensor::empty({count}, dtype, device);
  c.exchange({{(own + 1) % n, input(count)}}, {{(own + n - 1) % n, from_left}}, {.label = "ring"});
  keep(outcomes, what + "exchange", from_left);
}

Outcomes all_outcomes(comm::Communicator& c, const Device& device, const std::vector<int64_t>& sizes) {
  Outcomes outcomes;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i64}) {
    for (const int64_t count : sizes) call_all(c, device, dtype, count, outcomes);
  }
  std::vector<int> colors(static_cast<size_t>(c.size()));
  for (size_t r = 0; r < colors.size(); ++r) colors[r] = static_cast<int>(r % 2);
  const auto half = c.split(colors);
  Tensor sum = input_of(c.rank(), 777, DType::f32, device);
  half->all_reduce(sum, {.label = "half"});
  keep(outcomes, "all_reduce of every other rank", sum);
  c.barrier({.label = "end"});
  return outcomes;
}

/// Compares this rank's results with those of the same rank among threads of this process, on the CPU.
void expect_local_bits(comm::Communicator& c, const Device& device, const std::vector<int64_t>& sizes) {
  const Outcomes got = all_outcomes(c, device, sizes);
  std::vector<Outcomes> expected(static_cast<size_t>(c.size()));
  comm::run_local_ranks(c.size(), [&](comm::Communicator& local) {
    expected[static_cast<size_t>(local.rank())] = all_outcomes(local, Device::cpu(1), sizes);
  });
  const Outcomes& own = expected[static_cast<size_t>(c.rank())];
  ASSERT_EQ(got.size(), own.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(got[i] == own[i]) << got[i].first << " over " << c.backend() << " differs from local ranks";
  }
}

TEST_F(Launched, CollectivesHaveTheBitsOfLocalRanks) {
  expect_local_bits(*ranks(), device(), {1, 7, 1500, 300000});
  if (on_gpu()) expect_local_bits(*ranks(), Device::cpu(1), {7, 5000});  // tensors of the host beside those of the GPU
}

TEST_F(Launched, TheBackendsOwnSumIsNearTheOrderedOne) {
  constexpr int64_t kCount = 40000;
  constexpr double kLargest = 1.3e6;  // largest magnitude of an input
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    Tensor fast = input_of(ranks()->rank(), kCount, dtype, device());
    ranks()->all_reduce(fast, {.label = "fast", .order = comm::Order::fast});
    Tensor ordered = input_of(ranks()->rank(), kCount, dtype, device());
    ranks()->all_reduce(ordered, {.label = "ordered"});
    const std::vector<double> got = fast.to(DType::f64).to_vector<double>();
    const std::vector<double> expected = ordered.to(DType::f64).to_vector<double>();
    const double rounding = dtype == DType::f32 ? 1e-6 : dtype == DType::f64 ? 1e-15 : 0;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], rounding * kLargest * size()) << dtype << " element " << i;
    }
  }
}

/// Changes of a recipe, without its layout.
using Changes = std::vector<std::string>;

Changes with(Changes changes, const Changes& more) {
  changes.insert(changes.end(), more.begin(), more.end());
  return changes;
}

TEST_F(Launched, OrderedTrainingHasTheBitsOfOneProcess) {
  for (const char* optimizer : {"optimizer.kind=adamw", "optimizer.kind=muon"}) {
    const Changes changes{optimizer, "ema=0.9", "dropout.residual=0.1", "layout.order=ordered"};
    const Trained one = train_five(small_recipe(changes), nullptr, {}, device());
    for (int zero = 0; zero <= 3; ++zero) {
      const Changes layout = with(changes, {str("layout.dp=", size()), str("layout.zero=", zero)});
      const Trained many = train_five(small_recipe(layout), ranks(), {}, device());
      EXPECT_EQ(one.losses, many.losses) << optimizer << ", zero " << zero;
      if (is_first()) {
        EXPECT_EQ(first_difference(one, many), "") << optimizer << ", zero " << zero;
      }
    }
  }
}

TEST_F(Launched, EveryFormOfTrainingEqualsOneProcess) {
  const std::string n = std::to_string(size());
  const std::string ffn = "architecture.layers[0].pattern[0].ffn.";
  const Changes llama{"architecture=llama-tiny", "architecture.layers[0].repeat=4"};
  const Changes experts{"architecture=mixtral-tiny", ffn + "balance_loss=0.1"};
  const std::pair<Changes, Changes> cases[] = {
      {llama, {"layout.dp=" + n, "layout.zero=2"}},
      {llama, {"layout.dp=" + n, "layout.zero=3", "layout.micro_batch=1"}},
      {llama, {"layout.tp=" + n}},
      {llama, {"layout.tp=" + n, "layout.sequence=true"}},
      {{"architecture=mamba-tiny"}, {"layout.tp=" + n}},
      {llama, {"layout.pp=" + n, "layout.micro_batch=2"}},
      {llama, {"layout.cp=" + n, "layout.zero=1"}},
      {experts, {"layout.dp=" + n, "layout.ep=" + n, "layout.zero=2"}},
  };
  for (const auto& [changes, layout] : cases) {
    const Changes common = with(changes, {"optimizer.kind=sgd", "optimizer.lr=0.1"});
    const Trained one = train_five(small_recipe(common), nullptr, {}, device());
    const Trained many = train_five(small_recipe(with(common, layout)), ranks(), {}, device());
    std::string what = changes[0];
    for (const std::string& choice : layout) what += " " + choice;
    EXPECT_NEAR(one.losses[4], many.losses[4], 2e-5) << what;
    EXPECT_NEAR(one.norms[4], many.norms[4], 2e-4) << what;
    if (!is_first()) continue;
    const double difference = largest_difference(one, many);
    EXPECT_LE(difference, 2e-5) << what;
    std::printf("%s over %s: weights differ by %.1e\n", what.c_str(), std::string(ranks()->backend()).c_str(),
                difference);
  }
}

/// Runs requests on ranks that share `whole`. The answers are on rank 0.
GivenAnswers answered_together(const nn::Model& whole, const std::string& formats,
                               const std::shared_ptr<comm::Communicator>& ranks, const std::vector<Request>& requests) {
  const auto parallel = std::make_shared<nn::TensorParallel>(ranks, false);
  const auto model = shard_of(whole, parallel);
  model->store_weights(nn::parse_weight_formats(formats));
  infer::ModelRunnerOptions options{.rows = 4, .context = 64, .cache_bytes = 1 << 22, .page_size = 16};
  GivenAnswers answers;
  if (ranks->rank() > 0) {
    infer::StepFollower follower(parallel);
    follower.add(*model, options);
    follower.run();
    return answers;
  }
  options.leader = std::make_shared<infer::StepLeader>(parallel);
  infer::Engine engine(std::make_unique<infer::ModelRunner>(*model, options), {.rows = 4, .step_tokens = 24});
  for (const Request& request : requests) engine.submit(request, listen_into(answers));
  engine.run_until_idle();
  options.leader->stop();
  return answers;
}

TEST_F(Launched, TheSharedEngineGivesTheAnswersOfTheWholeModel) {
  for (const char* preset : {"llama-tiny", "gemma-2-tiny", "mixtral-tiny", "deepseek-tiny", "mamba-tiny"}) {
    nn::Model whole(changed(preset, {}).spec, device());
    scramble(whole);
    std::vector<Request> requests;
    for (uint64_t i = 0; i < 10; ++i) requests.push_back(varied_request(i));
    const GivenAnswers got = answered_together(whole, "as-stored", ranks(), requests);
    if (!is_first()) continue;
    for (size_t i = 0; i < requests.size(); ++i) {
      for (const auto& [key, alone] : answered_alone(whole, requests[i])) {
        SCOPED_TRACE(str(preset, ", request ", i, ", answer ", key.second));
        const GivenAnswer& answer = got.at({static_cast<RequestId>(i + 1), key.second});
        ASSERT_EQ(answer.error, "");
        ASSERT_EQ(answer.ids, alone.ids);
        expect_near(answer.prompt, alone.prompt);
        expect_near(answer.logprobs, alone.logprobs, answer.ids.size());
      }
    }
  }
}

/// Weights of fewer bits: a GPU computes in bf16, and the shards of a row are quantized in other blocks.
TEST_F(Launched, TheSharedEngineScoresPromptsWithNarrowWeights) {
  std::vector<Request> requests(3);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt = random_tokens(10 + 17 * static_cast<int64_t>(i), i);
    requests[i].prompt_logprobs = 1;
    requests[i].max_tokens = 3;
  }
  for (const char* formats : {"bf16", "q8"}) {
    nn::Model whole(changed("llama-tiny", {}).spec, device());
    scramble(whole);
    const GivenAnswers got = answered_together(whole, formats, ranks(), requests);
    if (!is_first()) continue;
    whole.store_weights(nn::parse_weight_formats(formats));
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(str(formats, ", request ", i));
      const GivenAnswer alone = answered_alone(whole, requests[i]).begin()->second;
      const GivenAnswer& answer = got.at({static_cast<RequestId>(i + 1), 0});
      ASSERT_EQ(answer.error, "");
      ASSERT_EQ(answer.prompt.size(), alone.prompt.size());
      for (size_t t = 0; t < alone.prompt.size(); ++t) {
        EXPECT_NEAR(answer.prompt[t].logprob, alone.prompt[t].logprob, 0.1) << "prompt token " << t;
      }
    }
  }
}

TEST_F(Launched, EmptyTensorsAreCollectedToo) { expect_local_bits(*ranks(), device(), {0}); }

}  // namespace
}  // namespace lamina::testing
