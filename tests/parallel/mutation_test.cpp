// Leaves out each collective of an update in turn. A test that compares with one process must notice every time.
#include <limits>

#include "parallel/muted_communicator.h"

namespace lamina::testing {
namespace {

TEST(Mutation, EveryCollectiveOfAnUpdateIsNeeded) {
  const Trained one = train_five(small_recipe({"layout.order=ordered"}), nullptr);
  const std::vector<std::pair<std::string, int>> cases{{"gradients", 0}, {"gradients", 2}, {"weights", 1},
                                                       {"losses", 0},    {"norm", 2},      {"optimizer state", 1},
                                                       {"gradients", 3}, {"weights", 3},   {"norm", 3}};
  for (const auto& [label, zero] : cases) {
    std::atomic<int> skipped{0};
    const train::Recipe recipe = small_recipe({"layout.order=ordered", "layout.dp=2", str("layout.zero=", zero)});
    const auto wrap = [&skipped, &muted_label = label](std::shared_ptr<comm::Communicator> inner) {
      return std::make_shared<MutedCommunicator>(std::move(inner), muted_label, skipped);
    };
    const Trained muted = train_on_ranks(2, recipe, wrap);
    EXPECT_GT(skipped, 0) << label;
    EXPECT_NE(first_difference(one, muted), "") << label << " is left out, zero " << zero;
  }
}

/// Changes of a recipe whose ranks use every collective of tensor parallel: KV heads that two ranks share, and a norm
/// of queries and keys that all heads share.
std::vector<std::string> tensor_layout(bool sequence) {
  return {"architecture=qwen3-tiny",
          "architecture.layers[0].pattern[0].mixer.n_kv_heads=2",
          "optimizer.kind=sgd",
          "optimizer.lr=0.1",
          "layout.tp=4",
          str("layout.sequence=", sequence ? "true" : "false")};
}

TEST(Mutation, EveryCollectiveOfTensorParallelIsNeeded) {
  std::vector<std::string> single = tensor_layout(false);
  single.resize(single.size() - 2);
  const Trained one = train_five(small_recipe(single), nullptr);
  const std::vector<std::pair<std::string, bool>> cases{
      {"", false},  // nothing is left out: the same within rounding
      {"", true},
      {"sublayer output", false},
      {"sublayer input", false},
      {"shared gradients", false},
      {"norm of shards", false},
      {"loss", false},
      {"checkpoint", false},
      {"sublayer output/reduce_scatter", true},
      {"sublayer output/all_gather", true},
      {"sublayer input/all_gather", true},
      {"sublayer input/reduce_scatter", true},
  };
  for (const auto& [label, sequence] : cases) {
    std::atomic<int> skipped{0};
    const auto wrap = [&skipped, &muted_label = label](std::shared_ptr<comm::Communicator> inner) {
      return std::make_shared<MutedCommunicator>(std::move(inner), muted_label, skipped);
    };
    const Trained muted = train_on_ranks(4, small_recipe(tensor_layout(sequence)), wrap);
    const double norm_error = std::abs(one.norms[4] - muted.norms[4]);
    const double error = std::max(norm_error, largest_difference(one, muted));
    if (label.empty()) {
      EXPECT_LE(error, 2e-5);
    } else {
      EXPECT_GT(skipped, 0) << label;
      EXPECT_GT(error, 1e-3) << label << " is left out";
    }
  }
}

/// Trains on `ranks` ranks without the calls of one label. Returns the largest error of weights, loss and norm against
/// `one`; infinite if the ranks notice it themselves.
double error_without(const std::string& label, const train::Recipe& recipe, const Trained& one) {
  std::atomic<int> skipped{0};
  const auto wrap = [&](std::shared_ptr<comm::Communicator> inner) {
    return std::make_shared<MutedCommunicator>(std::move(inner), label, skipped);
  };
  double error = std::numeric_limits<double>::infinity();
  try {
    const Trained muted = train_on_ranks(static_cast<int>(recipe.layout.ranks()), recipe, wrap);
    const double of_loss = std::abs(one.losses[4] - muted.losses[4]);
    error = std::max({of_loss, std::abs(one.norms[4] - muted.norms[4]), largest_difference(one, muted)});
  } catch (const Error&) {
  }
  EXPECT_EQ(skipped > 0, !label.empty()) << label;
  return error;
}

TEST(Mutation, EveryCollectiveOfExpertParallelIsNeeded) {
  const std::string ffn = "architecture.layers[0].pattern[0].ffn.";
  std::vector<std::string> changes{"architecture=mixtral-tiny", "optimizer.kind=sgd", "optimizer.lr=0.1",
                                   ffn + "balance_loss=1", ffn + "z_loss=0.1"};
  const Trained one = train_five(small_recipe(changes), nullptr);
  changes.insert(changes.end(), {"layout.dp=4", "layout.ep=2", "layout.zero=2"});
  const train::Recipe recipe = small_recipe(changes);
  EXPECT_LE(error_without("", recipe, one), 2e-5);  // nothing is left out: the same within rounding
  for (const char* label :
       {"expert counts", "expert rows", "expert rows gradients", "expert outputs", "expert outputs gradients",
        "expert load", "gradients", "weights", "losses", "norm of shards", "checkpoint"}) {
    EXPECT_GT(error_without(label, recipe, one), 1e-4) << label << " is left out";
  }
}

TEST(Mutation, MuonNeedsTheOtherRanksPartsOfAMatrix) {
  std::vector<std::string> changes{"architecture=llama-tiny", "optimizer.kind=muon"};
  const Trained one = train_five(small_recipe(changes), nullptr);
  changes.emplace_back("layout.tp=2");
  const train::Recipe recipe = small_recipe(changes);
  EXPECT_LE(error_without("", recipe, one), 1e-4);  // nothing is left out: the same within rounding
  EXPECT_GT(error_without("matrices", recipe, one), 1e-3) << "matrices is left out";
}

TEST(Mutation, SumsInsideAStateSpaceLayerAreNeeded) {
  // Norms of Δ, B and C: all ranks hold their weights.
  std::vector<std::string> changes{"architecture=mamba-tiny", "architecture.layers[0].pattern[0].mixer.norm=rms",
                                   "optimizer.kind=sgd", "optimizer.lr=0.5"};
  const Trained one = train_five(small_recipe(changes), nullptr);
  changes.emplace_back("layout.tp=2");
  const train::Recipe recipe = small_recipe(changes);
  EXPECT_LE(error_without("", recipe, one), 2e-5);  // nothing is left out: the same within rounding
  for (const char* label : {"shared sum", "shared gradients", "sublayer input", "sublayer output"}) {
    EXPECT_GT(error_without(label, recipe, one), 1e-4) << label << " is left out";
  }
}

TEST(Mutation, EveryMessageOfContextParallelIsNeeded) {
  for (const bool ring : {true, false}) {  // ALiBi depends on the distance, so ranks gather keys and values
    std::vector<std::string> changes{ring ? "architecture=llama-tiny" : "architecture=bloom-tiny", "optimizer.kind=sgd",
                                     "optimizer.lr=0.5"};
    const Trained one = train_five(small_recipe(changes), nullptr);
    changes.insert(changes.end(), {"layout.cp=3", "layout.zero=2"});
    const train::Recipe recipe = small_recipe(changes);
    EXPECT_LE(error_without("", recipe, one), 2e-5);  // nothing is left out: the same within rounding
    std::vector<std::string> labels{"gradients", "weights", "losses", "norm"};
    if (ring) {
      for (const char* label : {"key and value blocks", "key and value gradients"}) {
        for (const char* side : {"from lower", "from higher"}) labels.push_back(str(label, "/", side));
      }
    } else {
      for (const char* call : {"all_gather", "reduce_scatter"}) {
        labels.push_back(str("gathered keys and values/", call));
      }
    }
    for (const std::string& label : labels) {
      EXPECT_GT(error_without(label, recipe, one), 1e-4) << label << " is left out";
    }
  }
}

TEST(Mutation, EveryMessageOfAPipelineIsNeeded) {
  // Tied embeddings: the first and the last stage sum their gradients.
  std::vector<std::string> changes{"architecture=gpt2-tiny", "architecture.layers[0].repeat=3", "optimizer.kind=sgd",
                                   "optimizer.lr=0.1"};
  const Trained one = train_five(small_recipe(changes), nullptr);
  changes.insert(changes.end(), {"layout.dp=2", "layout.pp=3", "layout.zero=2", "layout.micro_batch=2"});
  const train::Recipe recipe = small_recipe(changes);
  EXPECT_LE(error_without("", recipe, one), 2e-5);  // nothing is left out: the same within rounding
  for (const char* label : {"pipeline/from lower", "pipeline/from higher", "shared gradients", "losses of stages",
                            "gradients", "weights", "losses", "norm of shards", "checkpoint"}) {
    EXPECT_GT(error_without(label, recipe, one), 1e-4) << label << " is left out";
  }
}

}  // namespace
}  // namespace lamina::testing
