// Data parallel and ZeRO against one process: gradients in f64, weights after five updates, bit-identical ordered sums.
#include "lamina/comm/fake.h"
#include "lamina/train/parameter_groups.h"
#include "parallel/parallel_support.h"

namespace lamina::testing {
namespace {

/// Gradients by name of the first update of a model in f64.
using Gradients = std::map<std::string, std::vector<double>>;

nn::Model f64_model(const train::Recipe& recipe) {
  return nn::Model(recipe.architecture, Device::cpu(1), {.dtype = DType::f64, .seed = 3});
}

/// One backward pass over the whole batch for each pass of the update, without any of the code under test.
Gradients single_gradients(const train::Recipe& recipe, double& loss) {
  nn::Model model = f64_model(recipe);
  Tape tape;
  watch_all(model, tape);
  const double share = 1.0 / static_cast<double>(recipe.accumulation);
  loss = 0;
  for (int64_t pass = 0; pass < recipe.accumulation; ++pass) {
    const data::Batch batch = batch_of(recipe, pass);
    const Tensor ids = Tensor::from(batch.ids, {batch.rows, batch.length}, model.device());
    const Tensor targets = Tensor::from(batch.targets, {batch.rows, batch.length}, model.device());
    nn::RunOptions run{.training = true,
                       .dropout = {recipe.dropout.embedding, recipe.dropout.attention, recipe.dropout.residual},
                       .seed = static_cast<uint64_t>(recipe.seed),
                       .step = static_cast<uint64_t>(pass)};
    const Tensor total = model.loss(ids, targets, {.z_loss = recipe.z_loss}, run).total;
    loss += share * total.item();
    tape.backward({total}, {Tensor::full(total.shape(), share, total.dtype(), total.device())});
  }
  Gradients result;
  for (const NamedTensor& parameter : train::distinct_parameters(model)) {
    result[parameter.name] = tape.grad(parameter.tensor).to_vector<double>();
  }
  return result;
}

/// Gradients of ParallelUpdate, summed over ranks and complete on every rank.
Gradients parallel_gradients(const train::Recipe& recipe, comm::Communicator& c, double& loss, double& norm) {
  nn::Model model = f64_model(recipe);
  Tape tape;
  watch_all(model, tape);
  const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
  train::ParallelUpdate update(model, tape, recipe, train::rank_groups(recipe.layout, Device::cpu(1), own));
  loss = update.run_passes(0, [&](int64_t pass) { return batch_of(recipe, pass); });
  norm = update.norm();
  const auto optimizer = train::make_optimizer(model, recipe);
  const std::vector<Tensor> grads = update.gradients(*optimizer);
  Gradients result;
  for (size_t i = 0; i < grads.size(); ++i) result[optimizer->names()[i]] = grads[i].to_vector<double>();
  return result;
}

TEST(DataParallel, LossNormAndEveryGradientEqualOneDeviceInF64) {
  for (const std::vector<std::string>& changes : std::vector<std::vector<std::string>>{
           {},
           {"architecture=gpt2-tiny", "layout.micro_batch=3"},
           {"architecture=mamba2-tiny", "layout.order=ordered"},
           {"architecture=gemma-2-tiny", "dropout.residual=0.2", "dropout.embedding=0.1", "checkpointing=true"},
           {"architecture=olmo-2-tiny", "z_loss=0.01", "accumulation=1", "layout.order=ordered"}}) {
    const std::string what = changes.empty() ? "llama-tiny" : changes[0];
    double loss = 0;
    const Gradients expected = single_gradients(small_recipe(changes), loss);
    double squares = 0;
    for (const auto& [name, values] : expected) {
      for (const double value : values) squares += value * value;
    }
    std::vector<std::string> parallel = changes;
    parallel.emplace_back("layout.dp=4");
    const train::Recipe recipe = small_recipe(parallel);
    comm::run_local_ranks(4, [&](comm::Communicator& c) {
      double got_loss = 0;
      double got_norm = 0;
      const Gradients got = parallel_gradients(recipe, c, got_loss, got_norm);
      EXPECT_NEAR(got_loss, loss, 1e-12) << what;
      EXPECT_NEAR(got_norm, std::sqrt(squares), 1e-12) << what;
      ASSERT_EQ(got.size(), expected.size());
      for (const auto& [name, values] : expected) {
        EXPECT_LE(largest_error(got.at(name), values), 1e-12) << what << " " << name << " on rank " << c.rank();
      }
    });
  }
}

const std::vector<std::string> kDropout{"dropout.residual=0.1", "dropout.attention=0.1", "ema=0.9", "seed=4"};

TEST(DataParallel, OrderedRunsHaveTheSameBitsOnAnyNumberOfRanks) {
  for (const char* optimizer : {"optimizer.kind=adamw", "optimizer.kind=sgd", "optimizer.kind=muon"}) {
    std::vector<std::string> changes = kDropout;
    changes.insert(changes.end(), {optimizer, "layout.order=ordered"});
    const Trained one = train_five(small_recipe(changes), nullptr);
    for (const auto& [ranks, zero] :
         std::vector<std::pair<int, int>>{{2, 0}, {8, 0}, {2, 1}, {4, 1}, {4, 2}, {8, 2}, {2, 3}, {4, 3}, {8, 3}}) {
      std::vector<std::string> layout = changes;
      layout.insert(layout.end(), {str("layout.dp=", ranks), str("layout.zero=", zero)});
      const Trained many = train_on_ranks(ranks, small_recipe(layout));
      EXPECT_EQ(first_difference(one, many), "") << optimizer << ", " << ranks << " ranks, zero " << zero;
    }
  }
}

TEST(DataParallel, Bf16WeightsHaveTheSameBitsOnAnyNumberOfRanks) {
  const Trained one = train_five(small_recipe({"dtype=bf16", "layout.order=ordered"}), nullptr);
  for (const int zero : {0, 2, 3}) {
    const train::Recipe recipe =
        small_recipe({"dtype=bf16", "layout.order=ordered", "layout.dp=4", str("layout.zero=", zero)});
    EXPECT_EQ(first_difference(one, train_on_ranks(4, recipe)), "") << "zero " << zero;
  }
}

TEST(DataParallel, FastRunsAgreeWithTheSingleDevicePath) {
  const std::vector<std::string> changes{"dropout.residual=0.1", "optimizer.kind=sgd", "optimizer.lr=0.1"};
  const Trained one = train_five(small_recipe(changes), nullptr);
  for (const auto& [ranks, zero] : std::vector<std::pair<int, int>>{{3, 0}, {2, 1}, {5, 2}, {4, 3}}) {
    std::vector<std::string> layout = changes;
    layout.insert(layout.end(), {str("layout.dp=", ranks), str("layout.zero=", zero)});
    const Trained many = train_on_ranks(ranks, small_recipe(layout));
    EXPECT_LE(largest_difference(one, many), 2e-6) << ranks << " ranks, zero " << zero;
    EXPECT_NEAR(one.losses[4], many.losses[4], 2e-6);
    EXPECT_NEAR(one.norms[4], many.norms[4], 2e-5);
  }
}

TEST(DataParallel, AStateGoesOnWithAnyNumberOfRanks) {
  const auto recipe_of = [](int ranks, int zero) {
    return small_recipe({"layout.order=ordered", "ema=0.9", str("layout.dp=", ranks), str("layout.zero=", zero)});
  };
  nn::StateDict weights;
  NamedTensors state;
  comm::run_local_ranks(4, [&](comm::Communicator& c) {
    const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
    const train::Recipe recipe = recipe_of(4, 2);
    train::Learner learner(recipe, Device::cpu(1), own);
    learner.step(0, [&](int64_t pass) { return batch_of(recipe, pass); });
    const NamedTensors whole = learner.training_state();
    if (c.rank() != 0) return;
    for (const NamedTensor& entry : whole) state.push_back({entry.name, entry.tensor.clone()});
    learner.with_kept_weights([&](const nn::StateDict& kept) {
      for (const auto& [name, tensor] : kept) weights.push_back({name, tensor.detach().clone()});
    });
  });
  const auto resume = [&](train::Learner& learner) { learner.load(weights, state); };
  const Trained one = train_five(recipe_of(1, 0), nullptr, resume);
  comm::run_local_ranks(2, [&](comm::Communicator& c) {
    const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
    for (const int zero : {1, 3}) {
      const Trained two = train_five(recipe_of(2, zero), own, resume);
      if (c.rank() == 0) {
        EXPECT_EQ(first_difference(one, two), "") << "zero " << zero;
      }
    }
  });
}

TEST(DataParallel, RehearsedRanksAgreeAndSendWhatTheyMust) {
  for (const int zero : {0, 1, 2}) {
    const train::Recipe recipe = small_recipe({"layout.dp=4", str("layout.zero=", zero)});
    comm::FakeWorld world(4);
    int64_t parameters = 0;
    for (int rank = 0; rank < 4; ++rank) {
      train::Learner learner(recipe, Device::meta(), world.communicator(rank));
      learner.rehearse_update();
      parameters = 0;
      for (const NamedTensor& parameter : train::distinct_parameters(learner.model())) {
        parameters += parameter.tensor.numel();
      }
    }
    world.check();
    int64_t gradients = 0;
    int64_t weights = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const auto traffic = world.traffic(rank);
      gradients += traffic.at("gradients").bytes;
      weights += traffic.contains("weights") ? traffic.at("weights").bytes : 0;
    }
    const int64_t once = 3 * 4 * parameters;  // bytes that all four ranks send to scatter sums, or to gather parts
    EXPECT_EQ(gradients, zero == 2 ? once : 2 * once) << "zero " << zero;
    EXPECT_EQ(weights, zero == 0 ? 0 : once) << "zero " << zero;
  }
}

TEST(DataParallel, EvaluationSharedByRanksHasTheSameBits) {
  const train::Recipe recipe = small_recipe({});
  const train::EvaluationData data{
      .batches = 7, .at = [&](int64_t i) { return batch_of(recipe, 100 + i); }, .accuracy = true};
  train::Learner single(recipe, Device::cpu(1));
  const std::optional<train::Measured> expected = single.evaluate(data);
  for (const int zero : {0, 3}) {
    const train::Recipe divided = small_recipe({"layout.dp=3", str("layout.zero=", zero)});
    comm::run_local_ranks(3, [&](comm::Communicator& c) {
      const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
      const std::optional<train::Measured> got = train::Learner(divided, Device::cpu(1), own).evaluate(data);
      EXPECT_EQ(got->loss, expected->loss);
      EXPECT_EQ(got->accuracy->tokens, expected->accuracy->tokens);
      EXPECT_EQ(got->accuracy->examples, expected->accuracy->examples);
    });
  }
}

TEST(DataParallel, ALossThatIsNotFiniteEndsAllRanksAlike) {
  const train::Recipe recipe = small_recipe({"layout.dp=2"});
  std::atomic<int> ended{0};
  comm::run_local_ranks(2, [&](comm::Communicator& c) {
    const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
    train::Learner learner(recipe, Device::cpu(1), own);
    for (const NamedTensor& parameter : train::distinct_parameters(learner.model())) {
      if (parameter.name.find("norm") != std::string::npos) parameter.tensor.detach().fill_(INFINITY);
    }
    EXPECT_THROW(learner.step(0, [&](int64_t pass) { return batch_of(recipe, pass); }), train::NotFinite);
    ++ended;
  });
  EXPECT_EQ(ended, 2);
}

TEST(DataParallel, RanksMustFitTheLayout) {
  EXPECT_THROW(train::Learner(small_recipe({"layout.dp=2"}), Device::cpu(1)), Error);
  EXPECT_THROW(train::Learner(small_recipe({"layout.dp=2"}), Device::cpu(1), comm::single_rank()), Error);
}

}  // namespace
}  // namespace lamina::testing
