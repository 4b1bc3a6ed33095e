// Collectives against sums and copies computed here from all ranks' inputs, on local and TCP ranks.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <mutex>

#include "comm/ranks.h"
#include "lamina/base/philox.h"

namespace lamina::testing {
namespace {

using comm::Communicator;

const Device kHost = Device::cpu(1);

/// Element i of rank r's input: numbers of very different size, so that the order of additions shows in the bits.
float value_of(int rank, int64_t i) {
  const uint32_t word = philox_word({7, static_cast<uint64_t>(rank)}, static_cast<uint64_t>(i));
  return std::ldexp(static_cast<float>(word % 20001) - 10000.0F, static_cast<int>(word >> 28U) - 8);
}

Tensor input_of(int rank, int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(value_of(rank, i));
  return Tensor::from(values, {count}, kHost);
}

/// The sum by definition: halves at the largest power of two below the number of ranks.
float tree_sum(const std::function<float(int)>& value, int begin, int end) {
  if (end - begin == 1) return value(begin);
  const int middle = begin + static_cast<int>(std::bit_floor(static_cast<unsigned>(end - begin - 1)));
  return tree_sum(value, begin, middle) + tree_sum(value, middle, end);
}

std::vector<float> expected_sum(int ranks, int64_t count) {
  std::vector<float> sums;
  for (int64_t i = 0; i < count; ++i) {
    sums.push_back(tree_sum([&](int r) { return value_of(r, i); }, 0, ranks));
  }
  return sums;
}

void expect_bits(const std::vector<float>& got, const std::vector<float>& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i])) << what << " element " << i;
  }
}

/// Uneven on purpose, with an empty part.
std::vector<int64_t> counts_of(int ranks, int64_t unit) {
  std::vector<int64_t> counts;
  for (int64_t r = 0; r < ranks; ++r) counts.push_back(r == 1 ? 0 : unit + r);
  return counts;
}

void check_collectives(Communicator& c) {
  const int n = c.size();
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{5000}, int64_t{40000}}) {
    const std::string what = str(n, " ranks, ", count, " elements");
    Tensor x = input_of(c.rank(), count);
    c.all_reduce(x, {.label = "sum"});
    expect_bits(x.to_vector<float>(), expected_sum(n, count), "all_reduce, " + what);
    Tensor fast = input_of(c.rank(), count);
    c.all_reduce(fast, {.label = "fast", .order = comm::Order::fast});
    expect_bits(fast.to_vector<float>(), expected_sum(n, count), "all_reduce fast, " + what);
    Tensor copy = input_of(c.rank(), count);
    c.broadcast(copy, n - 1, {.label = "copy"});
    expect_bits(copy.to_vector<float>(), input_of(n - 1, count).to_vector<float>(), "broadcast, " + what);
  }
  const std::vector<int64_t> counts = counts_of(n, 1500);
  int64_t total = 0;
  int64_t begin = 0;
  for (int r = 0; r < n; ++r) {
    if (r == c.rank()) begin = total;
    total += counts[static_cast<size_t>(r)];
  }
  const int64_t mine = counts[static_cast<size_t>(c.rank())];
  const std::vector<float> sums = expected_sum(n, total);
  const Tensor part = Tensor::zeros({mine}, DType::f32, kHost);
  c.reduce_scatter(input_of(c.rank(), total), part, counts, {.label = "parts"});
  expect_bits(part.to_vector<float>(), {sums.begin() + begin, sums.begin() + begin + mine}, "reduce_scatter");
  const Tensor whole = Tensor::zeros({total}, DType::f32, kHost);
  c.all_gather(part, whole, counts, {.label = "whole"});
  expect_bits(whole.to_vector<float>(), sums, "all_gather");
  c.barrier({.label = "end"});
}

void check_messages(Communicator& c) {
  const int n = c.size();
  // Rank s sends s + r + 1 elements, all s · 100 + r, to rank r.
  std::vector<int64_t> to;
  std::vector<int64_t> from;
  std::vector<int64_t> sent;
  std::vector<int64_t> expected;
  for (int r = 0; r < n; ++r) {
    to.push_back(c.rank() + r + 1);
    from.push_back(c.rank() + r + 1);
    sent.insert(sent.end(), static_cast<size_t>(to.back()), c.rank() * 100 + r);
    expected.insert(expected.end(), static_cast<size_t>(from.back()), r * 100 + c.rank());
  }
  const auto elements = static_cast<int64_t>(sent.size());
  const Tensor output = Tensor::zeros({elements}, DType::i64, kHost);
  c.all_to_all(Tensor::from(sent, {elements}, kHost), output, to, from, {.label = "experts"});
  EXPECT_EQ(output.to_vector<int64_t>(), expected);
  // A ring of large messages: only grouped sends and receives can pass it.
  const Tensor given = Tensor::full({300000}, c.rank(), DType::f32, kHost);
  const Tensor got = Tensor::zeros({300000}, DType::f32, kHost);
  if (n > 1) {
    c.exchange({{(c.rank() + 1) % n, given}}, {{(c.rank() + n - 1) % n, got}}, {.label = "ring"});
    EXPECT_EQ(got.to_vector<float>().back(), static_cast<float>((c.rank() + n - 1) % n));
  }
  // Two groups: even and odd ranks.
  std::vector<int> colors;
  for (int r = 0; r < n; ++r) colors.push_back(r % 2);
  const auto half = c.split(colors);
  EXPECT_EQ(half->size(), c.rank() % 2 == 0 ? (n + 1) / 2 : n / 2);
  EXPECT_EQ(half->rank(), c.rank() / 2);
  Tensor sum = Tensor::full({3}, c.rank(), DType::f64, kHost);
  half->all_reduce(sum, {.label = "half"});
  double members = 0;
  for (int r = c.rank() % 2; r < n; r += 2) members += r;
  EXPECT_EQ(sum.to_vector<double>()[2], members);
  EXPECT_EQ(comm::broadcast_text(c, c.rank() == 0 ? "folder" : "", 0, "text"), "folder");
  EXPECT_EQ(comm::gather(c, {c.rank() * 1.0}, "ranks").back(), n - 1);
}

TEST(Communicator, LocalRanksMatchTheDefinition) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    comm::run_local_ranks(ranks, [](Communicator& c) {
      check_collectives(c);
      check_messages(c);
    });
  }
}

TEST(Communicator, TcpRanksHaveTheBitsOfLocalRanks) {
  for (const int ranks : {2, 3}) {
    const auto errors = run_tcp_ranks(ranks, [](Communicator& c) {
      check_collectives(c);
      check_messages(c);
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

TEST(Communicator, ASumOfEightPartsHasTheSameBitsOnAnyNumberOfRanks) {
  std::vector<float> reference;
  for (const int ranks : {1, 2, 4, 8}) {
    std::mutex mutex;
    comm::run_local_ranks(ranks, [&](Communicator& c) {
      const int own = 8 / c.size();
      std::vector<Tensor> parts;  // each rank sums its own parts first, in the order of ordered_sum()
      for (int i = 0; i < own; ++i) parts.push_back(input_of(c.rank() * own + i, 999));
      for (size_t stride = 1; stride < parts.size(); stride *= 2) {
        for (size_t i = 0; i + stride < parts.size(); i += 2 * stride) parts[i].add_(parts[i + stride]);
      }
      c.all_reduce(parts[0], {.label = "sum"});
      const std::lock_guard lock(mutex);
      if (reference.empty()) reference = parts[0].to_vector<float>();
      expect_bits(parts[0].to_vector<float>(), reference, str(ranks, " ranks"));
    });
  }
}

TEST(Communicator, WrongArgumentsAreNamed) {
  comm::run_local_ranks(1, [](Communicator& c) {
    const Tensor x = Tensor::zeros({4}, DType::f32, kHost);
    EXPECT_THROW(c.all_reduce(Tensor(), {}), Error);
    EXPECT_THROW(c.all_reduce(Tensor::zeros({4}, DType::f16, kHost), {}), Error);
    EXPECT_THROW(c.all_reduce(Tensor::zeros({4, 4}, DType::f32, kHost).transpose(0, 1), {}), Error);
    EXPECT_THROW(c.all_reduce(Tensor::zeros({4}, DType::f32, Device::meta()), {}), Error);
    EXPECT_THROW(c.all_gather(x, x, {3}, {}), Error);
    EXPECT_THROW(c.reduce_scatter(x, x, {4, 0}, {}), Error);
    EXPECT_THROW(c.reduce_scatter(x, x, {-4}, {}), Error);
    EXPECT_THROW(c.broadcast(x, 1, {}), Error);
    EXPECT_THROW(c.exchange({{1, x}}, {}, {}), Error);
    EXPECT_THROW(c.exchange({{0, x}}, {{0, x}}, {}), Error);
    EXPECT_THROW(c.split({0, 1}), Error);
  });
  EXPECT_THROW(comm::run_local_ranks(0, [](Communicator&) {}), Error);
}

}  // namespace
}  // namespace lamina::testing
