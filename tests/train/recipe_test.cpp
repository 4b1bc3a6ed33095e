#include "lamina/train/recipe.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lamina/arch/layers.h"
#include "lamina/arch/presets.h"
#include "lamina/base/files.h"
#include "lamina/train/learner.h"
#include "lamina/train/memory.h"
#include "support/error_of.h"

namespace lamina::train {
namespace {

using lamina::testing::error_of;

constexpr const char* kSmall = R"({"architecture": "llama-tiny", "data": {"train": "a.txt"}, "steps": 10,
  "schedule": {"kind": "cosine", "warmup": 2}})";

Recipe small(const std::vector<std::string>& changes = {}) { return read_recipe(kSmall, "small", changes); }

TEST(Recipe, EveryOneInTheLibraryResolvesAndIsWrittenAndReadBack) {
  ASSERT_GE(recipe_files().size(), 3U);
  for (const RecipeFile& file : recipe_files()) {
    // The recipe for fine-tuning has neither a model nor data: the command names both.
    const bool finetune = file.name == "finetune";
    const std::vector<std::string> given =
        finetune ? std::vector<std::string>{"architecture=llama-tiny", "data.train=a.txt"} : std::vector<std::string>{};
    const Recipe recipe = resolve_recipe(load_recipe(std::string(file.name), given), 71, std::string(file.name));
    EXPECT_FALSE(recipe.about.empty()) << file.name;
    EXPECT_EQ(recipe.architecture.vocab_size, 71);
    EXPECT_EQ(read_run_recipe(write_recipe(recipe), "again"), recipe) << file.name;
  }
}

TEST(Recipe, AllProblemsAreNamedAtOnceWithTheNearestKey) {
  const std::string message = error_of([] {
    read_recipe(R"({"architecture": "lama-tiny", "bach": 3, "steps": "many", "optimizer": {"kind": "adamv"},
                    "schedule": {"kind": "wsd", "warm_up": 3}})",
                "mine");
  });
  EXPECT_NE(message.find("mine: 5 problems"), std::string::npos) << message;
  for (const char* part : {"did you mean batch?", "given \"many\", expected a whole number", "did you mean adamw?",
                           "did you mean warmup?", "did you mean llama-tiny?"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
  }
}

TEST(Recipe, ValuesThatCannotBeAreNamedAtOnce) {
  const Recipe recipe = small({"steps=1", "batch=0", "length=65", "data.train=", "data.tokenizer=bpe:12",
                               "dropout.residual=1", "architecture.layers[0].pattern[0].mixer.n_kv_heads=3"});
  const std::string message = error_of([&] { resolve_recipe(recipe, 0, "mine"); });
  for (const char* part : {"batch: 0", "length: 65 tokens in a sequence, the architecture's context is 64",
                           "data.train: missing", "data.tokenizer: \"bpe:12\"", "dropout.residual: 1",
                           "schedule.warmup: 2 updates of warm-up", "architecture.layers[0].pattern[0].mixer"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
  }
}

TEST(Recipe, ChangesReachEveryPart) {
  const Recipe recipe = small({"optimizer.kind=muon", "optimizer.others.lr=0.5", "architecture=gpt2-tiny",
                               "architecture.layers[0].repeat=1", "schedule.kind=constant", "data.order=packed"});
  EXPECT_EQ(std::get<MuonChoice>(recipe.optimizer).others.lr, 0.5);
  EXPECT_EQ(recipe.architecture.layers[0].repeat, 1);
  EXPECT_TRUE(std::holds_alternative<arch::LearnedPosition>(recipe.architecture.position));
  EXPECT_EQ(std::get<ConstantSchedule>(recipe.schedule).warmup, 2);
  EXPECT_EQ(recipe.data.order, data::Order::packed);
  EXPECT_NE(error_of([] { small({"optimizer.lrr=1"}); }).find("did you mean lr?"), std::string::npos);
}

TEST(Recipe, ATokenizerLargerThanAGivenVocabularyIsRefused) {
  const Recipe kept = small({"data.fit_vocab=false"});
  EXPECT_EQ(resolve_recipe(kept, 90, "mine").architecture.vocab_size, 96);
  EXPECT_NE(error_of([&] { resolve_recipe(kept, 97, "mine"); }).find("the data has tokens below 97"),
            std::string::npos);
}

TEST(Schedule, RisesAndFalls) {
  const Schedule cosine = CosineSchedule{.warmup = 4, .min_lr_ratio = 0.1};
  EXPECT_DOUBLE_EQ(lr_factor(cosine, 0, 12), 0.25);
  EXPECT_DOUBLE_EQ(lr_factor(cosine, 3, 12), 1.0);
  EXPECT_DOUBLE_EQ(lr_factor(cosine, 4, 12), 1.0);
  EXPECT_NEAR(lr_factor(cosine, 8, 12), 0.55, 1e-12);
  EXPECT_NEAR(lr_factor(cosine, 12, 12), 0.1, 1e-12);
  const Schedule linear = LinearSchedule{.warmup = 0, .min_lr_ratio = 0.5};
  EXPECT_DOUBLE_EQ(lr_factor(linear, 5, 10), 0.75);
  const Schedule wsd = WsdSchedule{.warmup = 2, .decay = 0.2, .min_lr_ratio = 0.0};
  EXPECT_DOUBLE_EQ(lr_factor(wsd, 7, 10), 1.0);
  EXPECT_DOUBLE_EQ(lr_factor(wsd, 8, 10), 1.0);
  EXPECT_DOUBLE_EQ(lr_factor(wsd, 9, 10), 0.5);
  const Schedule constant = ConstantSchedule{};
  EXPECT_DOUBLE_EQ(lr_factor(constant, 0, 10), 1.0);
  EXPECT_DOUBLE_EQ(lr_factor(constant, 9, 10), 1.0);
}

TEST(Memory, ARunThatWillNotFitIsRefusedWithAdvice) {
  const Recipe recipe = resolve_recipe(small(), 0, "small");
  const double needed = memory_estimate(recipe);
  EXPECT_NO_THROW(check_memory(recipe, needed));
  EXPECT_NO_THROW(check_memory(recipe, std::nullopt));
  const std::string message = error_of([&] { check_memory(recipe, needed - 1); });
  for (const char* part : {"batch=6 --set accumulation=2", "checkpointing=true", "dtype=bf16", "--ignore-memory"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
  }
  Recipe less = recipe;
  less.checkpointing = true;
  EXPECT_LT(memory_estimate(less), needed);
  less.dtype = Precision::bf16;
  EXPECT_EQ(error_of([&] { check_memory(less, 1.0); }).find("dtype=bf16"), std::string::npos);
}

TEST(Recipe, TheInitialDeviationIsThatOfTheWeights) {
  const auto deviation = [](const Recipe& recipe, const char* name) {
    Learner learner(recipe, Device::cpu(1));
    for (const auto& [found, tensor] : learner.model().named_parameters()) {
      if (found != name) continue;
      double square = 0;
      const auto values = tensor.to_vector<double>();
      for (const double value : values) square += value * value;
      return std::sqrt(square / static_cast<double>(values.size()));
    }
    return 0.0;
  };
  const char* qkv = "layers.0.mixer.qkv.weight";
  const double usual = deviation(resolve_recipe(small(), 0, "small"), qkv);
  EXPECT_NEAR(usual, 0.02, 0.002);
  EXPECT_NEAR(deviation(resolve_recipe(small({"initial_deviation=0.06"}), 0, "small"), qkv), 3 * usual, 1e-6);
  const std::string message = error_of([] { resolve_recipe(small({"initial_deviation=0"}), 0, "small"); });
  EXPECT_NE(message.find("initial_deviation: 0"), std::string::npos) << message;
}

/// Peak memory of two updates and an evaluation on the CPU.
double measured_memory(const Recipe& recipe) {
  const Device device = Device::cpu(2);
  Learner learner(recipe, device);
  const auto batch_at = [&](int64_t /*pass*/) {
    data::Batch batch{.rows = recipe.batch, .length = recipe.length};
    batch.ids.assign(static_cast<size_t>(recipe.batch * recipe.length), 1);
    batch.targets = batch.ids;
    return batch;
  };
  for (int64_t step = 0; step < 2; ++step) learner.step(step, batch_at);
  learner.evaluate({.batches = 1, .at = batch_at});
  return static_cast<double>(device.allocator().counters().reserved);
}

class MemoryEstimate : public ::testing::TestWithParam<const char*> {};

TEST_P(MemoryEstimate, IsWhatARunTakes) {
  const std::vector<std::vector<std::string>> variants = {{},
                                                          {"checkpointing=true"},
                                                          {"dtype=bf16"},
                                                          {"dropout.residual=0.1", "dropout.attention=0.1"},
                                                          {"accumulation=3", "ema=0.9", "dtype=bf16"},
                                                          {"optimizer.kind=muon"},
                                                          {"optimizer.kind=sgd"}};
  for (const std::vector<std::string>& changes : variants) {
    std::vector<std::string> all = {str("architecture=", GetParam()), "length=64", "steps=2", "batch=32"};
    all.insert(all.end(), changes.begin(), changes.end());
    const Recipe recipe = resolve_recipe(small(all), 0, "estimate");
    const double taken = measured_memory(recipe);
    // Kernels of narrow types hold rows in f32 for themselves, of tiny models no small share.
    const double unseen = recipe.dtype == Precision::bf16 ? 0.13 : 0.05;
    const arch::TrainingMemory estimate = training_memory(recipe);
    EXPECT_NEAR(estimate.total() - estimate.saving, taken, unseen * taken) << ::testing::PrintToString(changes);
  }
}
INSTANTIATE_TEST_SUITE_P(Presets, MemoryEstimate,
                         ::testing::Values("llama-tiny", "gpt2-tiny", "qwen3-tiny", "gemma-2-tiny", "mixtral-tiny",
                                           "deepseek-tiny", "mamba-tiny", "mamba2-tiny", "t5-tiny"));

TEST(Memory, AGpuHoldsWhatItsKernelsKeep) {
  Recipe recipe = small();
  recipe.architecture = arch::load_preset("mamba2-130m");
  recipe.length = 512;
  recipe.dtype = Precision::bf16;
  recipe = resolve_recipe(recipe, 0, "scans");
  double state = 0;  // bytes of one chunk's states, over all layers
  for (const arch::Block* block : arch::layer_blocks(recipe.architecture)) {
    const auto& mixer = std::get<arch::Mamba2>(block->mixer);
    ASSERT_EQ(mixer.chunk, 256);
    state += 4.0 * static_cast<double>(recipe.batch * *mixer.d_inner * mixer.state);
  }
  const arch::TrainingMemory on_cpu = training_memory(recipe);
  const arch::TrainingMemory on_gpu = training_memory(recipe, DeviceKind::cuda);
  EXPECT_EQ(on_gpu.weights, on_cpu.weights);
  EXPECT_NEAR(on_gpu.gradients, 2 * on_cpu.gradients, 0.01 * on_gpu.gradients) << "in f32 beside weights of bf16";
  EXPECT_GT(on_gpu.total() - (on_cpu.total() - on_cpu.saving), (8 - 2) * state) << "states of eight chunks, not of two";
}

TEST(Memory, TheTighterOfSystemAndControlGroupCounts) {
  const std::string folder = ::testing::TempDir() + "lamina_memory";
  std::filesystem::create_directories(folder);
  write_text(folder + "/meminfo", "MemTotal: 100 kB\nMemAvailable:   50 kB\n");
  EXPECT_EQ(available_memory(folder, folder), 50 * 1024.0);
  write_text(folder + "/memory.max", "max\n");
  write_text(folder + "/memory.current", "1000\n");
  EXPECT_EQ(available_memory(folder, folder), 50 * 1024.0);
  write_text(folder + "/memory.max", "21000\n");
  EXPECT_EQ(available_memory(folder, folder), 20000.0);
  EXPECT_EQ(available_memory(folder + "/none", folder + "/none"), std::nullopt);
  std::filesystem::remove_all(folder);
}

TEST(Recipe, TheDocumentationListsEveryKey) {
  const std::string docs = read_text(std::string(LAMINA_SOURCE_DIR) + "/docs/reference/recipe-file.md");
  EXPECT_NE(docs.find(recipe_markdown()), std::string::npos)
      << "docs/reference/recipe-file.md is out of date; run `make docs`";
}

}  // namespace
}  // namespace lamina::train
