#include "lamina/io/checkpoint_folder.h"

#include <sys/stat.h>

#include "lamina/io/model_file.h"
#include "support/hf_folder.h"

namespace lamina::testing {
namespace {

namespace fs = std::filesystem;
const std::string kModels = LAMINA_GOLDEN_DIR "/hf/";

class ReplacedFolder : public ::testing::Test {
 protected:
  void write(bool replace, bool native = false, const io::AddFiles& add_files = {}) {
    const io::Checkpoint checkpoint = io::read_hf(kModels + "llama_gqa", Device::cpu(1));
    if (native) return io::write_native(target_, checkpoint, replace, {}, add_files);
    io::HfWriteOptions options;
    options.max_shard_bytes = 50'000;
    options.replace = replace;
    options.add_files = add_files;
    io::write_hf(target_, checkpoint, options);
  }
  void put(const std::string& name, const std::string& text = "x") const { write_all(target_ + "/" + name, text); }
  /// Everything below the folder of the test, so that what a failure leaves beside the target is seen, too.
  std::map<std::string, std::string> everything() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(temporary_.path())) {
      files[entry.path().string()] = entry.is_regular_file() ? read_all(entry.path().string()) : "";
    }
    return files;
  }
  void expect_kept(const std::string& part) {
    const auto before = everything();
    for (const bool native : {false, true}) expect_error([&] { write(true, native); }, part);
    EXPECT_EQ(everything(), before);
  }

  TemporaryFolder temporary_;
  std::string target_ = temporary_ / "out";
};

TEST_F(ReplacedFolder, WhatAConversionWroteIsReplaced) {
  write(false);
  EXPECT_TRUE(fs::exists(target_ + "/model.safetensors.index.json"));
  for (const char* name : {"tokenizer.json", "tokenizer.model", "merges.txt", "chat_template.jinja", "x.tiktoken"})
    put(name);
  expect_error([&] { write(false); }, "already exists");
  write(true, true);
  EXPECT_TRUE(fs::exists(target_ + "/architecture.json"));
  EXPECT_FALSE(fs::exists(target_ + "/config.json")) << "the old files are gone";
  EXPECT_FALSE(fs::exists(target_ + "/merges.txt"));
  write(true);
  EXPECT_TRUE(fs::exists(target_ + "/config.json"));
}

TEST_F(ReplacedFolder, OtherFilesAreKept) {
  fs::create_directory(target_);
  put("thesis.tex");
  expect_kept("'thesis.tex'");
  fs::remove(target_ + "/thesis.tex");
  write(false);
  put("notes.txt");
  put("zzz");
  expect_kept("'notes.txt'");
  fs::remove(target_ + "/notes.txt");
  fs::remove(target_ + "/zzz");
  fs::create_directory(target_ + "/runs");
  expect_kept("'runs'");
  fs::remove(target_ + "/runs");
  fs::create_directory(target_ + "/tokenizer.json");
  expect_kept("'tokenizer.json'");
}

TEST_F(ReplacedFolder, ModelsOfOthersAreKept) {
  fs::copy(kModels + "llama_gqa", target_);
  fs::remove(target_ + "/golden.safetensors");
  for (const auto& entry : fs::directory_iterator(target_)) {
    const std::string name = entry.path().filename().string();
    if (name != "config.json" && name != "model.safetensors") fs::remove(entry.path());
  }
  expect_kept("'model.safetensors'");
  fs::remove(target_ + "/model.safetensors");
  expect_kept("'config.json'");
  put("model.safetensors", "damaged");
  expect_kept("'model.safetensors'");
}

TEST_F(ReplacedFolder, AFileThatComesMeanwhileIsKept) {
  write(false);
  expect_error([&] { write(true, false, [&](const std::string&) { put("late.txt"); }); }, "'late.txt'");
  EXPECT_TRUE(fs::exists(target_ + "/config.json"));
  EXPECT_EQ(std::distance(fs::directory_iterator(temporary_.path()), fs::directory_iterator()), 1);
}

TEST_F(ReplacedFolder, AnEmptyFolderIsFilled) {
  fs::create_directory(target_);
  write(false);
  EXPECT_TRUE(fs::exists(target_ + "/config.json"));
}

TEST_F(ReplacedFolder, ALinkStaysALink) {
  const std::string real = target_;
  write(false);
  target_ = temporary_ / "link";
  fs::create_directory_symlink(real, target_);
  write(true, true);
  EXPECT_TRUE(fs::is_symlink(target_));
  EXPECT_TRUE(fs::exists(real + "/architecture.json"));
}

TEST_F(ReplacedFolder, AFailureLeavesNothing) {
  write(false);
  const auto before = everything();
  expect_error([&] { write(true, false, [](const std::string&) { throw Error("no"); }); }, "no");
  EXPECT_EQ(everything(), before);
}

TEST(ModelFiles, OnlyRegularFilesAreRead) {
  const TemporaryFolder temporary;
  const auto pipe = [&](const std::string& name) { ASSERT_EQ(::mkfifo((temporary / name).c_str(), 0600), 0); };
  write_all(temporary / "config.json", read_all(kModels + "llama_gqa/config.json"));
  write_all(temporary / "model.safetensors.index.json", R"({"weight_map": {"lm_head.weight": "model-1.safetensors"}})");
  pipe("model-1.safetensors");
  const auto read = [&] { io::read_model(temporary.path(), Device::cpu(1)); };
  expect_error(read, "model-1.safetensors: is not a regular file");
  fs::remove(temporary / "model.safetensors.index.json");
  pipe("model.safetensors.index.json");
  expect_error(read, "model.safetensors.index.json: is a pipe or device");
  fs::remove(temporary / "config.json");
  pipe("config.json");
  expect_error(read, "config.json: is a pipe or device");
}

TEST(ModelFiles, AnIndexThatIsNoJsonSaysWhere) {
  const TemporaryFolder temporary;
  write_all(temporary / "config.json", read_all(kModels + "llama_gqa/config.json"));
  write_all(temporary / "model.safetensors.index.json", "{\n\"weight_map\": {]");
  expect_error([&] { io::read_model(temporary.path(), Device::cpu(1)); }, "index.json: line 2, column 16: not JSON");
  write_all(temporary / "model.safetensors.index.json", std::string(70000, '['));
  expect_error([&] { io::read_model(temporary.path(), Device::cpu(1)); }, "levels deep");
}

TEST(ModelFiles, NamesThatCannotBeLookedUpAreErrors) {
  expect_error([] { io::read_model(std::string(5000, 'a'), Device::cpu(1)); }, "does not exist");
  const TemporaryFolder temporary;
  fs::create_symlink("b", temporary / "a");
  fs::create_symlink("a", temporary / "b");
  expect_error([&] { io::read_model(temporary / "a", Device::cpu(1)); }, "does not exist");
}

}  // namespace
}  // namespace lamina::testing
