#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "lamina/ops/attention/attention_kernel.h"

namespace lamina::ops {

/// Makes the tasks that add to the same block of dq do so in the order of their key blocks, whichever threads run them.
/// So dq is deterministic.
class OrderedAccumulation {
 public:
  /// Thrown by wait() if its turn never comes, because another task failed.
  struct Abandoned {};

  /// `queries` and `keys` are the sizes of a query block and of a key block.
  OrderedAccumulation(const AttentionMask& mask, const AttentionSizes& sizes, int64_t queries, int64_t keys)
      : mask_(mask),
        sizes_(sizes),
        queries_(queries),
        keys_(keys),
        blocks_((sizes.seq_q + queries - 1) / queries),
        turns_(static_cast<size_t>(sizes.batch * sizes.n_heads * blocks_)) {
    for (int64_t block = 0; block < blocks_; ++block) {
      const auto first = static_cast<int32_t>(next(block, -1));
      for (int64_t slot = 0; slot < sizes.batch * sizes.n_heads; ++slot) turn(slot, block).store(first);
    }
  }

  /// Waits until all earlier key blocks have been added to a query block. slot = batch row · n_heads + head.
  void wait(int64_t slot, int64_t query_block, int64_t key_block) {
    constexpr int kSpins = 1000;
    std::atomic<int32_t>& now = turn(slot, query_block);
    for (int spins = 0; now.load(std::memory_order_acquire) != key_block; ++spins) {
      if (spins <= kSpins) continue;
      if (abandoned_.load(std::memory_order_relaxed)) throw Abandoned();
      std::this_thread::yield();
    }
  }
  /// A failing task must call this; otherwise later tasks would wait forever.
  void abandon() { abandoned_.store(true, std::memory_order_relaxed); }

  /// Lets the next key block add to a query block.
  void pass(int64_t slot, int64_t query_block, int64_t key_block) {
    turn(slot, query_block).store(static_cast<int32_t>(next(query_block, key_block)), std::memory_order_release);
  }

 private:
  std::atomic<int32_t>& turn(int64_t slot, int64_t block) {
    return turns_[static_cast<size_t>(slot * blocks_ + block)];
  }

  /// The next key block after `key_block` that the queries of this block see.
  int64_t next(int64_t query_block, int64_t key_block) const {
    const int64_t q0 = query_block * queries_;
    const int64_t q1 = std::min(q0 + queries_, sizes_.seq_q);
    const int64_t end = mask_.keys(q1 - 1).end;
    int64_t block = std::max(key_block + 1, mask_.keys(q0).begin / keys_);
    for (; block * keys_ < end; ++block) {
      const int64_t k0 = block * keys_;
      if (mask_.coverage(q0, q1, k0, std::min(k0 + keys_, sizes_.seq_k)) != AttentionMask::Coverage::none) break;
    }
    return block;
  }

  const AttentionMask& mask_;
  const AttentionSizes sizes_;
  int64_t queries_;
  int64_t keys_;
  int64_t blocks_;
  std::vector<std::atomic<int32_t>> turns_;
  std::atomic<bool> abandoned_{false};
};

}  // namespace lamina::ops
