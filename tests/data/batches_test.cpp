#include "lamina/data/batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "data/data_support.h"
#include "lamina/data/permutation.h"
#include "support/error_of.h"

namespace lamina::testing {
namespace {

using data::Batch;
using data::Batches;
using data::BatchOptions;
using data::Order;
using data::TokenFile;

constexpr Order kOrders[] = {Order::random, Order::sequential, Order::shuffled, Order::packed};

TEST(Permutation, IsOneForEverySizeAndKey) {
  for (const int64_t size : {1, 2, 3, 4, 5, 16, 17, 100, 1025}) {
    std::set<std::vector<int64_t>> seen;
    for (uint64_t seed = 0; seed < 8; ++seed) {
      std::vector<int64_t> places;
      for (int64_t i = 0; i < size; ++i) places.push_back(data::permuted(i, size, {seed, 5}));
      seen.insert(places);
      std::sort(places.begin(), places.end());
      std::vector<int64_t> all(static_cast<size_t>(size));
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(places, all);
    }
    if (size >= 16) {
      EXPECT_EQ(seen.size(), 8U);
    }
  }
}

/// In a file that counts 0, 1, 2, …, every target is its token plus one.
TEST(Batches, EveryPlaceHasTheNextToken) {
  const TemporaryFolder folder;
  const TokenFile file = counting_file(folder / "a.bin", {40, 1, 30, 90});
  for (const Order order : kOrders) {
    const Batches batches(file, {3, 7, order, 1});
    for (int64_t step = 0; step < 50; ++step) {
      const Batch batch = batches.at(step);
      ASSERT_EQ(batch.ids.size(), 21U);
      ASSERT_EQ(batch.rows * batch.length, 21);
      for (size_t i = 0; i < 21; ++i)
        ASSERT_EQ(batch.targets[i], batch.ids[i] + 1) << names_of(order)[static_cast<size_t>(order)];
      if (order == Order::packed) continue;
      for (size_t i = 0; i < 21; ++i) ASSERT_EQ(batch.ids[i], batch.ids[i / 7 * 7] + static_cast<int64_t>(i % 7));
    }
  }
}

TEST(Batches, DependOnSeedAndStepAlone) {
  const TemporaryFolder folder;
  const TokenFile file = counting_file(folder / "a.bin", {400, 300});
  for (const Order order : kOrders) {
    const BatchOptions options{4, 8, order, 11};
    std::vector<Batch> inorder;
    for (int64_t step = 0; step < 24; ++step) inorder.push_back(Batches(file, options).at(step));
    // Three workers, each with every third step, backwards.
    const Batches batches(file, options);
    std::vector<Batch> parallel(24);
    std::vector<std::thread> workers;
    for (int64_t worker = 0; worker < 3; ++worker) {
      workers.emplace_back([&, worker] {
        for (int64_t step = 21 + worker; step >= 0; step -= 3) parallel[static_cast<size_t>(step)] = batches.at(step);
      });
    }
    for (std::thread& worker : workers) worker.join();
    for (size_t step = 0; step < 24; ++step) {
      ASSERT_EQ(parallel[step].ids, inorder[step].ids);
      ASSERT_EQ(parallel[step].document_starts, inorder[step].document_starts);
    }
    BatchOptions other = options;
    other.seed = 12;
    EXPECT_EQ(Batches(file, other).at(0).ids == inorder[0].ids, order == Order::sequential);
  }
}

/// Every start is drawn, the first and the last too, about equally often.
TEST(Batches, RandomWindowsReachEverything) {
  const TemporaryFolder folder;
  const TokenFile file = counting_file(folder / "a.bin", {20});
  const Batches batches(file, {10, 4, Order::random, 2});
  std::map<int64_t, int> starts;
  for (int64_t step = 0; step < 160; ++step) {
    const Batch batch = batches.at(step);
    for (size_t row = 0; row < 10; ++row) ++starts[batch.ids[row * 4]];
  }
  ASSERT_EQ(starts.size(), 16U);  // 1600 draws of 16: a hundred each, standard deviation 9.7
  for (const auto& [start, count] : starts) EXPECT_NEAR(count, 100, 50) << start;
}

TEST(Batches, EpochsCoverEveryWindowOnce) {
  const TemporaryFolder folder;
  const TokenFile file = counting_file(folder / "a.bin", {103});
  for (const Order order : {Order::sequential, Order::shuffled}) {
    const Batches batches(file, {3, 5, order, 9});  // 20 windows; 3 do not divide them
    EXPECT_EQ(batches.steps_per_epoch(), 7);
    std::vector<int64_t> stream;
    for (int64_t step = 0; step < 20; ++step) {
      const Batch batch = batches.at(step);
      for (size_t row = 0; row < 3; ++row) stream.push_back(batch.ids[row * 5]);
    }
    std::vector<int64_t> expected;
    for (int64_t window = 0; window < 20; ++window) expected.push_back(window * 5);
    for (int epoch = 0; epoch < 3; ++epoch) {
      std::vector<int64_t> windows(stream.begin() + epoch * 20, stream.begin() + epoch * 20 + 20);
      if (order == Order::shuffled) {
        EXPECT_NE(windows, expected);
        std::sort(windows.begin(), windows.end());
      }
      EXPECT_EQ(windows, expected);
    }
  }
}

TEST(Batches, PackedDocumentsNeverCross) {
  const TemporaryFolder folder;
  const TokenFile file = counting_file(folder / "a.bin", {5, 1, 9, 2, 1, 1, 30, 3, 4, 1});
  const Batches batches(file, {2, 6, Order::packed, 4});
  ASSERT_EQ(batches.steps_per_epoch(), 3);  // 57 tokens of 10 documents: 47 places, 12 a batch
  std::set<int64_t> seen;
  for (int64_t step = 0; step < 60; ++step) {
    const Batch batch = batches.at(step);
    ASSERT_EQ(batch.rows, 1);
    ASSERT_EQ(batch.length, 12);
    ASSERT_EQ(batch.document_starts.front(), 0);
    ASSERT_EQ(batch.document_starts.back(), 12);
    ASSERT_TRUE(std::adjacent_find(batch.document_starts.begin(), batch.document_starts.end(),
                                   std::greater_equal<>()) == batch.document_starts.end());
    for (size_t d = 0; d + 1 < batch.document_starts.size(); ++d) {
      const auto begin = static_cast<size_t>(batch.document_starts[d]);
      const auto end = static_cast<size_t>(batch.document_starts[d + 1]);
      for (size_t i = begin; i < end; ++i) {
        ASSERT_EQ(batch.ids[i], batch.ids[begin] + static_cast<int64_t>(i - begin));
        ASSERT_EQ(file.document_of(batch.ids[i]), file.document_of(batch.targets[i]));
        seen.insert(batch.ids[i]);
      }
    }
    if (step == 2) {
      EXPECT_EQ(seen.size(), 36U);  // an epoch repeats nothing
    }
  }
  EXPECT_EQ(seen.size(), 47U);  // over several epochs every window is drawn
}

TEST(Batches, AnEvaluationSeesEveryTargetOnce) {
  const TemporaryFolder folder;
  struct Case {
    int tokens;
    int64_t batches, rows;  // expected batches and rows, with windows of 4 tokens and at most 3 rows per batch
  };
  for (const auto& [tokens, batches, rows] :
       {Case{2, 1, 1}, Case{5, 1, 1}, Case{6, 1, 2}, Case{16, 2, 2}, Case{18, 2, 3}, Case{41, 4, 3}, Case{82, 7, 3}}) {
    const TokenFile file = counting_file(folder / "a.bin", {tokens});
    std::vector<int64_t> targets;
    EXPECT_EQ(data::evaluation_batches(file, 3, 4), batches) << tokens;
    for (int64_t index = 0; index < batches; ++index) {
      const Batch batch = data::evaluation_batch(file, 3, 4, index);
      EXPECT_EQ(batch.rows, rows) << tokens;
      ASSERT_EQ(batch.targets.size(), static_cast<size_t>(batch.rows * 4));
      for (size_t i = 0; i < batch.targets.size(); ++i) {
        if (batch.targets[i] == kIgnoreIndex) continue;
        ASSERT_EQ(batch.targets[i], batch.ids[i] + 1);
        targets.push_back(batch.targets[i]);
      }
    }
    std::vector<int64_t> expected(static_cast<size_t>(tokens) - 1);
    std::iota(expected.begin(), expected.end(), 1);
    EXPECT_EQ(targets, expected);
  }
}

TEST(Batches, WhatCannotBeIsAnError) {
  const TemporaryFolder folder;
  const TokenFile file = counting_file(folder / "a.bin", {4, 4});
  EXPECT_NO_THROW(Batches(file, {1, 7, Order::random, 0}));
  EXPECT_NE(error_of([&] {
              Batches(file, {1, 8, Order::random, 0});
            }).find("has 8 tokens, a window of 8 needs 9"),
            std::string::npos);
  EXPECT_NE(error_of([&] { Batches(file, {1, 7, Order::packed, 0}); }).find("6 places"), std::string::npos);
  EXPECT_THROW(Batches(file, {0, 7, Order::random, 0}), Error);
  EXPECT_THROW(Batches(file, {1, -1, Order::random, 0}), Error);
  EXPECT_THROW(Batches(file, {1 << 30, 1 << 30, Order::random, 0}), Error);
  EXPECT_THROW(Batches(file, {1, 2, Order::random, 0}).at(-1), Error);
}

}  // namespace
}  // namespace lamina::testing
