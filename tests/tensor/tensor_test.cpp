#include "lamina/tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "support/close.h"

namespace lamina {
namespace {

using testing::expect_error;
constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
const std::vector<DType> kAllTypes{DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8};

/// 0, 1, 2, … in row-major order.
Tensor counting(const Shape& shape, DType dtype = DType::f32) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 0.0F);
  return Tensor::from(values, shape, Device::cpu(2)).to(dtype);
}

std::vector<double> values_of(const Tensor& tensor) { return tensor.to_vector<double>(); }

TEST(tensor, UndefinedTensorsAreErrors) {
  const Tensor none;
  EXPECT_FALSE(none.defined());
  expect_error([&] { none.shape(); }, "undefined tensor");
  expect_error([&] { none.reshape({1}); }, "undefined tensor");
  expect_error([&] { Tensor(none).fill_(1); }, "undefined tensor");
  expect_error([&] { Tensor::zeros({1}, DType::f32, Device::cpu()).copy_(none); }, "undefined tensor");
}

TEST(tensor, CreationRefusesBadSizes) {
  const Device device = Device::cpu();
  expect_error([&] { Tensor::empty({2, -1}, DType::f32, device); }, "negative extent");
  expect_error([&] { Tensor::empty({kLargest, kLargest}, DType::f32, device); }, "more elements");
  expect_error([&] { Tensor::empty({kLargest / 2}, DType::f64, device); }, "larger than 1 PiB");
  expect_error([&] { Tensor::empty({(int64_t{1} << 48) + 1}, DType::f32, Device::meta()); }, "larger than 1 PiB");
  EXPECT_EQ(Tensor::empty({int64_t{1} << 48}, DType::f32, Device::meta()).numel(), int64_t{1} << 48);
  expect_error([&] { Tensor::empty({int64_t{1} << 48}, DType::f32, device); }, "memory");
  expect_error([&] { Tensor::empty({kLargest, kLargest, 0}, DType::f32, device); }, "more elements");
  expect_error([&] { Tensor::from(std::vector<float>{1, 2, 3}, {2}, device); }, "3 values were given");
  EXPECT_EQ(Tensor::empty({3, 0, 5}, DType::f32, device).numel(), 0);
}

TEST(tensor, FillAndReadEveryType) {
  for (const DType dtype : kAllTypes) {
    const Tensor t = Tensor::full({3, 2}, 5, dtype, Device::cpu());
    EXPECT_EQ(values_of(t), std::vector<double>(6, 5.0)) << dtype;
    EXPECT_EQ(t.nbytes(), static_cast<int64_t>(6 * size_of(dtype)));
    Tensor middle = t.slice(1, 1, 1);
    middle.fill_(7);
    EXPECT_EQ(values_of(t), (std::vector<double>{5, 7, 5, 7, 5, 7})) << dtype;
  }
}

TEST(tensor, ConvertsBetweenAllTypes) {
  for (const DType from : kAllTypes) {
    for (const DType to : kAllTypes) {
      const Tensor source = counting({4, 5}, from);
      EXPECT_EQ(values_of(source.to(to)), values_of(counting({4, 5}))) << from << " to " << to;
      EXPECT_EQ(values_of(source.transpose(0, 1).to(to)), values_of(counting({4, 5}).transpose(0, 1)));
    }
  }
}

TEST(tensor, NumbersThatNoIntegerHoldsAreClamped) {
  const Tensor odd =
      Tensor::from(std::vector<double>{NAN, INFINITY, -INFINITY, 1e300, -1e300, -1.5, 300.7}, {7}, Device::cpu());
  EXPECT_EQ(odd.to(DType::u8).to_vector<uint8_t>(), (std::vector<uint8_t>{0, 255, 0, 255, 0, 0, 255}));
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
  EXPECT_EQ(odd.to(DType::i32).to_vector<int32_t>(), (std::vector<int32_t>{0, kMax, kMin, kMax, kMin, -1, 300}));
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(odd.to(DType::i64).to_vector<int64_t>(),
            (std::vector<int64_t>{0, kLargest, kLeast, kLargest, kLeast, -1, 300}));
}

TEST(tensor, ViewsShareMemory) {
  const Tensor t = counting({4, 6});
  const Tensor reshaped = t.reshape({2, -1, 3});
  const Tensor transposed = t.transpose(0, 1);
  const Tensor sliced = t.slice(1, 2, 3);
  for (const Tensor& view : {reshaped, transposed, sliced, t.detach()}) EXPECT_TRUE(view.shares_memory_with(t));
  EXPECT_EQ(reshaped.shape(), (Shape{2, 4, 3}));
  EXPECT_EQ(transposed.shape(), (Shape{6, 4}));
  EXPECT_FALSE(transposed.is_contiguous());
  EXPECT_EQ(values_of(sliced), (std::vector<double>{2, 3, 4, 8, 9, 10, 14, 15, 16, 20, 21, 22}));
  Tensor writable = sliced;
  writable.fill_(-1);
  EXPECT_EQ(values_of(t.slice(0, 0, 1)), (std::vector<double>{0, 1, -1, -1, -1, 5}));
  EXPECT_FALSE(t.clone().shares_memory_with(t));
  EXPECT_FALSE(t.to(DType::f64).shares_memory_with(t));
  EXPECT_TRUE(t.to(DType::f32).shares_memory_with(t));
  EXPECT_TRUE(t.contiguous().shares_memory_with(t));
  EXPECT_FALSE(transposed.contiguous().shares_memory_with(t));
}

/// Elements in index order, read one by one: the reference for views.
std::vector<double> by_index(const Tensor& t) {
  std::vector<double> result;
  std::vector<int64_t> index(static_cast<size_t>(t.rank()), 0);
  for (int64_t n = 0; n < t.numel(); ++n) {
    int64_t at = 0;
    for (int axis = 0; axis < t.rank(); ++axis) at += index[static_cast<size_t>(axis)] * t.strides()[axis];
    result.push_back(static_cast<double>(t.data<float>()[at]));
    for (int axis = t.rank() - 1; axis >= 0; --axis) {
      if (++index[static_cast<size_t>(axis)] < t.dim(axis)) break;
      index[static_cast<size_t>(axis)] = 0;
    }
  }
  return result;
}

TEST(tensor, SlicesSideBySideAreOneView) {
  const Device device = Device::cpu(1);
  std::vector<float> numbers(2 * 6 * 3);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  const Tensor whole = Tensor::from(numbers, {2, 6, 3}, device);
  const Tensor a = whole.slice(1, 0, 2);
  const Tensor b = whole.slice(1, 2, 3);
  const Tensor c = whole.slice(1, 5, 1);
  const Tensor joined = Tensor::adjacent_view({a, b, c}, 1);
  ASSERT_TRUE(joined.defined());
  EXPECT_TRUE(joined.shares_memory_with(whole));
  EXPECT_EQ(joined.shape(), whole.shape());
  EXPECT_EQ(joined.to_vector<float>(), numbers);
  EXPECT_EQ(Tensor::adjacent_view({b, c}, 1).to_vector<float>(), whole.slice(1, 2, 4).to_vector<float>());
  EXPECT_FALSE(Tensor::adjacent_view({}, 0).defined());
  EXPECT_FALSE(Tensor::adjacent_view({b, a}, 1).defined()) << "not in their order";
  EXPECT_FALSE(Tensor::adjacent_view({a, c}, 1).defined()) << "a gap";
  EXPECT_FALSE(Tensor::adjacent_view({a, b.clone()}, 1).defined()) << "two memories";
  EXPECT_FALSE(Tensor::adjacent_view({a, b.slice(2, 0, 2)}, 1).defined()) << "other extents";
}

TEST(tensor, ReshapeOfStridedViewsCopiesOnlyWhenItMust) {
  const Tensor t = counting({4, 6, 10});
  struct Row {
    Tensor source;
    Shape shape;
    bool shares;
  };
  const std::vector<Row> rows{{t.slice(2, 0, 5), {24, 5}, true},
                              {t.slice(2, 0, 5), {4, 3, 2, 5}, true},
                              {t.slice(2, 0, 5), {4, 30}, false},
                              {t.slice(1, 1, 3), {4, 30}, true},
                              {t.slice(1, 1, 3), {4, 3, 5, 2}, true},
                              {t.slice(1, 1, 3), {120}, false},
                              {t.transpose(0, 1), {6, 4, 2, 5}, true},
                              {t.transpose(0, 1), {24, 10}, false},
                              {t.transpose(1, 2), {4, 2, 5, 6}, true},
                              {t.slice(0, 1, 1), {60}, true},
                              {t.slice(1, 2, 1).slice(2, 3, 1), {4}, true},
                              {t.slice(1, 2, 1).slice(2, 3, 1), {1, 2, 1, 2, 1}, true},
                              {t.slice(2, 4, 1), {1, 24}, true},
                              {t.slice(0, 0, 0), {0, 7}, true},
                              {t.slice(0, 2, 1).slice(1, 3, 1).slice(2, 5, 1), {}, true}};
  for (const Row& row : rows) {
    const Tensor reshaped = row.source.reshape(row.shape);
    const std::string what = str(row.source.shape(), " to ", row.shape);
    EXPECT_EQ(reshaped.shares_memory_with(t), row.shares) << what;
    EXPECT_EQ(by_index(reshaped), by_index(row.source)) << what;
    EXPECT_EQ(values_of(reshaped), by_index(row.source)) << what;
  }
}

TEST(tensor, ReshapeChecksTheCount) {
  const Tensor t = counting({4, 6});
  EXPECT_EQ(t.reshape({-1}).shape(), Shape{24});
  EXPECT_EQ(t.slice(0, 0, 1).slice(1, 0, 1).reshape({}).item(), 0);
  expect_error([&] { t.reshape({5, -1}); }, "do not divide by 5");
  expect_error([&] { t.reshape({-1, -1}); }, "only one extent may be -1");
  expect_error([&] { t.reshape({25}); }, "the counts must agree");
  expect_error([&] { t.reshape({-4, -6}); }, "negative extent");
  expect_error([&] { t.reshape({-1, -2, -3}); }, "negative extent");
  expect_error([&] { t.reshape({kLargest, kLargest}); }, "too many elements");
  expect_error([&] { t.reshape({-1, 0}); }, "do not divide");
  expect_error([&] { t.reshape({}); }, "the counts must agree");
}

TEST(tensor, SlicesOutOfRangeAreErrors) {
  const Tensor t = counting({4, 6});
  EXPECT_EQ(t.slice(1, 6, 0).numel(), 0);
  EXPECT_EQ(values_of(t.slice(-1, 5, 1)), (std::vector<double>{5, 11, 17, 23}));
  for (const auto& [begin, length] : std::vector<std::pair<int64_t, int64_t>>{
           {-1, 1}, {0, 7}, {6, 1}, {7, 0}, {0, -1}, {1, kLargest}, {kLargest, kLargest}, {kLargest, 1}}) {
    expect_error([&, begin = begin, length = length] { t.slice(1, begin, length); }, "is outside axis 1");
  }
  expect_error([&] { t.slice(2, 0, 1); }, "axis 2 is outside");
  expect_error([&] { t.transpose(0, 2); }, "axis 2 is outside");
  expect_error([&] { t.slice(0, 0, 1).reshape({6}).slice(0, 3, 3).slice(0, 0, 4); }, "is outside axis");
}

TEST(tensor, ItemNeedsOneElement) {
  EXPECT_EQ(Tensor::full({1, 1}, 2.5, DType::bf16, Device::cpu()).item(), 2.5);
  EXPECT_EQ(Tensor::full({}, 3, DType::i64, Device::cpu()).item(), 3);
  expect_error([] { counting({2}).item(); }, "item() needs one element");
  expect_error([] { Tensor::zeros({0}, DType::f32, Device::cpu()).item(); }, "item() needs one element");
  expect_error([] { Tensor::zeros({1}, DType::f32, Device::meta()).item(); }, "meta tensor");
}

TEST(tensor, DataChecksTheType) {
  expect_error([] { counting({2}).data<double>(); }, "tensor holds f32, read as f64");
}

TEST(tensor, CopyBetweenOverlappingViews) {
  for (const int64_t count : {7, 100000}) {
    Tensor t = counting({count + 1});
    const auto before = values_of(t);
    t.slice(0, 1, count).copy_(t.slice(0, 0, count));
    EXPECT_EQ(values_of(t.slice(0, 1, count)), std::vector<double>(before.begin(), before.end() - 1));
    Tensor u = counting({count + 1});
    u.slice(0, 0, count).add_(u.slice(0, 1, count));
    for (const int64_t i : {int64_t{0}, count / 2, count - 1}) {
      EXPECT_EQ(u.slice(0, i, 1).item(), static_cast<double>(2 * i + 1));
    }
  }
  Tensor square = counting({3, 3});
  square.copy_(square.transpose(0, 1));
  EXPECT_EQ(values_of(square), (std::vector<double>{0, 3, 6, 1, 4, 7, 2, 5, 8}));
  Tensor same = counting({5});
  same.copy_(same);
  same.add_(same);
  EXPECT_EQ(values_of(same), (std::vector<double>{0, 2, 4, 6, 8}));
}

TEST(tensor, CopyAndAddCheckTheirArguments) {
  Tensor t = counting({4});
  expect_error([&] { t.copy_(counting({5})); }, "the shapes must be equal");
  expect_error([&] { t.add_(counting({2, 2})); }, "the shapes must be equal");
  expect_error([&] { t.add_(counting({4}, DType::i32)); }, "both must be floating");
  expect_error([&] { t.copy_(Tensor::zeros({4}, DType::f32, Device::meta())); }, "meta");
  expect_error([&] { t.add_(Tensor::zeros({4}, DType::f32, Device::meta())); }, "meta");
}

TEST(tensor, AddInEveryFloatingType) {
  for (const DType a : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const DType b : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      Tensor t = counting({3, 4}, a);
      t.add_(counting({3, 4}, b));
      for (size_t i = 0; i < 12; ++i) EXPECT_EQ(values_of(t)[i], 2.0 * static_cast<double>(i));
      Tensor columns = counting({4, 3}, a).transpose(0, 1);
      columns.add_(counting({3, 4}, b));
      EXPECT_EQ(values_of(columns)[1], 3.0 + 1.0);
    }
  }
}

TEST(tensor, VersionCountsWritesThroughAnyView) {
  Tensor t = counting({4});
  const uint64_t before = t.version();
  t.slice(0, 1, 2).fill_(0);
  EXPECT_GT(t.version(), before);
  EXPECT_EQ(t.clone().version(), Tensor::empty({4}, DType::f32, Device::cpu()).version() + 1);
}

TEST(tensor, MetaTensorsHaveNoMemory) {
  const Device meta = Device::meta();
  const int64_t terabyte = int64_t{1} << 40;
  {
    const Tensor huge = Tensor::zeros({terabyte / 4}, DType::f32, meta);
    EXPECT_EQ(huge.raw(), nullptr);
    EXPECT_EQ(meta.allocator().counters().live, terabyte);
    EXPECT_EQ(huge.slice(0, 10, 5).reshape({5, 1}).shape(), (Shape{5, 1}));
    EXPECT_EQ(huge.slice(0, 10, 5).to(DType::bf16).nbytes(), 10);
    Tensor copy = huge.clone();
    copy.fill_(1).add_(huge).copy_(huge);
    expect_error([&] { huge.to_vector<float>(); }, "has no values");
    expect_error([&] { huge.slice(0, 0, 4).to(Device::cpu()); }, "meta tensor");
  }
  EXPECT_EQ(meta.allocator().counters().live, 0);
  EXPECT_GE(meta.allocator().counters().peak, 2 * terabyte);
  EXPECT_TRUE(counting({3}).to(meta).is_meta());
}

TEST(tensor, BorrowedMemoryIsKeptAliveAndNotCopied) {
  auto owner = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3, 4});
  const std::weak_ptr<std::vector<float>> alive = owner;
  float* data = owner->data();
  Tensor t = Tensor::borrow(data, {2, 2}, DType::f32, Device::cpu(), owner);
  owner.reset();
  EXPECT_FALSE(alive.expired());
  EXPECT_EQ(t.data<float>(), data);
  EXPECT_EQ(values_of(t), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_FALSE(t.owns_memory_alone());
  const Tensor view = t.slice(0, 1, 1);
  t = Tensor();
  EXPECT_FALSE(alive.expired());
  EXPECT_EQ(values_of(view), (std::vector<double>{3, 4}));
}

TEST(tensor, BorrowRefusesMemoryThatCannotBeRead) {
  alignas(8) char bytes[32] = {};
  const Device device = Device::cpu();
  expect_error([&] { Tensor::borrow(nullptr, {2}, DType::f32, device, nullptr); }, "null");
  expect_error([&] { Tensor::borrow(bytes + 1, {2}, DType::f32, device, nullptr); }, "aligned");
  expect_error([&] { Tensor::borrow(bytes, {-2}, DType::f32, device, nullptr); }, "negative extent");
  EXPECT_EQ(Tensor::borrow(nullptr, {0}, DType::f32, device, nullptr).numel(), 0);
  const Tensor unowned = Tensor::borrow(bytes, {2}, DType::f32, device, nullptr);
  EXPECT_FALSE(unowned.owns_memory_alone()) << "the caller's memory must not be written to as if it were ours";
}

TEST(tensor, ToDeviceAndDeviceEquality) {
  const Tensor t = counting({3});
  EXPECT_TRUE(t.to(Device::cpu(1)).shares_memory_with(t)) << "two cpu devices can be mixed";
  EXPECT_TRUE(Device::cpu(1) == Device::cpu(2));
  EXPECT_FALSE(Device::cpu() == Device::meta());
  EXPECT_EQ(str(Device::meta()), "meta");
  const Device device = Device::cpu();
  device.add_work({5, 7});
  device.add_work({1, 1});
  EXPECT_EQ(device.work().flops, 6);
  EXPECT_EQ(device.work().bytes, 8);
  device.reset_work();
  EXPECT_EQ(device.work().flops, 0);
}

TEST(tensor, MemoryComesBackWhenTheLastViewGoes) {
  const Device device = Device::cpu();
  {
    Tensor view;
    {
      const Tensor t = Tensor::zeros({1000}, DType::f32, device);
      EXPECT_TRUE(t.owns_memory_alone());
      view = t.slice(0, 0, 10);
      EXPECT_FALSE(t.owns_memory_alone());
    }
    EXPECT_TRUE(view.owns_memory_alone());
    EXPECT_GE(device.allocator().counters().live, 4000);
  }
  EXPECT_EQ(device.allocator().counters().live, 0);
}

TEST(tensor, DeviceOutlivesItsHandle) {
  Tensor t;
  {
    const Device device = Device::cpu(2);
    t = Tensor::full({100000}, 1.0, DType::f32, device);
  }
  EXPECT_EQ(values_of(t.clone().add_(t))[99999], 2.0);
}

}  // namespace
}  // namespace lamina
