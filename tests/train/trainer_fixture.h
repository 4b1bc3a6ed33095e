#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <span>

#include "lamina/base/files.h"
#include "lamina/data/token_writer.h"
#include "lamina/training.h"

namespace lamina::train {

namespace fs = std::filesystem;

/// A folder with token files, and runs of a small recipe in it.
class TrainerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("lamina_trainer_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    for (const char* name : {"train", "validation"}) {
      data::TokenWriter writer(path(std::string(name) + ".bin"), 24, 0);
      std::vector<int32_t> ids;
      for (int i = 0; i < 400; ++i) ids.push_back((i * i + i / 7) % 23);
      for (size_t i = 0; i < 8; ++i) {
        writer.write(std::span(ids).subspan(50 * i, 50));
        writer.end_document();
      }
      writer.publish();
    }
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// Dropout, accumulation and an average are on.
  Recipe recipe(const std::vector<std::string>& changes = {}) const {
    std::vector<std::string> all = {"data.train=" + path("train.bin"), "data.validation=" + path("validation.bin")};
    all.insert(all.end(), changes.begin(), changes.end());
    return read_recipe(R"({"architecture": {"base": "llama-tiny", "set": {"layers[0].repeat": 1, "vocab_size": 24}},
      "batch": 2, "length": 12, "steps": 9, "accumulation": 2, "dropout": {"embedding": 0.1, "attention": 0.1, "residual": 0.1},
      "ema": 0.9, "schedule": {"kind": "cosine", "warmup": 2}, "eval_every": 4, "save_every": 3, "log_every": 1})",
                       "test", all);
  }

  /// Runs to the end, or until `stop_after` updates were made.
  Outcome run(const std::string& name, int64_t stop_after = 1000) const {
    Trainer trainer(path(name), Device::cpu(1));
    return trainer.run({.on_update = {}, .on_evaluation = {}, .on_save = {}, .stop = [&] {
                          return trainer.progress().step >= stop_after;
                        }});
  }

  std::string bytes(const std::string& file) const { return read_text(path(file)); }

  fs::path folder_;
};

}  // namespace lamina::train
