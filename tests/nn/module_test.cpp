#include "lamina/nn/module.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "lamina/autograd/tape.h"
#include "lamina/io/safetensors.h"
#include "support/error_of.h"
#include "support/names_of.h"

namespace lamina::testing {
namespace {

class Layer final : public nn::Module {
 public:
  explicit Layer(const Device& device)
      : weight(Tensor::full({2, 3}, 1.0, DType::f32, device)),
        steps(Tensor::full({1}, 7.0, DType::i64, device)),
        table(Tensor::full({4}, 0.5, DType::f32, device)) {
    add_parameter("weight", weight);
    add_buffer("steps", steps, Persistence::persistent);
    add_buffer("table", table, Persistence::non_persistent);
  }
  void reset_parameters() override { weight.detach().fill_(3.0); }
  Tensor weight;
  Tensor steps;
  Tensor table;
};

class Net final : public nn::Module {
 public:
  explicit Net(const Device& device) : first(device), second(device), head(first.weight) {
    add_child("first", first);
    add_child("second", second);
    add_parameter("head", head);
  }
  void name_again(const std::string& name) { add_child(name, second); }
  Layer first;
  Layer second;
  Tensor head;  // tied to first.weight
};

TEST(Module, NamesFollowTheTreeAndTiedTensorsCountOnce) {
  const Net net(Device::cpu(1));
  EXPECT_EQ(names_of(net.named_parameters()), (std::vector<std::string>{"head", "first.weight", "second.weight"}));
  EXPECT_EQ(net.parameters().size(), 2U);
  EXPECT_EQ(names_of(net.state_dict()),
            (std::vector<std::string>{"head", "first.weight", "first.steps", "second.weight", "second.steps"}));
  EXPECT_EQ(names_of(net.named_buffers()).size(), 4U);
}

TEST(Module, NamesAreUniqueAndHaveNoDots) {
  Net net(Device::cpu(1));
  EXPECT_NE(error_of([&] { net.name_again("first"); }).find("'first' is registered twice"), std::string::npos);
  EXPECT_NE(error_of([&] { net.name_again("a.b"); }).find("without dots"), std::string::npos);
}

TEST(Module, StateGoesThroughAFileAndBack) {
  const Device device = Device::cpu(1);
  Net net(device);
  net.first.weight.fill_(1.25);
  net.second.steps.fill_(9);
  const std::string path = (std::filesystem::path(::testing::TempDir()) / "module_state.safetensors").string();
  io::write_safetensors(path, net.state_dict());
  Net other(device);
  other.to(DType::bf16);
  const auto report = other.load_state_dict(io::SafetensorsFile::open(path, device).tensors());
  EXPECT_TRUE(report.missing.empty() && report.unexpected.empty());
  EXPECT_EQ(other.head.to_vector<float>(), std::vector<float>(6, 1.25F));
  EXPECT_EQ(other.second.steps.item(), 9);
  EXPECT_EQ(other.first.weight.dtype(), DType::bf16);
  std::filesystem::remove(path);
}

TEST(Module, StrictLoadingNamesEveryProblemAndWritesNothing) {
  const Device device = Device::cpu(1);
  Net net(device);
  auto state = net.state_dict();
  state[1] = {"first.weigth", Tensor::full({2, 3}, 5.0, DType::f32, device)};
  state[3].tensor = Tensor::full({3, 2}, 5.0, DType::f32, device);
  state[0].tensor = Tensor::full({2, 3}, 5.0, DType::f32, device);
  const std::string message = error_of([&] { net.load_state_dict(state); });
  EXPECT_NE(message.find("'first.weight' is missing"), std::string::npos) << message;
  EXPECT_NE(message.find("'first.weigth' is unexpected (did you mean 'first.weight'?)"), std::string::npos) << message;
  EXPECT_NE(message.find("'second.weight' is [3,2], the module has [2,3]"), std::string::npos) << message;
  EXPECT_EQ(net.head.to_vector<float>(), std::vector<float>(6, 1.0F));
}

TEST(Module, LooseLoadingReportsWhatItSkippedButNoWrongShape) {
  const Device device = Device::cpu(1);
  Net net(device);
  const auto report = net.load_state_dict({{"second.weight", Tensor::full({2, 3}, 5.0, DType::f64, device)},
                                           {"third.weight", Tensor::full({1}, 5.0, DType::f32, device)}},
                                          false);
  EXPECT_EQ(report.unexpected, std::vector<std::string>{"third.weight"});
  EXPECT_EQ(report.missing.size(), 4U);
  EXPECT_EQ(net.second.weight.to_vector<float>(), std::vector<float>(6, 5.0F));
  const auto load = [&](const std::string& name, const Tensor& value) {
    return error_of([&] { net.load_state_dict({{name, value}}, false); });
  };
  EXPECT_NE(load("head", Tensor::full({6}, 1, DType::f32, device)).find("'head' is [6]"), std::string::npos);
  EXPECT_NE(load("head", Tensor::full({2, 3}, 1, DType::i64, device)).find("'head' is i64"), std::string::npos);
  EXPECT_NE(load("head", Tensor()).find("'head' is undefined"), std::string::npos);
  EXPECT_NE(load("head", Tensor::empty({2, 3}, DType::f32, Device::meta())).find("meta"), std::string::npos);
  const Tensor value = Tensor::full({2, 3}, 1, DType::f32, device);
  EXPECT_NE(error_of([&] {
              net.load_state_dict({{"head", value}, {"head", value}});
            }).find("twice"),
            std::string::npos);
}

TEST(Module, ConversionKeepsTiesTablesAndIntegers) {
  Net net(Device::cpu(1));
  net.to(DType::f16);
  EXPECT_EQ(net.first.weight.dtype(), DType::f16);
  EXPECT_TRUE(net.head.shares_memory_with(net.first.weight));
  EXPECT_FALSE(net.second.weight.shares_memory_with(net.first.weight));
  EXPECT_EQ(net.first.table.dtype(), DType::f32);
  EXPECT_EQ(net.first.steps.dtype(), DType::i64);
  EXPECT_NE(error_of([&] { net.to(DType::i32); }).find("i32"), std::string::npos);
  net.to(Device::meta());
  for (const auto& [name, tensor] : net.named_buffers()) EXPECT_TRUE(tensor.is_meta()) << name;
  EXPECT_TRUE(net.head.shares_memory_with(net.first.weight));
  EXPECT_NE(error_of([&] {
              net.load_state_dict({{"head", Tensor::full({2, 3}, 1, DType::f32, Device::cpu(1))}}, false);
            }).find("move the module to a device"),
            std::string::npos);
}

TEST(Module, ResetReachesTheChildren) {
  Net net(Device::cpu(1));
  net.reset_parameters();
  EXPECT_EQ(net.second.weight.to_vector<float>(), std::vector<float>(6, 3.0F));
}

TEST(Module, WatchedHandlesAreTheModulesOwnAndCanBeReloaded) {
  const Device device = Device::cpu(1);
  Net net(device);
  Tape tape;
  for (Tensor& parameter : net.parameters()) tape.watch(parameter);
  tape.backward({net.second.weight.transpose(0, 1)}, {Tensor::full({3, 2}, 2.0, DType::f32, device)});
  EXPECT_EQ(tape.grad(net.second.weight).to_vector<float>(), std::vector<float>(6, 2.0F));
  net.load_state_dict({{"second.weight", Tensor::full({2, 3}, 8.0, DType::f32, device)}}, false);
  EXPECT_EQ(net.second.weight.to_vector<float>(), std::vector<float>(6, 8.0F));
}

}  // namespace
}  // namespace lamina::testing
