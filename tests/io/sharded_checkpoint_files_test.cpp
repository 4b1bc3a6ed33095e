// Sharded checkpoints as files: reading them back, and errors of damaged or hostile manifests and pieces.
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "lamina/base/files.h"
#include "lamina/io/piece_set.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace lamina::testing {
namespace {

/// 0, 1, 2, … as f32.
Tensor counted(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 0.0F);
  return Tensor::from(values, shape, Device::cpu(1));
}

/// Expects an Error whose message contains `part`.
template <class F>
void expect_refused(const F& body, const std::string& part) {
  const std::string message = error_of(body);
  EXPECT_NE(message.find(part), std::string::npos) << "expected \"" << part << "\", the message is: " << message;
  EXPECT_NE(message, "");
}

/// A [6, 4] matrix "w" cut into three pieces, and a vector "b" in one, in two files.
class ShardedFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    manifest_.step = 7;
    manifest_.layout = {{"dp", 2}};
    manifest_.groups["model"].tensors = {{"w", {DType::f32, {6, 4}}}, {"b", {DType::f32, {5}}}};
    write(0, {{"w", {0, 0}, w_.slice(0, 0, 3)}, {"b", {0}, b_}});
    write(1, {{"w", {3, 0}, w_.slice(0, 3, 3).slice(1, 0, 1)}, {"w", {3, 1}, w_.slice(0, 3, 3).slice(1, 1, 3)}});
  }
  std::string file(int number) const { return str("model-", number, ".safetensors"); }
  void write(int number, const std::vector<io::TensorPiece>& pieces) {
    const io::WrittenFile written = io::write_pieces(folder_ / file(number), pieces);
    std::vector<io::ShardFile>& files = manifest_.groups["model"].files;
    if (files.size() <= static_cast<size_t>(number)) files.resize(static_cast<size_t>(number) + 1);
    files[static_cast<size_t>(number)] = {file(number), written.bytes, written.crc32c};
  }
  io::PieceSet open() const { return io::PieceSet::open(folder_.path(), manifest_, "model", Device::cpu(1)); }
  void refuse(const std::string& part) const {
    expect_refused([&] { open(); }, part);
  }

  TemporaryFolder folder_;
  io::Manifest manifest_;
  Tensor w_ = counted({6, 4});
  Tensor b_ = counted({5});
};

TEST_F(ShardedFiles, WholeTensorsAndAnyBoxAreRead) {
  const io::PieceSet set = open();
  EXPECT_EQ(set.names(), (std::vector<std::string>{"b", "w"}));
  EXPECT_EQ(set.tensor("w").to_vector<float>(), w_.to_vector<float>());
  EXPECT_EQ(set.tensor("b").to_vector<float>(), b_.to_vector<float>());
  EXPECT_EQ(set.tensor("b").raw(), set.tensor("b").raw()) << "a tensor in one piece is a view of the file";
  for (int64_t top = 0; top < 6; ++top) {
    for (int64_t left = 0; left < 4; ++left) {
      for (int64_t rows = 1; rows <= 6 - top; ++rows) {
        const Tensor to = Tensor::empty({rows, 4 - left}, DType::f64, Device::cpu(1));
        set.copy("w", {top, left}, to);
        EXPECT_EQ(to.to_vector<float>(), w_.slice(0, top, rows).slice(1, left, 4 - left).to_vector<float>());
      }
    }
  }
  expect_refused([&] { set.tensor("x"); }, "has no tensor 'x'");
}

TEST_F(ShardedFiles, TheManifestIsReadBack) {
  EXPECT_EQ(io::parse_manifest(io::manifest_text(manifest_), "m"), manifest_);
  expect_refused([&] { io::PieceSet::open(folder_.path(), manifest_, "training", Device::cpu(1)); },
                 "has no group 'training'");
}

TEST_F(ShardedFiles, DamagedFilesAreNamed) {
  const std::string path = folder_ / file(1);
  const std::string good = read_text(path);
  write_text(path, good.substr(0, good.size() - 1));
  refuse("model-1.safetensors: has ");
  std::string changed = good;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  write_text(path, changed);
  refuse("model-1.safetensors: its checksum differs");
  // Ranks share the comparison: file 1 is that of rank 1.
  const auto open_as = [&](int part) {
    return error_of([&] { io::PieceSet::open(folder_.path(), manifest_, "model", Device::cpu(1), {part, 2}); });
  };
  EXPECT_EQ(open_as(0), "");
  EXPECT_NE(open_as(1).find("its checksum differs"), std::string::npos);
  std::filesystem::remove(path);
  refuse("model-1.safetensors: does not exist");
}

TEST_F(ShardedFiles, PiecesThatAreNotTheTensorsAreRefused) {
  write(1, {{"w", {3, 0}, w_.slice(0, 3, 2)}});
  refuse("the pieces of tensor 'w' hold 20 of its 24 elements");
  write(1, {{"w", {2, 0}, w_.slice(0, 2, 3)}});
  refuse("overlap");
  write(1, {{"w", {4, 0}, w_.slice(0, 3, 3)}});
  refuse("lies outside the tensor, which is [6,4]");
  write(1, {{"w", {3}, b_}});
  refuse("lies outside the tensor");
  write(1, {{"w", {std::numeric_limits<int64_t>::max(), 0}, w_.slice(0, 3, 3)}});
  refuse("lies outside the tensor");
  write(1, {{"v", {0}, b_}});
  refuse("'v@0' is of a tensor that the manifest does not list");
  write(1, {{"w", {3, 0}, w_.slice(0, 3, 3).to(DType::bf16)}});
  refuse("holds bf16, the manifest says f32");
  for (const char* name : {"w", "w@3,", "w@3;0", "w@-3,0", "w@3,0,0,0,0,0,0,0,0,0", "w@99999999999999999999,0"}) {
    const io::WrittenFile written = io::write_safetensors(folder_ / file(1), {{name, w_.slice(0, 3, 3)}});
    manifest_.groups["model"].files[1] = {file(1), written.bytes, written.crc32c};
    EXPECT_NE(error_of([&] { open(); }), "") << name;
  }
}

TEST_F(ShardedFiles, HostileManifestsAreRefused) {
  const auto refuse_text = [](const std::string& text, const std::string& part) {
    expect_refused([&] { io::parse_manifest(text, "m"); }, part);
  };
  const std::string good = io::manifest_text(manifest_);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  for (const char* name : {"../model-0.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", "",
                           ".hidden.safetensors", "a\\\\b.safetensors", "a\\u0000.safetensors", "passwd"}) {
    refuse_text(with("model-0.safetensors", name), "expected a .safetensors file in this folder");
  }
  refuse_text(with("model-0.safetensors", "model-1.safetensors"), "names model-1.safetensors twice");
  refuse_text(good.substr(0, good.size() / 2), "line ");
  refuse_text("[]", "has no 'format'");
  refuse_text(with("lamina-sharded", "else"), "format is 'else'");
  refuse_text(with("\"version\": 1", "\"version\": 2"), "is version 2");
  refuse_text(with("\"step\": 7", "\"step\": -7"), "step is -7");
  refuse_text(with("\"step\": 7", "\"step\": 1e99"), "expected a number >= 0");
  refuse_text(with("\"f32\"", "\"f31\""), "dtype is 'f31'");
  refuse_text(with("\"bytes\": ", "\"bytes\": -"), "expected a number >= 0");
  refuse_text(with("\"crc32c\": \"", "\"crc32c\": \"x"), "eight hexadecimal digits");
  refuse_text(with("\"files\"", "\"fils\""), "has no 'files'");
  manifest_.groups["model"].tensors["w"].shape = {int64_t{1} << 40, int64_t{1} << 40};
  refuse_text(io::manifest_text(manifest_), "more than 2^56 elements");
}

}  // namespace
}  // namespace lamina::testing
