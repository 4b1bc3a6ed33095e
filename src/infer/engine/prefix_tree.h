#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "lamina/infer/engine/page_pool.h"
#include "lamina/infer/engine/step.h"

namespace lamina::infer {

/// Orders blocks of tokens lexicographically. So the block with the longest common prefix is a neighbour in the map.
struct BlockOrder {
  bool operator()(std::span<const TokenId> a, std::span<const TokenId> b) const {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  }
};

/// A block of up to page_size tokens that follows its parent's block. Only leaves have fewer tokens than a page.
struct PrefixNode {
  uint64_t id = 0;
  PrefixNode* parent = nullptr;
  int64_t depth = 0;  ///< tokens from the root to the end of the block
  std::vector<TokenId> block;
  std::map<std::span<const TokenId>, std::unique_ptr<PrefixNode>, BlockOrder> children;  ///< keyed by child->block
  /// Per resource: the page with this block's tokens, or the state after its last token. −1: not cached.
  std::vector<int32_t> held;
  uint64_t used = 0;  ///< time of the last use
  int32_t pins = 0;   ///< number of sequences whose tokens end at or below this node; a pinned node is not removed
};

/// The longest cached prefix of a sequence for which all kinds of layers have their data.
struct PrefixMatch {
  int64_t tokens = 0;
  std::vector<PrefixNode*> blocks;  ///< nodes of whole blocks, from the first one on
  PrefixNode* partial = nullptr;    ///< child of the last block whose first `tokens % page_size` tokens match
  /// Number of tokens that match the tree, even if pages and states were evicted. A state snapshot there is useful.
  int64_t known = 0;
};

/// Radix tree over the tokens of computed sequences, with one level per page. It keeps pages and state snapshots of
/// prefixes after their sequences ended, until the memory is needed. Resources are the page groups 0 … G − 1 and, if
/// the model has states, the state slots as resource G. A page or slot is evictable if only the tree refers to it. The
/// least recently used goes first; among equals, the deepest.
class PrefixTree {
 public:
  explicit PrefixTree(const CacheShape& shape);

  size_t resources() const { return pools_.size(); }
  size_t state_resource() const { return windows_.size(); }
  bool has_states() const { return pools_.size() > windows_.size(); }

  /// A page with one reference. Evicts a cached page if none is free. −1 if all pages are in use.
  int32_t take(size_t resource);
  /// Adds or drops a reference by a sequence.
  void hold(size_t resource, int32_t page);
  void drop(size_t resource, int32_t page);
  /// Number of pages that take() can give.
  int64_t available(size_t resource) const {
    return pools_[resource].free() + static_cast<int64_t>(evictable_[resource].size());
  }
  int64_t cached(size_t resource) const { return static_cast<int64_t>(evictable_[resource].size()); }
  const PagePool& pool(size_t resource) const { return pools_[resource]; }
  int64_t evictions() const { return evictions_; }

  /// The root for requests with this salt. It is pinned; unpin it after use.
  PrefixNode* pin_root(const std::string& salt);
  void pin(PrefixNode* node) { ++node->pins; }
  void unpin(PrefixNode* node);

  /// The longest usable cached prefix of `tokens`, with at most `limit` tokens.
  PrefixMatch find(PrefixNode* root, std::span<const TokenId> tokens, int64_t limit) const;
  /// The child with exactly this block. Created if it does not exist.
  PrefixNode* child(PrefixNode* node, std::span<const TokenId> block);
  /// Lets a node keep a page, if it has none yet. The page's sequence must not write this block's tokens any more.
  void adopt(PrefixNode* node, size_t resource, int32_t page);
  /// Marks a node and its ancestors as used now.
  void touch(PrefixNode* node);
  /// Evicts everything that is evictable.
  void clear();

 private:
  using Entry = std::tuple<uint64_t, int64_t, uint64_t, PrefixNode*>;  // (used, −depth, id, node)
  static Entry entry(PrefixNode* node) { return {node->used, -node->depth, node->id, node}; }
  bool evict(size_t resource);
  void forget(PrefixNode* node, size_t resource);
  void remove_if_empty(PrefixNode* node);
  bool servable(const PrefixMatch& match, int64_t tokens, const PrefixNode* partial) const;

  int64_t page_size_;
  std::vector<int64_t> windows_;
  std::vector<PagePool> pools_;
  std::vector<std::vector<PrefixNode*>> owners_;  ///< per resource and page: the node that keeps the page
  std::vector<std::set<Entry>> evictable_;
  std::map<std::string, std::unique_ptr<PrefixNode>> roots_;
  uint64_t time_ = 0, next_id_ = 0;
  int64_t evictions_ = 0;
};

}  // namespace lamina::infer
