#include "lamina/tensor/allocator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "lamina/base/error.h"
#include "support/close.h"

namespace lamina {
namespace {

using testing::expect_error;

TEST(allocator, CountsLivePeakAndReserved) {
  const auto allocator = make_caching_cpu_allocator();
  void* a = allocator->allocate(1000);
  const int64_t one = allocator->counters().live;
  EXPECT_GE(one, 1000);
  EXPECT_LE(one, 1125);
  void* b = allocator->allocate(1000);
  EXPECT_EQ(allocator->counters().live, 2 * one);
  allocator->deallocate(a, 1000);
  EXPECT_EQ(allocator->counters().live, one);
  EXPECT_EQ(allocator->counters().peak, 2 * one);
  EXPECT_EQ(allocator->counters().reserved, 2 * one);
  allocator->reset_peak();
  EXPECT_EQ(allocator->counters().peak, one);
  EXPECT_EQ(allocator->counters().allocations, 2);
  EXPECT_EQ(allocator->counters().cache_hits, 0);
  allocator->deallocate(b, 1000);
}

TEST(allocator, HandsFreedBlocksOutAgainAndTrimsThem) {
  const auto allocator = make_caching_cpu_allocator();
  void* a = allocator->allocate(5000);
  allocator->deallocate(a, 5000);
  EXPECT_GT(allocator->counters().reserved, 0);
  void* b = allocator->allocate(4990);  // the same size class
  EXPECT_EQ(a, b);
  EXPECT_EQ(allocator->counters().cache_hits, 1);
  allocator->trim();
  EXPECT_EQ(allocator->counters().reserved, allocator->counters().live) << "a live block must stay";
  std::memset(b, 1, 4990);
  allocator->deallocate(b, 4990);
  allocator->trim();
  EXPECT_EQ(allocator->counters().reserved, 0);
  EXPECT_EQ(allocator->counters().live, 0);
}

TEST(allocator, EverySizeIsAlignedUsableAndWastesLittle) {
  const auto allocator = make_caching_cpu_allocator();
  for (const size_t bytes : {1, 63, 64, 65, 127, 1000, 4097, 65537, 3 << 20}) {
    const int64_t before = allocator->counters().live;
    void* block = allocator->allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0U) << bytes;
    std::memset(block, 0xff, bytes);
    const int64_t taken = allocator->counters().live - before;
    EXPECT_GE(taken, static_cast<int64_t>(bytes));
    EXPECT_LE(taken, static_cast<int64_t>(std::max<size_t>(64, bytes + bytes / 8 + 64)));
    allocator->deallocate(block, bytes);
    EXPECT_EQ(allocator->counters().live, before);
  }
}

TEST(allocator, AbsurdSizesAreErrors) {
  for (const auto& allocator : {make_caching_cpu_allocator(), make_counting_allocator()}) {
    for (const size_t bytes : {std::numeric_limits<size_t>::max(), size_t{1} << 63, size_t{1} << 62}) {
      expect_error([&] { allocator->allocate(bytes); }, "too large for any machine");
      EXPECT_EQ(allocator->counters().live, 0);
    }
  }
}

TEST(allocator, OutOfMemoryIsAnErrorAndTheAllocatorLivesOn) {
  const auto allocator = make_caching_cpu_allocator();
  void* small = allocator->allocate(100);
  expect_error([&] { allocator->allocate(size_t{1} << 55); }, "out of memory");
  EXPECT_EQ(allocator->counters().reserved, allocator->counters().live);
  allocator->deallocate(small, 100);
}

TEST(allocator, CountingOneNeverOverflowsItsCounters) {
  const auto allocator = make_counting_allocator();
  EXPECT_EQ(allocator->allocate(1000), nullptr);
  expect_error(
      [&] {
        for (int i = 0; i < 100; ++i) allocator->allocate(size_t{1} << 61);
      },
      "bytes");
  EXPECT_GE(allocator->counters().live, 0);
}

TEST(allocator, CountingOneReleasesFreeBlocksBeforeReservedOverflows) {
  const auto allocator = make_counting_allocator();
  constexpr size_t kFirst = size_t{3} << 60;
  constexpr size_t kSecond = size_t{1} << 61;
  for (int i = 0; i < 2; ++i) allocator->allocate(kFirst);
  for (int i = 0; i < 2; ++i) allocator->deallocate(nullptr, kFirst);
  allocator->allocate(kSecond);  // 2^63 bytes with the free blocks
  EXPECT_EQ(allocator->counters().reserved, static_cast<int64_t>(kSecond));
}

TEST(allocator, CountingOneCountsAsTheCachingOne) {
  const auto caching = make_caching_cpu_allocator();
  const auto counting = make_counting_allocator();
  std::vector<std::pair<void*, size_t>> held;
  std::mt19937 random(3);
  const auto free_one = [&](size_t index) {
    const auto [block, bytes] = held[index];
    caching->deallocate(block, bytes);
    counting->deallocate(nullptr, bytes);
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(index));
  };
  for (int i = 0; i < 500; ++i) {
    const auto draw = random() % 16;
    if (draw < 9) {
      const size_t bytes = 1 + random() % 5000;
      held.emplace_back(caching->allocate(bytes), bytes);
      counting->allocate(bytes);
    } else if (draw < 14 && !held.empty()) {
      free_one(random() % held.size());
    } else if (draw == 14) {
      caching->trim();
      counting->trim();
    } else {
      caching->reset_peak();
      counting->reset_peak();
    }
    const MemoryCounters a = caching->counters();
    const MemoryCounters b = counting->counters();
    ASSERT_EQ(a.live, b.live) << i;
    ASSERT_EQ(a.peak, b.peak) << i;
    ASSERT_EQ(a.reserved, b.reserved) << i;
    ASSERT_EQ(a.cache_hits, b.cache_hits) << i;
    ASSERT_EQ(a.allocations, b.allocations) << i;
  }
  while (!held.empty()) free_one(0);
}

TEST(allocator, ServesManyThreadsAtOnce) {
  const auto allocator = make_caching_cpu_allocator();
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id) {
    threads.emplace_back([&, id] {
      for (int round = 0; round < 500; ++round) {
        const size_t bytes = static_cast<size_t>(64 + (round * 37 + id * 101) % 5000);
        auto* block = static_cast<unsigned char*>(allocator->allocate(bytes));
        std::memset(block, id, bytes);
        if (round % 50 == 0) allocator->trim();
        for (size_t i = 0; i < bytes; i += 97) ASSERT_EQ(block[i], id);
        allocator->deallocate(block, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocator->counters().live, 0);
  EXPECT_EQ(allocator->counters().allocations, 2000);
  allocator->trim();
  EXPECT_EQ(allocator->counters().reserved, 0);
}

// Blocks of these sizes are cut from ranges of huge pages.
TEST(allocator, CutBlocksAreDisjointAndTheirMemoryIsUsedAgain) {
  const auto allocator = make_caching_cpu_allocator();
  struct Block {
    unsigned char* data;
    size_t bytes;
    unsigned char mark;
  };
  std::vector<Block> held;
  std::mt19937 random(1);
  unsigned char mark = 0;
  for (int round = 0; round < 600; ++round) {
    if (held.size() > 20 || (!held.empty() && random() % 3 == 0)) {
      const size_t at = random() % held.size();
      const Block block = held[at];
      EXPECT_EQ(block.data[0], block.mark);
      EXPECT_EQ(block.data[block.bytes - 1], block.mark);
      allocator->deallocate(block.data, block.bytes);
      held.erase(held.begin() + static_cast<int64_t>(at));
    } else {
      const size_t bytes = size_t{60000} << (random() % 8);
      auto* data = static_cast<unsigned char*>(allocator->allocate(bytes));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0U);
      data[0] = data[bytes - 1] = ++mark;
      held.push_back({data, bytes, mark});
    }
    if (round % 40 == 0) allocator->trim();
  }
  for (const Block& block : held) {
    EXPECT_EQ(block.data[0], block.mark);
    EXPECT_EQ(block.data[block.bytes - 1], block.mark);
    allocator->deallocate(block.data, block.bytes);
  }
  allocator->trim();
  EXPECT_EQ(allocator->counters().reserved, 0);
}

}  // namespace
}  // namespace lamina
