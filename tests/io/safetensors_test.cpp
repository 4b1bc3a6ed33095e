#include "lamina/io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>

#include "support/error_of.h"

namespace lamina::testing {
namespace {

using io::SafetensorsFile;

struct Bytes {
  std::vector<std::byte> values;
  explicit Bytes(const std::string& header, size_t data = 0, std::optional<uint64_t> length = {}) {
    const uint64_t written = length.value_or(header.size());
    values.resize(8 + header.size() + data);
    std::memcpy(values.data(), &written, 8);
    std::memcpy(values.data() + 8, header.data(), header.size());
  }
  SafetensorsFile parse() { return SafetensorsFile::parse(values, "a.safetensors", Device::cpu(1), nullptr); }
};

void expect_error(Bytes bytes, const std::vector<std::string>& parts) {
  const std::string message = error_of([&] { bytes.parse(); });
  for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  EXPECT_NE(message.find("a.safetensors"), std::string::npos) << message;
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

class SafetensorsFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / ("safetensors_" + std::to_string(std::random_device{}()));
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::filesystem::path folder_;
};

/// Memory that is given back holds the file's numbers again, which what was written into it did not change.
TEST_F(SafetensorsFolder, ReleasedTensorsAreReadFromTheFileAgain) {
  constexpr int64_t kNumbers = 1 << 14;  // sixteen pages
  const Device device = Device::cpu(1);
  io::write_safetensors(path("a"), {{"big", Tensor::full({kNumbers}, 3.0, DType::f32, device)},
                                    {"small", Tensor::full({4}, 5.0, DType::f32, device)}});
  const SafetensorsFile file = SafetensorsFile::open(path("a"), device);
  Tensor big = file.tensor("big");
  Tensor small = file.tensor("small");
  big.fill_(7.0);
  small.fill_(9.0);
  file.release("big");
  EXPECT_EQ(big.to_vector<float>()[kNumbers / 2], 3.0F);
  EXPECT_EQ(small.to_vector<float>(), std::vector<float>(4, 9.0F));
  EXPECT_THROW(file.release("none"), Error);
}

TEST_F(SafetensorsFolder, WhatIsWrittenIsRead) {
  const Device device = Device::cpu(1);
  NamedTensors tensors;
  std::mt19937 random(1);
  for (const DType dtype : {DType::u8, DType::f64, DType::bf16, DType::i32, DType::f32, DType::f16, DType::i64}) {
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{0, 5}, Shape{2, 3, 1, 5}}) {
      std::vector<double> values(static_cast<size_t>(shape.numel()));
      for (double& value : values) value = static_cast<double>(random() % 200);
      tensors.push_back({str(dtype, shape), Tensor::from(values, shape, device).to(dtype)});
    }
  }
  tensors.push_back({"transposed", Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3}, device).transpose(0, 1)});
  io::write_safetensors(path("all.safetensors"), tensors, {{"format", "pt"}, {"note", "ä\"\n"}});
  const auto file = SafetensorsFile::open(path("all.safetensors"), device);
  EXPECT_EQ(file.names().size(), tensors.size());
  EXPECT_EQ(file.metadata().at("note"), "ä\"\n");
  for (const auto& [name, tensor] : tensors) {
    const Tensor read = file.tensor(name);
    EXPECT_EQ(read.shape(), tensor.shape()) << name;
    EXPECT_EQ(read.dtype(), tensor.dtype()) << name;
    EXPECT_EQ(read.to_vector<double>(), tensor.to_vector<double>()) << name;
  }
}

TEST_F(SafetensorsFolder, EqualContentsGiveEqualFilesAndNoTemporaryStays) {
  const Device device = Device::cpu(1);
  const Tensor a = Tensor::full({3}, 1.0, DType::f32, device);
  const Tensor b = Tensor::full({2}, 2.0, DType::f64, device);
  io::write_safetensors(path("x"), {{"a", a}, {"b", b}});
  io::write_safetensors(path("y"), {{"b", b}, {"a", a}});
  const auto bytes = [&](const char* name) {
    std::ifstream file(path(name), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_EQ(bytes("x"), bytes("y"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2);
}

TEST_F(SafetensorsFolder, ATensorOutlivesItsFileAndWritesStayPrivate) {
  const Device device = Device::cpu(1);
  io::write_safetensors(path("x"), {{"a", Tensor::full({3}, 1.0, DType::f32, device)}});
  Tensor a = SafetensorsFile::open(path("x"), device).tensor("a");
  // Replacing the file while it is mapped leaves the old values readable.
  io::write_safetensors(path("x"), {{"a", Tensor::full({3}, 5.0, DType::f32, device)}});
  EXPECT_EQ(a.to_vector<float>(), std::vector<float>(3, 1.0F));
  Tensor fresh = SafetensorsFile::open(path("x"), device).tensor("a");
  fresh.fill_(7.0);
  EXPECT_EQ(SafetensorsFile::open(path("x"), device).tensor("a").to_vector<float>(), std::vector<float>(3, 5.0F));
}

TEST_F(SafetensorsFolder, AFailedWriteLeavesTheOldFile) {
  const Device device = Device::cpu(1);
  const Tensor a = Tensor::full({3}, 1.0, DType::f32, device);
  io::write_safetensors(path("x"), {{"a", a}});
  EXPECT_THROW(io::write_safetensors(path("x"), {{"a", a}, {"a", a}}), Error);
  EXPECT_THROW(io::write_safetensors(path("x"), {{"\xff", a}}), Error);
  EXPECT_THROW(io::write_safetensors(path("x"), {{"__metadata__", a}}), Error);
  EXPECT_THROW(io::write_safetensors(path("x"), {{"a", Tensor()}}), Error);
  EXPECT_THROW(io::write_safetensors(path("x"), {{"a", Tensor::empty({3}, DType::f32, Device::meta())}}), Error);
  EXPECT_THROW(io::write_safetensors(path("none/x"), {{"a", a}}), Error);
  EXPECT_EQ(SafetensorsFile::open(path("x"), device).tensor("a").to_vector<float>(), std::vector<float>(3, 1.0F));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(SafetensorsFolder, FilesThatCannotBeOpened) {
  const Device device = Device::cpu(1);
  EXPECT_THROW(SafetensorsFile::open(path("missing"), device), Error);
  EXPECT_THROW(SafetensorsFile::open(folder_.string(), device), Error);
  std::ofstream(path("empty")).flush();
  EXPECT_THROW(SafetensorsFile::open(path("empty"), device), Error);
  io::write_safetensors(path("x"), {});
  EXPECT_TRUE(SafetensorsFile::open(path("x"), device).names().empty());
  EXPECT_THROW(SafetensorsFile::open(path("x"), Device::meta()), Error);
}

TEST(Safetensors, AMissingNameSuggestsTheNearest) {
  Bytes bytes(R"({"layer.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4);
  const auto file = bytes.parse();
  EXPECT_TRUE(file.contains("layer.weight"));
  const std::string message = error_of([&] { file.tensor("layer.wieght"); });
  EXPECT_NE(message.find("did you mean 'layer.weight'"), std::string::npos) << message;
}

TEST(Safetensors, ElementsThatAreNotAlignedAreCopied) {
  // A header of odd length puts every f64 at an odd address.
  Bytes bytes(R"({"w":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}} )", 16);
  const double values[] = {1.5, -2.5};
  std::memcpy(bytes.values.data() + bytes.values.size() - 16, values, 16);
  EXPECT_EQ(bytes.parse().tensor("w").to_vector<double>(), (std::vector<double>{1.5, -2.5}));
  bytes = Bytes(R"({"w":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}}  )", 16);
  std::memcpy(bytes.values.data() + bytes.values.size() - 16, values, 16);
  EXPECT_EQ(bytes.parse().tensor("w").to_vector<double>(), (std::vector<double>{1.5, -2.5}));
}

TEST(Safetensors, DamagedFilesAreErrorsThatNameTheTensor) {
  Bytes cut("", 0);
  cut.values.resize(5);
  expect_error(cut, {"5 bytes"});
  expect_error(Bytes("{}", 0, 3), {"claims a header of 3"});
  expect_error(Bytes("{}", 0, ~uint64_t{0}), {"claims a header of 18446744073709551615"});
  expect_error(Bytes("{}", 0, uint64_t{1} << 62), {"claims a header"});
  expect_error(Bytes(""), {"not valid JSON"});
  expect_error(Bytes("{\"w\":"), {"not valid JSON"});
  expect_error(Bytes("[]"), {"array", "expected a JSON object"});
  expect_error(Bytes("3"), {"expected a JSON object"});
  expect_error(Bytes("\"x\""), {"expected a JSON object"});
  expect_error(Bytes("{}", 4), {"the tensors end at byte 0 and the data at 4"});
  expect_error(Bytes(one("F32", "[2]", "[0,8]"), 4), {"'w'", "claims the bytes [0, 8) of 4"});
  expect_error(Bytes(one("F32", "[2]", "[8,0]"), 8), {"'w'", "claims the bytes"});
  expect_error(Bytes(one("F32", "[2]", "[0,18446744073709551615]"), 8), {"'w'", "claims the bytes"});
  expect_error(Bytes(one("F32", "[3]", "[0,8]"), 8), {"'w'", "needs 12 bytes and has 8"});
  expect_error(Bytes(one("F32", "[-2]", "[0,8]"), 8), {"'w'", "-2"});
  expect_error(Bytes(one("F32", "[2.0]", "[0,8]"), 8), {"'w'", "2.0"});
  expect_error(Bytes(one("F32", "[4611686018427387904,4]", "[0,8]"), 8), {"'w'", "more than 2^63"});
  expect_error(Bytes(one("F32", "[18446744073709551615]", "[0,8]"), 8), {"'w'", "extent of 18446744073709551615"});
  expect_error(Bytes(one("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), 8), {"'w'", "dimensions"});
  expect_error(Bytes(one("F33", "[2]", "[0,8]"), 8), {"'w'", "unknown dtype 'F33'"});
  expect_error(Bytes(one("F32", "[2]", "[0]"), 8), {"'w'", "fewer than two"});
  expect_error(Bytes(one("F32", "[2]", "[0,8,8]"), 8), {"'w'", "more than two"});
  expect_error(Bytes(one("F32", "[[2]]", "[0,8]"), 8), {"'w'", "array"});
  expect_error(Bytes(one("F32", "2", "[0,8]"), 8), {"'w'", "number"});
  expect_error(Bytes(R"({"w":{"dtype":"F32","shape":[2]}})"), {"'w'", "no data_offsets"});
  expect_error(Bytes(R"({"w":{"dtype":"F32","shape":[2],"extra":1}})"), {"'w'", "unknown key 'extra'"});
  expect_error(Bytes(R"({"w":null})"), {"'w'", "null"});
  expect_error(Bytes(R"({"w":{"dtype":"U8","dtype":"U8"}})"), {"'w'", "'dtype' twice"});
  expect_error(Bytes(R"({"__metadata__":{"a":1}})"), {"__metadata__", "number"});
  expect_error(Bytes(R"({"__metadata__":{"a":{}}})"), {"__metadata__", "object"});
  expect_error(Bytes("{\"w\":" + std::string(100000, '[')), {"'w'", "array"});
  expect_error(Bytes(std::string(100000, '{')), {"not valid JSON"});
}

TEST(Safetensors, TensorsNeitherOverlapNorLeaveGapsNorShareANameWithAnother) {
  const auto two = [](const char* second, int begin) {
    return str(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},")", second,
               R"(":{"dtype":"U8","shape":[4],"data_offsets":[)", begin, ",", begin + 4, "]}}");
  };
  EXPECT_EQ(Bytes(two("b", 4), 8).parse().names(), (std::vector<std::string>{"a", "b"}));
  expect_error(Bytes(two("b", 2), 8), {"'b'", "begins at byte 2", "ends at 4"});
  expect_error(Bytes(two("b", 0), 8), {"overlap"});
  expect_error(Bytes(two("b", 6), 10), {"'b'", "gaps"});
  expect_error(Bytes(two("a", 4), 8), {"'a'", "twice"});
}

TEST(Safetensors, RandomDamageNeverDoesMoreThanThrow) {
  const std::string header = R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                             R"("b":{"dtype":"I64","shape":[],"data_offsets":[24,32]}})";
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    Bytes bytes(header, 32);
    for (uint32_t hits = 1 + random() % 3; hits > 0; --hits) {
      bytes.values[random() % bytes.values.size()] = static_cast<std::byte>(random());
    }
    if (random() % 4 == 0) bytes.values.resize(random() % bytes.values.size());
    try {
      for (const auto& [name, tensor] : bytes.parse().tensors()) {
        EXPECT_EQ(tensor.to_vector<double>().size(), static_cast<size_t>(tensor.numel()));
      }
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace lamina::testing
