// A layout of 4,096 ranks of a 405B model, rehearsed on meta: all ranks' calls fit together.

#include "lamina/comm/fake.h"
#include "parallel/parallel_support.h"

namespace lamina::testing {
namespace {

/// The architecture and layout of Llama 3 405B (arXiv:2407.21783, Table 4) with fewer data-parallel ranks.
train::Recipe recipe_405b() {
  const std::string layer = "architecture.layers[0].pattern[0].";
  return small_recipe({"architecture=llama-3-8b", "architecture.d_model=16384", "architecture.context=8192",
                       "architecture.layers[0].repeat=126", layer + "mixer.n_heads=128", layer + "mixer.n_kv_heads=8",
                       layer + "ffn.d_ff=53248", "dtype=bf16", "batch=2048", "length=8192", "accumulation=1",
                       "layout.dp=32", "layout.tp=8", "layout.pp=16", "layout.zero=1", "layout.sequence=true",
                       "layout.micro_batch=1"});
}

/// The calls of a rank as text, with world ranks counted from that of tensor-parallel rank 0 of its replica.
std::string text_of(const comm::FakeWorld& world, int rank, int origin) {
  std::string text;
  for (const comm::FakeCall& call : world.calls(rank)) {
    text += str(name_of(call.operation), " ", call.label, " ", call.group->members.size());
    for (const int64_t number : call.signature) text += str(" ", number);
    for (const int peer : call.sends) text += str(" to ", peer - origin);
    for (const int peer : call.receives) text += str(" from ", peer - origin);
    text += "\n";
  }
  return text;
}

TEST(ClusterRehearsal, CallsOf4096RanksOfA405BModelFitTogether) {
  const train::Recipe recipe = recipe_405b();
  const int ranks = static_cast<int>(recipe.layout.ranks());
  ASSERT_EQ(ranks, 4096);
  const int tp = static_cast<int>(recipe.layout.tp);
  const int dp = static_cast<int>(recipe.layout.dp);
  comm::FakeWorld world(ranks);
  const auto rehearse = [&](int rank) {
    train::Learner learner(recipe, Device::meta(), world.communicator(rank));
    learner.rehearse_update();
  };
  // Rank (stage · dp + d) · tp + t. Ranks of a stage hold shards of the same sizes and make the same calls: the first
  // one stands for all.
  for (int stage = 0; stage < recipe.layout.pp; ++stage) {
    const int first = stage * dp * tp;
    rehearse(first);
    for (int t = 0; t < tp; ++t) {
      if (t > 0) world.repeat(first, first + t);
      for (int d = 1; d < dp; ++d) world.repeat(first + t, first + t + d * tp);
    }
  }
  world.check();
  EXPECT_GT(world.calls(0).size(), 500U);
  // That they do: another tensor-parallel rank of the last replica, rehearsed itself.
  comm::FakeWorld other(ranks);
  const int checked = (5 * dp + dp - 1) * tp + 3;
  train::Learner learner(recipe, Device::meta(), other.communicator(checked));
  learner.rehearse_update();
  EXPECT_EQ(text_of(other, checked, checked), text_of(world, checked, checked));
  // A rank that makes one call more is found.
  world.communicator(1234)->barrier({.label = "one more"});
  EXPECT_THROW(world.check(), Error);
}

}  // namespace
}  // namespace lamina::testing
