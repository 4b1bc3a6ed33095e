#pragma once

#include <gtest/gtest.h>

#include <string>

#include "lamina/base/files.h"
#include "support/temporary_folder.h"

namespace lamina::train {

/// Tests in a temporary folder that has a short text that models can learn: text.txt.
class TextFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 400; ++i)
      text += i % 3 == 0 ? "one two three. " : i % 3 == 1 ? "red green blue! " : "up and down?\n";
    write_text(path("text.txt"), text);
  }
  std::string path(const std::string& name) const { return folder_ / name; }

  testing::TemporaryFolder folder_;
};

}  // namespace lamina::train
