// Every objective trains a decoder from a text: the loss falls, and a resumed run equals an uninterrupted one.
#include <gtest/gtest.h>

#include "lamina/base/files.h"
#include "lamina/text/load.h"
#include "lamina/training.h"
#include "support/error_of.h"
#include "train/text_folder.h"

namespace lamina::train {
namespace {

using lamina::testing::error_of;

class ObjectiveTraining : public TextFolder {
 protected:
  Recipe recipe(const std::vector<std::string>& changes) const {
    std::vector<std::string> all = {"data.train=" + path("text.txt")};
    all.insert(all.end(), changes.begin(), changes.end());
    return read_recipe(R"({"architecture": {"base": "llama-tiny", "set": {"layers[0].repeat": 1, "vocab_size": 0}},
      "batch": 4, "length": 32, "steps": 24, "optimizer": {"kind": "adamw", "lr": 5e-3},
      "schedule": {"kind": "constant"}, "eval_every": 12, "save_every": 6, "log_every": 1})",
                       "test", all);
  }
  Progress run(const std::string& name, int64_t stop_after = 1000) const {
    Trainer trainer(path(name), Device::cpu(1));
    trainer.run({.on_update = {}, .on_evaluation = {}, .on_save = {}, .stop = [&] {
                   return trainer.progress().step >= stop_after;
                 }});
    return trainer.progress();
  }
};

TEST_F(ObjectiveTraining, LearnsAndResumesToTheBit) {
  for (const char* kind : {"prefix", "fim", "masked", "span", "denoise"}) {
    const std::vector<std::string> changes = {std::string("objective.kind=") + kind};
    start_run(path("whole"), recipe(changes), {.force = true});
    const Progress first = run("whole", 13);  // a stop would interrupt the evaluation at 12
    const Progress last = run("whole");
    ASSERT_TRUE(first.validation_loss && last.validation_loss) << kind;
    EXPECT_LT(*last.validation_loss, *first.validation_loss) << kind;
    start_run(path("parts"), recipe(changes), {.force = true});
    run("parts", 5);
    run("parts", 17);
    run("parts");
    for (const char* file : {"last/model.safetensors", "last/training.safetensors"}) {
      EXPECT_TRUE(read_text(path(std::string("whole/") + file)) == read_text(path(std::string("parts/") + file)))
          << kind << ": " << file;
    }
  }
}

TEST_F(ObjectiveTraining, AnEncoderLearnsMaskedTokensOnly) {
  start_run(path("encoder"), recipe({"architecture.causal=false", "objective.kind=masked"}), {.force = true});
  const Progress first = run("encoder", 13);
  const Progress last = run("encoder");
  ASSERT_TRUE(first.validation_loss && last.validation_loss);
  EXPECT_LT(*last.validation_loss, *first.validation_loss);
  // With any other objective it would see the answer.
  for (const char* kind : {"causal", "prefix", "fim", "span", "denoise"}) {
    const std::string message = error_of([&] {
      start_run(path("leak"), recipe({"architecture.causal=false", std::string("objective.kind=") + kind}),
                {.force = true});
    });
    EXPECT_NE(message.find("not causal"), std::string::npos) << kind << ": " << message;
  }
}

TEST_F(ObjectiveTraining, TheRunsTokenizerHasTheSpecialTokens) {
  start_run(path("run"), recipe({"objective.kind=fim"}), {.force = true});
  const auto tokenizer = text::load_tokenizer(path("run"));
  EXPECT_TRUE(tokenizer->id_of("<|fim_middle|>"));
  EXPECT_EQ(read_run_recipe(read_text(path("run/recipe.json")), "run").architecture.vocab_size,
            tokenizer->vocab_size());
}

TEST_F(ObjectiveTraining, RefusesWhatCannotWork) {
  const auto message = [&](const std::vector<std::string>& changes) {
    return error_of([&] { start_run(path("none"), recipe(changes), {.force = true}); });
  };
  EXPECT_NE(message({"objective.kind=fim", "data.order=packed"}).find("packed"), std::string::npos);
  EXPECT_NE(message({"objective.kind=span", "objective.sentinels=1"}).find("sentinels"), std::string::npos);
  text::save_tokenizer(*text::byte_tokenizer(), folder_.path());
  EXPECT_NE(message({"objective.kind=fim", "data.tokenizer=" + path("tokenizer.json")}).find("<|fim_prefix|>"),
            std::string::npos);
  EXPECT_NE(message({"objective.kind=fin"}).find("fim"), std::string::npos);
}

}  // namespace
}  // namespace lamina::train
