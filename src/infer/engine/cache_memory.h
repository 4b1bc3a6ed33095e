#pragma once

#include <string>
#include <vector>

#include "lamina/infer/engine/prefix_tree.h"

namespace lamina::infer {

/// The cache memory that a running sequence holds.
struct CacheLease {
  std::vector<std::vector<int32_t>> tables;  ///< page tables per group (StepRow::pages)
  int32_t state = -1;                        ///< state slot, if the model has states
  int32_t saved_state = -1;                  ///< slot with a copy of an earlier state (CacheMemory::save_state)
  PrefixNode* node = nullptr;                ///< deepest prefix tree node that contains only tokens of this sequence
  /// Number of tokens that the tree knew at the start of the lease, rounded down to pages. A state snapshot there is
  /// useful, because another sequence has the same tokens up to there.
  int64_t shared = 0;
};

/// Page tables and states of all running sequences, over one page pool per group. Cached prefixes use the free pages.
class CacheMemory {
 public:
  /// `runner` copies pages and states. It must outlive this object.
  CacheMemory(StepRunner& runner, bool prefix_cache);

  /// Starts a lease with the longest cached prefix of `tokens`, of at most `limit` tokens. Returns the prefix's length,
  /// or −1 if no state slot is free.
  int64_t attach(CacheLease& lease, const std::string& salt, std::span<const TokenId> tokens, int64_t limit);
  /// Allocates pages for tokens [begin, end), and frees pages that no query from `begin` on attends to. Returns false,
  /// and allocates nothing, if there are too few.
  bool reserve(CacheLease& lease, int64_t begin, int64_t end);
  /// The largest end ≤ `end` for which reserve() succeeds.
  int64_t reservable(const CacheLease& lease, int64_t begin, int64_t end) const;
  /// Number of pages of `group` that a sequence needs beyond its lease to reach `end` tokens, in steps of up to
  /// `chunk`.
  int64_t missing(const CacheLease& lease, size_t group, int64_t begin, int64_t end, int64_t chunk) const;

  /// Makes the first `computed` tokens available to other sequences: whole pages and, with `partial`, the last one,
  /// too.
  void publish(CacheLease& lease, std::span<const TokenId> tokens, int64_t computed, bool partial);
  /// Keeps a copy of the state after `computed` tokens in the prefix cache, if a slot is available.
  void snapshot(CacheLease& lease, std::span<const TokenId> tokens, int64_t computed);
  /// Copies the state, so that restore_state() can undo steps with drafted tokens. Returns false if no slot is free.
  /// Does nothing and returns true if the model has no states.
  bool save_state(CacheLease& lease);
  /// Makes the saved state the current one. The copy stays saved.
  void restore_state(CacheLease& lease);
  /// Frees the slot of the saved state.
  void drop_saved_state(CacheLease& lease);
  /// Ends a lease. The pages it published stay cached.
  void release(CacheLease& lease);
  /// Drops all cached prefixes that no lease uses.
  void clear() { tree_.clear(); }

  int64_t page_size() const { return page_size_; }
  size_t groups() const { return windows_.size(); }
  bool has_states() const { return tree_.has_states(); }
  const PrefixTree& tree() const { return tree_; }

 private:
  PrefixNode* partial_node(CacheLease& lease, std::span<const TokenId> tokens, int64_t computed);
  bool take_match(CacheLease& lease, const PrefixMatch& match);
  void free_unseen(CacheLease& lease, int64_t position);
  int64_t first_seen_page(size_t group, int64_t position) const;

  StepRunner& runner_;
  bool prefix_cache_;
  int64_t page_size_;
  std::vector<int64_t> windows_;
  PrefixTree tree_;
};

}  // namespace lamina::infer
