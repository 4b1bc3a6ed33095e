// Random small architectures with random layouts of all forms of parallelism at once, against one device in f64: loss,
// norm and every named gradient. And with each collective left out: the comparison must notice.
//
// By default a fixed list of pairs. LAMINA_LAYOUT_SECONDS=600 compares pairs of random seeds for ten minutes, and
// LAMINA_LAYOUT_SEED=N only that of seed N.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>

#include "lamina/arch/resolve.h"
#include "parallel/first_update.h"
#include "parallel/muted_communicator.h"
#include "parallel/random_architecture.h"
#include "parallel/run_support.h"

namespace lamina::testing {
namespace {

constexpr uint64_t kFirstSeed = 9000;
constexpr int kMostRanks = 8;

struct RandomPair {
  train::Recipe recipe;
  std::string what;
};

/// The auxiliary losses of experts are means over a micro-batch, or over those that ranks with `ep` compute together.
void drop_auxiliary_losses(arch::ArchSpec& spec) {
  for (arch::LayerGroup& group : spec.layers) {
    for (arch::Block& block : group.pattern) {
      if (auto* moe = std::get_if<arch::Moe>(&block.ffn)) moe->balance_loss = moe->z_loss = 0;
    }
  }
}

void choose_layout(Draw& draw, train::Recipe& recipe) {
  train::LayoutChoice& layout = recipe.layout;
  layout.sequence = layout.tp > 1 && draw.coin();
  layout.zero = draw.below(4);
  layout.micro_batch = draw.coin() ? 0 : 1 + draw.below(4);
  if (draw.below(3) == 0) layout.order = train::SumOrder::ordered;
  if (layout.pp > 1 && draw.coin()) {
    layout.schedule = train::PipelineSchedule::interleaved;
    layout.interleave = 2;
  }
  const train::Recompute choices[] = {train::Recompute::none, train::Recompute::selective, train::Recompute::full};
  layout.recompute = choices[draw.below(3)];
  if (layout.dp == 1 && draw.below(4) == 0) {
    recipe.data.order = data::Order::packed;
    layout.micro_batch = 0;
    layout.order = train::SumOrder::fast;
  }
}

arch::ArchSpec choose_architecture(Draw& draw, const train::LayoutChoice& layout) {
  arch::ArchSpec spec = random_architecture(draw, layout.tp);
  spec.context = 128;  // packed documents are longer than a row
  if (draw.below(5) == 0) spec.position = arch::Alibi{};
  if (draw.below(6) == 0) spec.position = arch::T5Bias{.buckets = 8, .max_distance = 12};
  if (layout.pp > 1) {
    for (arch::LayerGroup& group : spec.layers) group.repeat = 2;
  }
  return spec;
}

/// Whether no rule refuses the recipe.
bool is_allowed(const train::Recipe& recipe) {
  const train::LayoutChoice& layout = recipe.layout;
  bool allowed = true;
  train::check_layout(recipe, [&](const auto&...) { allowed = false; });
  return allowed && arch::tensor_parallel_problems(recipe.architecture, layout.tp).empty() &&
         arch::expert_parallel_problems(recipe.architecture, layout.ep).empty() &&
         arch::pipeline_problems(recipe.architecture, layout.pp, layout.chunks()).empty() &&
         arch::context_parallel_problems(recipe.architecture, layout.cp).empty();
}

std::string describe(uint64_t seed, const train::Recipe& recipe) {
  const train::LayoutChoice& l = recipe.layout;
  std::string what = str("seed ", seed, ": dp ", l.dp, " tp ", l.tp, " pp ", l.pp, " cp ", l.cp, " ep ", l.ep, " zero ",
                         l.zero, " micro_batch ", l.micro_batch, " interleave ", l.interleave);
  if (l.sequence) what += " sequence";
  if (l.order == train::SumOrder::ordered) what += " ordered";
  if (l.recompute != train::Recompute::none) what += recipe.checkpointing ? " recompute full" : " recompute selective";
  if (train::is_packed(recipe)) what += " packed";
  return what;
}

/// The pair of a seed. Empty if the rules refuse it, or if it has one rank.
std::optional<RandomPair> pair_of(uint64_t seed) {
  Draw draw(seed);
  train::Recipe recipe = small_recipe(
      {"batch=8", str("length=", 8 + draw.below(5)), str("accumulation=", 1 + draw.below(2)), "dropout.residual=0.1",
       "optimizer.kind=sgd", "optimizer.lr=0.1", str("dropout.embedding=", draw.coin() ? "0.1" : "0")});
  train::LayoutChoice& layout = recipe.layout;
  layout.tp = 1 + draw.below(3);
  layout.pp = 1 + draw.below(2);
  layout.cp = draw.coin() ? 1 : 1 + draw.below(3);
  layout.dp = 1 + draw.below(4);
  if (layout.ranks() < 2 || layout.ranks() > kMostRanks) return {};
  choose_layout(draw, recipe);
  try {
    recipe.architecture = arch::resolve(choose_architecture(draw, layout), "random");
  } catch (const arch::SpecError&) {
    return {};  // a combination that no model has
  }
  const bool experts = has_experts(recipe.architecture);
  if (experts && layout.dp > 1 && draw.coin()) {
    layout.ep = layout.dp;
    layout.order = train::SumOrder::fast;
  }
  train::resolve_layout(recipe);
  const bool whole_batches = layout.micro_batch == 0 && layout.dp == layout.ep;
  if (experts && !whole_batches) drop_auxiliary_losses(recipe.architecture);
  if (!is_allowed(recipe)) return {};
  return RandomPair{recipe, describe(seed, recipe)};
}

/// With ZeRO-1 and 2 a rank has the gradients of its pieces only; the weights after five updates are compared instead.
bool keeps_gradients(const train::Recipe& recipe) { return recipe.layout.zero == 0 || recipe.layout.zero == 3; }

First on_one_device(const RandomPair& pair) {
  try {
    return keeps_gradients(pair.recipe) ? single_device(pair.recipe)
                                        : First{.gradients = single_device_weights(pair.recipe)};
  } catch (const std::exception& problem) {
    throw Error(str(pair.what, ": ", problem.what()));
  }
}

First on_this_rank(const train::Recipe& recipe, comm::Communicator& c) {
  return keeps_gradients(recipe) ? on_ranks(recipe, c) : First{.gradients = weights_on_ranks(recipe, c)};
}

double error_of(const First& got, const First& expected) {
  double error = largest_error({got.loss, got.norm}, {expected.loss, expected.norm});
  if (got.gradients.size() != expected.gradients.size()) return std::numeric_limits<double>::infinity();
  for (const auto& [name, values] : expected.gradients) {
    const auto found = got.gradients.find(name);
    if (found == got.gradients.end()) return std::numeric_limits<double>::infinity();
    error = std::max(error, largest_error(found->second, values));
  }
  return error;
}

/// The largest error of loss, norm and gradients on any rank of the pair's layout. `muted` is the label and operation
/// of calls that are left out; then an exception counts as an infinite error. `called` gets those of all calls.
double error_on_ranks(const RandomPair& pair, const First& expected, const std::string& muted,
                      std::set<std::string>* called) {
  std::atomic<int> skipped{0};
  std::mutex mutex;
  double error = 0;
  const auto run = [&](comm::Communicator& c) {
    const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
    CallLog log;
    MutedCommunicator calls(own, muted, skipped, &log);
    const double own_error = error_of(on_this_rank(pair.recipe, calls), expected);
    const std::lock_guard lock(mutex);
    error = std::max(error, own_error);
    if (called != nullptr) called->insert(log.begin(), log.end());
  };
  try {
    comm::run_local_ranks(static_cast<int>(pair.recipe.layout.ranks()), run, {.deadline = 60});
  } catch (const std::exception& problem) {
    if (muted.empty()) ADD_FAILURE() << pair.what << ": " << problem.what();
    return std::numeric_limits<double>::infinity();
  }
  return error;
}

constexpr double kTolerance = 1e-12;

TEST(RandomLayouts, LossNormAndEveryGradientEqualOneDeviceInF64) {
  const auto number = [](const char* name) -> std::optional<double> {
    const char* text = std::getenv(name);
    if (text == nullptr) return {};
    return std::atof(text);
  };
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const double seconds = number("LAMINA_LAYOUT_SECONDS").value_or(0);
  const std::optional<double> single = number("LAMINA_LAYOUT_SEED");
  const int wanted = single ? 1 : 24;
  const uint64_t first = single ? static_cast<uint64_t>(*single) : seconds > 0 ? std::random_device()() : kFirstSeed;
  uint64_t seed = first;
  int compared = 0;
  for (; (compared < wanted && seed < first + 1000) ||
         std::chrono::duration<double>(Clock::now() - start).count() < seconds;
       ++seed) {
    const std::optional<RandomPair> pair = pair_of(seed);
    ASSERT_TRUE(pair || !single) << "seed " << seed << " has no pair that the rules allow";
    if (!pair) continue;
    ++compared;
    EXPECT_LE(error_on_ranks(*pair, on_one_device(*pair), "", nullptr), kTolerance) << pair->what;
    if (single) std::printf("%s\n", pair->what.c_str());
  }
  std::printf("%d architectures with layouts, seeds %llu to %llu\n", compared, static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(seed - 1));
  EXPECT_GE(compared, wanted);
}

TEST(RandomLayouts, TheComparisonNoticesEveryCollectiveThatIsLeftOut) {
  constexpr int kPairs = 16;
  constexpr int kTries = 5;  // a collective may not matter to a pair: a layer whose gradient is 0, for example
  std::map<std::string, int> missed;
  std::set<std::string> noticed;
  int pairs = 0;
  for (uint64_t seed = kFirstSeed; pairs < kPairs && seed < kFirstSeed + 1000; ++seed) {
    const std::optional<RandomPair> pair = pair_of(seed);
    if (!pair) continue;
    ++pairs;
    const First expected = on_one_device(*pair);
    std::set<std::string> called;
    EXPECT_LE(error_on_ranks(*pair, expected, "", &called), kTolerance) << pair->what;
    for (const std::string& call : called) {
      if (noticed.contains(call) || missed[call] == kTries) continue;
      if (error_on_ranks(*pair, expected, call, nullptr) > 1e3 * kTolerance) {
        noticed.insert(call);
      } else {
        ++missed[call];
      }
    }
  }
  for (const auto& [call, times] : missed) {
    EXPECT_TRUE(noticed.contains(call)) << call << " was left out of " << times << " updates, and nothing changed";
  }
  std::printf("%zu kinds of calls, each left out and noticed\n", noticed.size());
  EXPECT_GE(noticed.size(), 20U);
}

}  // namespace
}  // namespace lamina::testing
