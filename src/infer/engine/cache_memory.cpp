#include "lamina/infer/engine/cache_memory.h"

namespace lamina::infer {

CacheMemory::CacheMemory(StepRunner& runner, bool prefix_cache)
    : runner_(runner), prefix_cache_(prefix_cache), page_size_(runner.shape().page_size), tree_(runner.shape()) {
  for (const CacheGroup& group : runner.shape().groups) windows_.push_back(group.window);
}

int64_t CacheMemory::first_seen_page(size_t group, int64_t position) const {
  const int64_t window = windows_[group];
  return window > 0 ? std::max<int64_t>(0, position - window + 1) / page_size_ : 0;
}

/// Takes references to the matched pages. A page that matches only in part is copied, because the sequence will write
/// to it. Returns false, and takes nothing, if no page is free for the copy.
bool CacheMemory::take_match(CacheLease& lease, const PrefixMatch& match) {
  for (size_t group = 0; group < windows_.size(); ++group) {
    std::vector<int32_t>& table = lease.tables[group];
    const int64_t first = first_seen_page(group, match.tokens);
    for (size_t block = 0; block < match.blocks.size(); ++block) {
      const int32_t page = static_cast<int64_t>(block) < first ? -1 : match.blocks[block]->held[group];
      if (page >= 0) tree_.hold(group, page);
      table.push_back(page);
    }
  }
  if (!match.partial) return true;
  tree_.pin(match.partial);
  for (size_t group = 0; group < windows_.size(); ++group) {
    const int32_t source = match.partial->held[group];
    int32_t copy = -1;
    if (source >= 0) {
      tree_.hold(group, source);
      copy = tree_.take(group);
      if (copy >= 0) runner_.copy_page(static_cast<int64_t>(group), source, copy);
      tree_.drop(group, source);
    }
    if (copy < 0) {
      for (size_t taken = 0; taken < windows_.size(); ++taken) {
        for (const int32_t page : lease.tables[taken]) {
          if (page >= 0) tree_.drop(taken, page);
        }
        lease.tables[taken].clear();
      }
      tree_.unpin(match.partial);
      return false;
    }
    lease.tables[group].push_back(copy);
  }
  tree_.unpin(match.partial);
  return true;
}

int64_t CacheMemory::attach(CacheLease& lease, const std::string& salt, std::span<const TokenId> tokens,
                            int64_t limit) {
  lease = {};
  lease.tables.resize(windows_.size());
  if (has_states()) {
    lease.state = tree_.take(tree_.state_resource());
    if (lease.state < 0) return -1;
  }
  lease.node = tree_.pin_root(salt);
  PrefixNode* root = lease.node;
  PrefixMatch match;
  if (prefix_cache_ && limit > 0) {
    match = tree_.find(root, tokens, limit);
    lease.shared = match.known / page_size_ * page_size_;
    if (!take_match(lease, match)) {
      match = tree_.find(root, tokens, match.tokens / page_size_ * page_size_);
      if (!take_match(lease, match)) match = {};
    }
  }
  if (has_states()) {
    const PrefixNode* last = match.partial ? match.partial : match.blocks.empty() ? nullptr : match.blocks.back();
    if (last) {
      runner_.copy_state(last->held[tree_.state_resource()], lease.state);
    } else {
      runner_.clear_state(lease.state);
    }
  }
  if (!match.blocks.empty()) {
    lease.node = match.blocks.back();
    tree_.pin(lease.node);
    tree_.unpin(root);
  }
  tree_.touch(match.partial ? match.partial : lease.node);
  return match.tokens;
}

void CacheMemory::free_unseen(CacheLease& lease, int64_t position) {
  for (size_t group = 0; group < windows_.size(); ++group) {
    std::vector<int32_t>& table = lease.tables[group];
    const int64_t end = std::min(first_seen_page(group, position), static_cast<int64_t>(table.size()));
    for (int64_t page = end; page > 0 && table[static_cast<size_t>(page - 1)] >= 0; --page) {
      tree_.drop(group, table[static_cast<size_t>(page - 1)]);
      table[static_cast<size_t>(page - 1)] = -1;
    }
  }
}

int64_t CacheMemory::reservable(const CacheLease& lease, int64_t begin, int64_t end) const {
  for (size_t group = 0; group < windows_.size(); ++group) {
    const auto held = static_cast<int64_t>(lease.tables[group].size());
    end = std::min(end, (held + tree_.available(group)) * page_size_);
  }
  return std::max(begin, end);
}

bool CacheMemory::reserve(CacheLease& lease, int64_t begin, int64_t end) {
  free_unseen(lease, begin);
  if (reservable(lease, begin, end) < end) return false;
  for (size_t group = 0; group < windows_.size(); ++group) {
    std::vector<int32_t>& table = lease.tables[group];
    while (static_cast<int64_t>(table.size()) * page_size_ < end) table.push_back(tree_.take(group));
  }
  return true;
}

int64_t CacheMemory::missing(const CacheLease& lease, size_t group, int64_t begin, int64_t end, int64_t chunk) const {
  const std::vector<int32_t>& table = lease.tables[group];
  const int64_t all = (end + page_size_ - 1) / page_size_;
  if (windows_[group] == 0) return std::max<int64_t>(0, all - static_cast<int64_t>(table.size()));
  // The most pages a window needs: its tokens and those of one step, plus a partly used page at either end.
  const int64_t most = (windows_[group] + std::min(chunk, end - begin) + page_size_ - 1) / page_size_ + 1;
  const int64_t held = std::count_if(table.begin(), table.end(), [](int32_t page) { return page >= 0; });
  return std::max<int64_t>(0, std::min(all - first_seen_page(group, begin), most) - held);
}

void CacheMemory::publish(CacheLease& lease, std::span<const TokenId> tokens, int64_t computed, bool partial) {
  if (!prefix_cache_) return;
  while (lease.node->depth + page_size_ <= computed) {
    const auto block = static_cast<size_t>(lease.node->depth / page_size_);
    PrefixNode* next = tree_.child(
        lease.node, tokens.subspan(static_cast<size_t>(lease.node->depth), static_cast<size_t>(page_size_)));
    tree_.pin(next);
    for (size_t group = 0; group < windows_.size(); ++group) {
      const int32_t page = lease.tables[group][block];
      if (page >= 0) tree_.adopt(next, group, page);
    }
    PrefixNode* previous = lease.node;
    lease.node = next;
    tree_.unpin(previous);
  }
  if (partial && lease.node->depth < computed && !windows_.empty()) partial_node(lease, tokens, computed);
}

/// The tree node of a partly filled last block, with its pages. The sequence continues to write after `computed`.
PrefixNode* CacheMemory::partial_node(CacheLease& lease, std::span<const TokenId> tokens, int64_t computed) {
  const auto begin = static_cast<size_t>(lease.node->depth);
  PrefixNode* node = tree_.child(lease.node, tokens.subspan(begin, static_cast<size_t>(computed) - begin));
  for (size_t group = 0; group < windows_.size(); ++group) {
    const int32_t page = lease.tables[group][begin / static_cast<size_t>(page_size_)];
    if (page >= 0) tree_.adopt(node, group, page);
  }
  return node;
}

void CacheMemory::snapshot(CacheLease& lease, std::span<const TokenId> tokens, int64_t computed) {
  if (!prefix_cache_ || !has_states() || computed == 0) return;
  publish(lease, tokens, computed, false);
  PrefixNode* node = lease.node->depth == computed ? lease.node : partial_node(lease, tokens, computed);
  const size_t states = tree_.state_resource();
  if (node->held[states] >= 0) return;
  tree_.pin(node);
  if (const int32_t slot = tree_.take(states); slot >= 0) {
    runner_.copy_state(lease.state, slot);
    tree_.adopt(node, states, slot);
    tree_.drop(states, slot);
  }
  tree_.unpin(node);
}

bool CacheMemory::save_state(CacheLease& lease) {
  if (!has_states()) return true;
  if (lease.saved_state < 0) lease.saved_state = tree_.take(tree_.state_resource());
  if (lease.saved_state < 0) return false;
  runner_.copy_state(lease.state, lease.saved_state);
  return true;
}

void CacheMemory::restore_state(CacheLease& lease) {
  if (has_states()) runner_.copy_state(lease.saved_state, lease.state);
}

void CacheMemory::drop_saved_state(CacheLease& lease) {
  if (lease.saved_state >= 0) tree_.drop(tree_.state_resource(), lease.saved_state);
  lease.saved_state = -1;
}

void CacheMemory::release(CacheLease& lease) {
  drop_saved_state(lease);
  for (size_t group = 0; group < windows_.size(); ++group) {
    for (const int32_t page : lease.tables[group]) {
      if (page >= 0) tree_.drop(group, page);
    }
  }
  if (lease.state >= 0) tree_.drop(tree_.state_resource(), lease.state);
  if (lease.node) {
    tree_.touch(lease.node);
    tree_.unpin(lease.node);
  }
  lease = {};
}

}  // namespace lamina::infer
