// The names that messages suggest.
#include "lamina/base/suggest.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

TEST(Suggest, NearestNameOrThoseThatBeginAlike) {
  const std::vector<std::string> names{"generate", "llama-7b", "llama-tiny", "train"};
  EXPECT_EQ(did_you_mean("generat", names), "did you mean generate?");
  EXPECT_EQ(did_you_mean("trian", names), "did you mean train?");
  EXPECT_EQ(did_you_mean("gen", names), "did you mean generate?");
  EXPECT_EQ(did_you_mean("llama", names), "did you mean one of llama-7b, llama-tiny?");
  EXPECT_EQ(did_you_mean("", names), "");
  EXPECT_EQ(did_you_mean("frobnicate", names), "");
  EXPECT_EQ(did_you_mean(std::string(100000, 'x'), names), "");
}

}  // namespace
}  // namespace lamina
