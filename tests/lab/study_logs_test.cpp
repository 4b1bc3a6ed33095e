#include "lamina/lab/report/study_logs.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "lamina/base/files.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace lamina::lab {
namespace {

using testing::error_of;

// Two variants: one whose run's folder is there, one whose is not.
constexpr const char* kLogResults = R"({"schema":1,"name":"n","metric":"loss","variants":[
  {"name":"rope","label":"RoPE","runs":[{"seed":1,"run":"0a1b","curve":{"step":[1],"loss":[9.0]}}]},
  {"name":"gelu","label":"GELU","runs":[{"seed":2,"run":"2c3d","curve":{"step":[1,2],"loss":[5.0,4.0]},
    "evaluations":{"step":[2],"loss":[4.5]}},
    {"seed":3,"run":"../x","curve":{"step":[1],"loss":[null]}}]}]})";

TEST(StudyLogs, AStudysFolderStandsForItsRunsUnderTheNamesOfTheirVariants) {
  const testing::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "study/runs/0a1b");
  write_text(folder / "study/results.json", kLogResults);
  write_text(folder / "study/runs/0a1b/log.jsonl", "{\"step\":1,\"loss\":3,\"tokens\":100,\"seconds\":2}\n");
  for (const char* path : {"study", "study/", "study/results.json"}) {
    const std::vector<train::RunLog> logs = read_logs(folder / path);
    ASSERT_EQ(logs.size(), 2U) << path;  // a run without a finite loss has no curve
    EXPECT_EQ(logs[0].name, "RoPE, seed 1");
    EXPECT_EQ(logs[0].variant, "RoPE");
    EXPECT_EQ(logs[0].train[0].loss, 3);  // the log's value; results.json says 9
    EXPECT_EQ(logs[0].train[0].tokens, 100);
    EXPECT_EQ(logs[1].name, "GELU, seed 2");
    EXPECT_EQ(logs[1].train.size(), 2U);
    EXPECT_EQ(logs[1].validation[0].loss, 4.5);
  }
  const std::vector<train::RunLog> one = read_logs(folder / "study/runs/0a1b");
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].name, "RoPE, seed 1");
  EXPECT_EQ(one[0].variant, "");
}

TEST(StudyLogs, ARunAloneKeepsItsFoldersName) {
  const testing::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "run");
  write_text(folder / "run/log.jsonl", "{\"step\":1,\"loss\":3}\n");
  EXPECT_EQ(read_logs(folder / "run")[0].name, "run");
}

TEST(StudyLogs, AStudyWithoutARunSaysSo) {
  const testing::TemporaryFolder folder;
  write_text(folder / "study.json", "{}");
  EXPECT_NE(error_of([&] { read_logs(folder.path()); }).find("no results.json yet"), std::string::npos);
  write_text(folder / "results.json", R"({"schema":1,"name":"n","metric":"loss","variants":[]})");
  EXPECT_NE(error_of([&] { read_logs(folder.path()); }).find("has a loss yet"), std::string::npos);
}

}  // namespace
}  // namespace lamina::lab
