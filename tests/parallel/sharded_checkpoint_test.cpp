// Checkpoints of several ranks: any layout loads any other's, to the byte and without a second copy in memory; a failed
// save keeps the old checkpoint.
#include <filesystem>
#include <numeric>
#include <utility>

#include "lamina/base/files.h"
#include "lamina/io/checkpoint.h"
#include "lamina/train/checkpoint_saver.h"
#include "parallel/parallel_support.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace lamina::testing {
namespace {

namespace fs = std::filesystem;
using Layout = std::vector<std::string>;

std::shared_ptr<comm::Communicator> borrowed(comm::Communicator& c) {
  return {&c, [](comm::Communicator*) {}};
}

/// The folder of a run that a rank writes to.
train::RunFolder open_folder(const std::string& path, comm::Communicator& c) {
  if (c.rank() == 0) {
    fs::create_directories(path);
    write_text(path + "/recipe.json", "{}");
  }
  c.barrier({.label = "folder"});
  return c.rank() == 0 ? train::RunFolder(path) : train::RunFolder::reader(path);
}

/// Loads the last checkpoint of `from`, if given, runs `updates` and saves to `path`/last, with the ranks of `changes`.
void pass_on(const Layout& changes, const std::string& from, const std::string& path, int64_t updates = 0) {
  const train::Recipe recipe = small_recipe(changes);
  comm::run_local_ranks(static_cast<int>(recipe.layout.ranks()), [&](comm::Communicator& c) {
    const Device device = Device::cpu(1);
    train::Learner learner(recipe, device, borrowed(c));
    if (!from.empty()) {
      const int64_t held = device.allocator().counters().live;
      device.allocator().reset_peak();
      EXPECT_TRUE(train::RunFolder::reader(from).load_last(learner, {c.rank(), c.size()}));
      const int64_t counts = 2 * 64 * static_cast<int64_t>(learner.training_pieces().size());
      EXPECT_LE(device.allocator().counters().peak, held + counts) << "a second copy while loading";
    }
    for (int64_t step = 0; step < updates; ++step) {
      learner.step(step, [&](int64_t pass) { return batch_of(recipe, pass); });
    }
    const train::RunFolder folder = open_folder(path, c);
    train::CheckpointSaver saver(folder, learner, &c, recipe.save_in_background);
    saver.start("last", {.step = 2}, /*with_state=*/true);
    const std::optional<train::FinishedSave> saved = saver.finish();
    ASSERT_TRUE(saved);
    EXPECT_EQ(saved->error, "");
  });
}

/// All tensors of the checkpoint in `folder`, as one device would hold them.
std::string whole_bytes(const std::string& folder) {
  const Device host = Device::cpu(1);
  std::string bytes;
  for (const char* group : {io::kModelGroup, io::kTrainingGroup}) {
    const io::PieceSet set = io::is_sharded(folder)
                                 ? io::PieceSet::open(folder, io::read_manifest(folder), group, host)
                                 : io::PieceSet::open_file(folder + "/" + group + ".safetensors", host);
    for (const std::string& name : set.names()) {
      const Tensor tensor = set.tensor(name).contiguous();
      bytes += str(name, " ", tensor.shape(), " ", tensor.dtype(), ":");
      bytes.append(static_cast<const char*>(tensor.raw()), static_cast<size_t>(tensor.nbytes()));
    }
  }
  return bytes;
}

std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename().string()] = read_text(entry.path().string());
  }
  return files;
}

TEST(ShardedCheckpoint, LayoutAToBToAReturnsTheSameBytes) {
  const std::vector<Layout> layouts = {{},
                                       {"layout.dp=2"},
                                       {"layout.dp=3", "layout.zero=2"},
                                       {"layout.dp=3", "layout.zero=3"},
                                       {"layout.tp=2", "layout.dp=2", "layout.zero=1"},
                                       {"layout.tp=4", "layout.sequence=true"}};
  const std::vector<Layout> models = {{"architecture=gpt2-tiny", "ema=0.9", "dtype=bf16"},
                                      {"architecture=mixtral-tiny", "save_in_background=false", "ema=0.9"},
                                      {"architecture=qwen3-tiny", "optimizer.kind=sgd"}};
  for (const Layout& model : models) {
    const auto recipe = [&](Layout layout) {
      layout.insert(layout.end(), model.begin(), model.end());
      return layout;
    };
    for (const Layout& a : layouts) {
      if (model != models[0] && a != layouts[3] && a != layouts[4]) continue;
      const TemporaryFolder folder;
      pass_on(recipe(a), "", folder / "a", 2);
      const std::string expected = whole_bytes(folder / "a/last");
      bool was_back = false;
      for (const Layout& b : layouts) {
        if (a == b) continue;
        const std::string what = str(model[0], ": ", ::testing::PrintToString(a), " to ", ::testing::PrintToString(b));
        pass_on(recipe(b), folder / "a", folder / "b");
        EXPECT_TRUE(whole_bytes(folder / "b/last") == expected) << what;
        // From b to a is a case of its own: the way back is needed once for each layout.
        if (std::exchange(was_back, true)) continue;
        pass_on(recipe(a), folder / "b", folder / "again");
        EXPECT_TRUE(files_of(folder / "again/last") == files_of(folder / "a/last")) << what << " and back";
      }
    }
  }
}

TEST(ShardedCheckpoint, ExpertsAndStagesPassThroughOtherLayouts) {
  const std::vector<Layout> layouts = {
      {"layout.dp=4", "layout.ep=2"},
      {"layout.dp=4", "layout.ep=2", "layout.zero=1"},
      {"layout.dp=2", "layout.ep=2", "layout.zero=2", "layout.tp=2"},
      {"layout.dp=4", "layout.ep=2", "layout.zero=3"},
      {"layout.pp=2", "layout.dp=2", "layout.zero=1"},
      {"layout.pp=2", "layout.dp=2", "layout.tp=2", "layout.zero=3"},
      {"layout.pp=2", "layout.dp=2", "layout.ep=2", "layout.tp=2"},
  };
  // gpt2-tiny has tied embeddings, which two stages hold.
  const std::vector<Layout> models = {{"architecture=mixtral-tiny", "ema=0.9", "batch=8"},
                                      {"architecture=gpt2-tiny", "ema=0.9", "batch=8"}};
  for (const Layout& model : models) {
    for (Layout layout : layouts) {
      if (model != models[0] && layout[0] != "layout.pp=2") continue;
      if (model != models[0]) std::erase(layout, "layout.ep=2");
      const std::string what = str(model[0], ": ", ::testing::PrintToString(layout));
      layout.insert(layout.end(), model.begin(), model.end());
      const TemporaryFolder folder;
      pass_on(layout, "", folder / "a", 2);
      pass_on(model, folder / "a", folder / "b");
      EXPECT_TRUE(whole_bytes(folder / "b/last") == whole_bytes(folder / "a/last")) << what;
      pass_on(layout, folder / "b", folder / "again");
      EXPECT_TRUE(files_of(folder / "again/last") == files_of(folder / "a/last")) << what << " and back";
    }
  }
}

TEST(ShardedCheckpoint, MuonKeepsWholeMatricesPerRank) {
  const auto recipe = [](Layout layout) {
    layout.insert(layout.end(), {"optimizer.kind=muon", "ema=0.9"});
    return layout;
  };
  for (const char* zero : {"layout.zero=1", "layout.zero=3"}) {
    const TemporaryFolder folder;
    pass_on(recipe({"layout.dp=3", zero}), "", folder / "a", 2);
    pass_on(recipe({}), folder / "a", folder / "b");
    pass_on(recipe({"layout.dp=3", zero}), folder / "b", folder / "again");
    EXPECT_TRUE(files_of(folder / "again/last") == files_of(folder / "a/last")) << zero;
    EXPECT_TRUE(file_exists(folder / "b/last/model.safetensors"));
    EXPECT_FALSE(file_exists(folder / "b/last/manifest.json"));
  }
}

TEST(ShardedCheckpoint, EveryRankWritesItsShare) {
  const TemporaryFolder folder;
  const Layout changes{"architecture=gpt2-tiny", "layout.tp=2", "layout.dp=2", "layout.zero=1"};
  pass_on(changes, "", folder / "run", 1);
  const io::Manifest manifest = io::read_manifest(folder / "run/last");
  EXPECT_EQ(manifest.step, 2);
  EXPECT_EQ(manifest.layout.at("tp"), 2);
  double total = 0;
  double largest = 0;
  for (const auto& [name, group] : manifest.groups) {
    ASSERT_EQ(group.files.size(), 4);
    for (const io::ShardFile& file : group.files) {
      total += static_cast<double>(file.bytes);
      largest = std::max(largest, static_cast<double>(file.bytes));
    }
  }
  EXPECT_LT(largest, 0.4 * total);
  // The weights are those of the ranks, read by what reads models.
  const io::Checkpoint model = io::read_native(folder / "run/last", Device::cpu(1));
  EXPECT_EQ(model.tensors.size(), io::weight_slots(model.spec).size());
}

TEST(ShardedCheckpoint, AFailedRankKeepsTheOldCheckpointAndTheNextSaveSucceeds) {
  const TemporaryFolder temporary;
  const train::Recipe recipe = small_recipe({"layout.dp=2"});
  comm::run_local_ranks(2, [&](comm::Communicator& c) {
    train::Learner learner(recipe, Device::cpu(1), borrowed(c));
    const train::RunFolder folder = open_folder(temporary / "run", c);
    const auto save = [&](const train::RunFolder& to, int64_t step) {
      train::CheckpointSaver saver(to, learner, &c, /*background=*/true);
      saver.start("last", {.step = step}, /*with_state=*/true);
      EXPECT_EQ(saver.in_flight(), "last");
      return saver.finish()->error;
    };
    EXPECT_EQ(save(folder, 1), "");
    // Rank 1 looks for the temporary folder in the wrong place, as after losing a shared file system.
    if (c.rank() == 1) {
      fs::create_directories(temporary / "lost");
      write_text(temporary / "lost/recipe.json", "{}");
    }
    const train::RunFolder lost =
        c.rank() == 1 ? train::RunFolder::reader(temporary / "lost") : train::RunFolder::reader(temporary / "run");
    const std::string error = save(c.rank() == 0 ? folder : lost, 2);
    EXPECT_NE(error.find("rank 1: "), std::string::npos) << error;
    EXPECT_NE(error.find("cannot be created"), std::string::npos) << error;
    EXPECT_EQ(io::read_manifest(temporary / "run/last").step, 1);
    c.barrier({.label = "look"});
    EXPECT_EQ(save(folder, 3), "");
    EXPECT_EQ(io::read_manifest(temporary / "run/last").step, 3);
    c.barrier({.label = "look"});
    // Rank 0 cannot make the folder.
    if (c.rank() == 0) {
      fs::rename(temporary / "run/last", temporary / "run/kept");
      write_text(temporary / "run/last", "a file");
    }
    c.barrier({.label = "a file is in the way"});
    EXPECT_NE(save(folder, 4).find("is a file"), std::string::npos);
  });
  for (const auto& entry : fs::directory_iterator(temporary / "run")) {
    EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry.path();
  }
}

TEST(ShardedCheckpoint, AStateOfAnotherRecipeIsRefused) {
  const TemporaryFolder folder;
  pass_on({"layout.dp=2"}, "", folder / "run", 1);
  const auto load = [&](const Layout& changes) {
    train::Learner learner(small_recipe(changes), Device::cpu(1));
    return error_of([&] { train::RunFolder::reader(folder / "run").load_last(learner); });
  };
  EXPECT_EQ(load({}), "");
  EXPECT_NE(load({"ema=0.9"}).find("average.embedding.weight is missing"), std::string::npos) << load({"ema=0.9"});
  EXPECT_NE(load({"optimizer.kind=sgd"}).find("momentum is missing"), std::string::npos);
  EXPECT_NE(load({"architecture=gpt2-tiny"}).find("weights: "), std::string::npos) << load({"architecture=gpt2-tiny"});
}

/// Every flat range of small tensors: the boxes hold its elements in order, and few boxes are enough.
TEST(HeldPieces, BoxesOfAFlatRange) {
  for (const Shape& shape : {Shape{7}, Shape{3, 4}, Shape{2, 3, 4}, Shape{1, 5, 1}}) {
    const int64_t all = shape.numel();
    std::vector<int64_t> numbers(static_cast<size_t>(all));
    std::iota(numbers.begin(), numbers.end(), 0);
    const Tensor whole = Tensor::from(numbers, {all}, Device::cpu(1));
    for (int64_t begin = 0; begin < all; ++begin) {
      for (int64_t end = begin + 1; end <= all; ++end) {
        std::vector<int64_t> seen;
        const auto boxes = train::boxes_of_range(shape, begin, whole.slice(0, begin, end - begin));
        EXPECT_LE(boxes.size(), static_cast<size_t>(2 * shape.rank() - 1));
        for (const train::TensorBox& box : boxes) {
          Tensor expected = whole.reshape(shape);
          for (int axis = 0; axis < shape.rank(); ++axis) {
            expected = expected.slice(axis, box.offset[axis], box.part.dim(axis));
          }
          EXPECT_EQ(box.part.to_vector<int64_t>(), expected.to_vector<int64_t>());
          for (const int64_t number : box.part.to_vector<int64_t>()) seen.push_back(number);
        }
        EXPECT_EQ(seen, std::vector<int64_t>(numbers.begin() + begin, numbers.begin() + end));
      }
    }
  }
}

}  // namespace
}  // namespace lamina::testing
