// Data parallel training: what the code for several ranks costs on one, two ranks of one thread against two threads,
// and how much of the communication over a link of 25 GB/s backward hides.
#include <algorithm>
#include <chrono>

#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/base/philox.h"
#include "lamina/comm/local.h"
#include "lamina/train/learner.h"
#include "support/suite.h"

namespace lamina::bench {
namespace {

struct Setup {
  std::string preset;
  int64_t batch = 0;
  int64_t length = 0;
};

train::Recipe recipe_of(const Setup& setup, int64_t ranks, int64_t micro_batch = 0) {
  train::Recipe recipe;
  recipe.architecture = arch::resolve(arch::load_preset(setup.preset), setup.preset);
  recipe.batch = setup.batch;
  recipe.length = setup.length;
  recipe.steps = 1000;
  recipe.optimizer = train::AdamWChoice{.lr = 1e-4};
  recipe.layout.dp = ranks;
  recipe.layout.micro_batch = micro_batch;
  return recipe;
}

data::Batch batch_of(const Setup& setup, int64_t vocab) {
  data::Batch batch{setup.batch, setup.length, {}, {}, {}};
  for (int64_t i = 0; i < setup.batch * setup.length; ++i) {
    batch.ids.push_back(static_cast<int64_t>(philox_word({1, 0}, static_cast<uint64_t>(i))) % vocab);
  }
  batch.targets = batch.ids;
  return batch;
}

/// Updates of one learner on random tokens.
class Steps {
 public:
  Steps(const train::Recipe& recipe, const Setup& setup, const Device& device,
        std::shared_ptr<comm::Communicator> communicator = nullptr)
      : learner_(recipe, device, std::move(communicator)), batch_(batch_of(setup, recipe.architecture.vocab_size)) {}
  void operator()() {
    learner_.step(step_++, [&](int64_t /*pass*/) { return batch_; });
  }

 private:
  train::Learner learner_;
  data::Batch batch_;
  int64_t step_ = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct LinkTimes {
  double connected = 0;  ///< seconds of an update that two ranks of one thread share
  double alone = 0;      ///< of both ranks' halves of the batch at the same time, each for itself
};

/// Median times. Updates of both kinds alternate, so that a machine that becomes slower slows both.
LinkTimes two_ranks(const Setup& setup, int updates, double bandwidth) {
  std::vector<double> connected;
  std::vector<double> alone;
  const auto body = [&](comm::Communicator& c) {
    const std::shared_ptr<comm::Communicator> all(&c, [](comm::Communicator*) {});
    Setup half = setup;
    half.batch /= 2;
    Steps shared(recipe_of(setup, 2), setup, Device::cpu(1), all);
    Steps own(recipe_of(half, 1), half, Device::cpu(1));
    const auto seconds = [&](Steps& step) {
      c.barrier({.label = "start"});
      const auto began = std::chrono::steady_clock::now();
      step();
      c.barrier({.label = "end"});
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    };
    for (int i = 0; i <= updates; ++i) {
      const double with_link = seconds(shared);
      const double without = seconds(own);
      if (c.rank() != 0 || i == 0) continue;  // the first ones allocate
      connected.push_back(with_link);
      alone.push_back(without);
    }
  };
  comm::run_local_ranks(2, body, {.bandwidth = bandwidth});
  return {median(connected), median(alone)};
}

}  // namespace

LAMINA_BENCH_SUITE(data_parallel) {
  const Setup small{"llama-10m", 12, 256};
  {
    Steps direct(recipe_of(small, 1), small, context.device());
    Steps parallel(recipe_of(small, 1, small.batch), small, context.device());
    const auto [ours, reference] = context.seconds([&] { parallel(); }, [&] { direct(); });
    context.add({"10M, 12 × 256, one rank through the code of several", ours * 1e3, reference * 1e3, "ms", "one device",
                 std::nullopt, 1.01});
    if (context.device().threads().count() == 2) {
      context.add({"10M, 12 × 256, two ranks of one thread", 1 / two_ranks(small, 7, 0).connected, 1 / reference,
                   "steps/s", "two threads", 0.95});
    }
  }
  const Setup large{"gpt2", 2, 256};
  constexpr double kLink = 25e9;  // bytes per second
  const LinkTimes times = two_ranks(large, 9, kLink);
  context.add({"124M, 2 × 256, two ranks, a link of 25 GB/s", times.connected, times.alone, "s", "no communication",
               std::nullopt, 1.10});
}

}  // namespace lamina::bench
