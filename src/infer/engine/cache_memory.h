#pragma once

#include <string>
#include <vector>

#include "lamina/infer/engine/prefix_tree.h"

namespace lamina::infer {

/// The cache memory that a running sequence holds.
struct CacheLease {
  std::vector<std::vector<int32_t>> tables;  ///< page tables per group (StepRow::pages)
  int32_t state = -1;                        ///< state slot, if the model has states
  int32_t saved_state = -1;                  ///< slot with a copy of an earlier state; see CacheMemory::save_state
  PrefixNode* node = nullptr;                ///< deepest node of the prefix tree that this sequence's blocks reach
  /// Tokens known to the tree when the lease began, rounded down to pages: a place worth a state snapshot, because
  /// another sequence shares them.
  int64_t shared = 0;
};

/// Page tables and states of all sequences, over one pool per group. Cached prefixes fill what is free.
class CacheMemory {
 public:
  /// `runner` copies pages and states; it must outlive this object.
  CacheMemory(StepRunner& runner, bool prefix_cache);

  /// Starts a lease with the longest cached prefix of `tokens`, at most `limit` tokens. Returns its number of tokens,
  /// or −1 if no state slot is free.
  int64_t attach(CacheLease& lease, const std::string& salt, std::span<const TokenId> tokens, int64_t limit);
  /// Gets pages for tokens [begin, end) and frees those that no query from `begin` on sees. Returns false, and takes
  /// nothing, if there are too few.
  bool reserve(CacheLease& lease, int64_t begin, int64_t end);
  /// The largest end ≤ `end` for which reserve() succeeds.
  int64_t reservable(const CacheLease& lease, int64_t begin, int64_t end) const;
  /// Pages of `group` that a sequence needs beyond its lease to reach `end` tokens, computed in steps of up to `chunk`.
  int64_t missing(const CacheLease& lease, size_t group, int64_t begin, int64_t end, int64_t chunk) const;

  /// Lets others reuse the first `computed` tokens: whole pages, with `partial` also the last one.
  void publish(CacheLease& lease, std::span<const TokenId> tokens, int64_t computed, bool partial);
  /// Keeps a copy of the state after `computed` tokens, if a slot can be spared.
  void snapshot(CacheLease& lease, std::span<const TokenId> tokens, int64_t computed);
  /// Copies the state, so that restore_state() can undo steps with drafted tokens. Returns false if no slot is free.
  /// Without states there is nothing to do.
  bool save_state(CacheLease& lease);
  /// Makes the saved state the current one. It stays saved.
  void restore_state(CacheLease& lease);
  /// Frees the slot of the saved state.
  void drop_saved_state(CacheLease& lease);
  /// Ends a lease. Its published pages stay cached.
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
