// The layout of a recipe: rules, rows of every rank, buckets and pieces, leaf hooks.
#include "lamina/autograd/leaf_hook.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/train/shard_plan.h"
#include "parallel/parallel_support.h"

namespace lamina::testing {
namespace {

std::string problems_of(const std::vector<std::string>& changes) {
  try {
    small_recipe(changes);
  } catch (const arch::SpecError& error) {
    return error.what();
  }
  return "";
}

TEST(Layout, RanksAndMicroBatchesMustFitTheBatch) {
  EXPECT_EQ(problems_of({"layout.dp=12"}), "");
  EXPECT_NE(problems_of({"layout.dp=13"}).find("13 ranks share a batch of 12"), std::string::npos);
  EXPECT_NE(problems_of({"layout.dp=0"}), "");
  EXPECT_NE(problems_of({"layout.dp=3", "layout.order=ordered"}).find("power of two"), std::string::npos);
  EXPECT_EQ(problems_of({"layout.dp=8", "layout.order=ordered"}), "");
  EXPECT_NE(problems_of({"layout.dp=16", "batch=16", "layout.order=ordered"}), "");
  EXPECT_EQ(problems_of({"layout.dp=16", "batch=16", "layout.order=ordered", "layout.micro_batch=1"}), "");
  EXPECT_NE(problems_of({"layout.dp=2", "data.order=packed"}).find("packed"), std::string::npos);
  EXPECT_NE(problems_of({"layout.dpp=2"}).find("dp"), std::string::npos);
  EXPECT_EQ(problems_of({"layout.dp=5", "layout.micro_batch=2"}), "");
  EXPECT_NE(problems_of({"layout.dp=5", "layout.micro_batch=1", "layout.zero=3"}).find("micro-batches"),
            std::string::npos);
  EXPECT_TRUE(small_recipe({"layout.recompute=full"}).checkpointing);
  EXPECT_FALSE(small_recipe({}).layout.is_parallel());
}

TEST(Layout, EveryRowBelongsToOneMicroBatch) {
  for (const int64_t batch : {1, 2, 5, 8, 12, 33}) {
    for (const bool ordered : {false, true}) {
      for (int64_t dp = 1; dp <= 8 && dp <= batch; dp *= 2) {
        std::vector<std::string> changes{str("batch=", batch), str("layout.dp=", dp)};
        if (ordered) changes.emplace_back("layout.order=ordered");
        if (!problems_of(changes).empty()) continue;
        const train::Recipe recipe = small_recipe(changes);
        int64_t next = 0;
        for (int64_t rank = 0; rank < dp; ++rank) {
          for (const train::RowRange& rows : micro_batches(recipe.layout, batch, static_cast<int>(rank))) {
            EXPECT_EQ(rows.begin, next);
            EXPECT_GT(rows.end, rows.begin) << batch << " rows, " << dp << " ranks";
            next = rows.end;
          }
        }
        EXPECT_EQ(next, batch);
      }
    }
  }
}

TEST(ShardPlan, PiecesCoverEveryParameterOnce) {
  const Device meta = Device::meta();
  const NamedTensors parameters{{"a", Tensor::empty({3, 5000}, DType::f32, meta)},
                                {"b", Tensor::empty({7}, DType::f32, meta)},
                                {"c", Tensor::empty({100, 300}, DType::f32, meta)},
                                {"d", Tensor::empty({100, 300}, DType::f32, meta)},
                                {"e", Tensor::empty({20000}, DType::bf16, meta)}};
  const std::vector<bool> whole{false, false, true, true, false};
  for (const int ranks : {1, 2, 3, 8}) {
    const train::ShardPlan plan(parameters, whole, ranks);
    for (size_t i = 0; i < parameters.size(); ++i) {
      int64_t next = 0;
      for (const train::Piece& piece : plan.pieces_of(i)) {
        EXPECT_EQ(piece.begin, next);
        EXPECT_EQ(piece.begin % train::ShardPlan::kAlignment, 0);
        next += piece.count;
      }
      EXPECT_EQ(next, parameters[i].tensor.numel());
      EXPECT_TRUE(!whole[i] || plan.pieces_of(i).size() == 1);
    }
    int64_t elements = 0;
    for (const train::Bucket& bucket : plan.buckets()) {
      for (const int64_t count : bucket.counts) elements += count;
    }
    EXPECT_EQ(elements, 15000 + 7 + 30000 + 30000 + 20000);
    EXPECT_TRUE(ranks == 1 || plan.pieces_of(2)[0].rank != plan.pieces_of(3)[0].rank);  // matrices are dealt out
  }
}

TEST(LeafHook, FiresOnceWhenTheGradientIsComplete) {
  const Device device = Device::cpu(1);
  Tape tape;
  Tensor a = Tensor::full({3}, 2.0, DType::f64, device);
  Tensor b = Tensor::full({3}, 5.0, DType::f64, device);
  tape.watch(a);
  tape.watch(b);
  std::vector<std::string> order;
  std::vector<double> seen;
  set_leaf_hook(a, [&] {
    order.emplace_back("a");
    seen = tape.grad(a).to_vector<double>();
  });
  set_leaf_hook(b, [&] { order.emplace_back("b"); });
  const Tensor y = ops::mul(ops::mul(a, a), b);  // a is used twice, before b
  tape.backward({y}, {Tensor::full({3}, 1.0, DType::f64, device)});
  EXPECT_EQ(order, (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(seen, (std::vector<double>{20, 20, 20}));
  set_leaf_hook(a, {});
  const Tensor z = ops::mul(a, b);
  tape.backward({z}, {Tensor::full({3}, 1.0, DType::f64, device)});
  EXPECT_EQ(order.size(), 3U);
  EXPECT_THROW(set_leaf_hook(Tensor::zeros({1}, DType::f32, device), [] {}), Error);
}

}  // namespace
}  // namespace lamina::testing
