#include "lamina/infer/engine/prefix_tree.h"

namespace lamina::infer {
namespace {

int64_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t limit = std::min(a.size(), b.size());
  size_t count = 0;
  while (count < limit && a[count] == b[count]) ++count;
  return static_cast<int64_t>(count);
}

/// The child that shares the most tokens with `block`, and the number of shared tokens.
std::pair<PrefixNode*, int64_t> nearest_child(const PrefixNode& node, std::span<const TokenId> block) {
  auto next = node.children.lower_bound(block);
  std::pair<PrefixNode*, int64_t> best{nullptr, 0};
  if (next != node.children.end()) best = {next->second.get(), common_prefix(next->first, block)};
  if (next != node.children.begin()) {
    --next;
    const int64_t common = common_prefix(next->first, block);
    if (common > best.second) best = {next->second.get(), common};
  }
  return best.second > 0 ? best : std::pair<PrefixNode*, int64_t>{nullptr, 0};
}

}  // namespace

PrefixTree::PrefixTree(const CacheShape& shape) : page_size_(shape.page_size) {
  for (const CacheGroup& group : shape.groups) {
    windows_.push_back(group.window);
    pools_.emplace_back(group.pages);
  }
  if (shape.state_slots > 0) pools_.emplace_back(shape.state_slots);
  for (const PagePool& pool : pools_) owners_.emplace_back(static_cast<size_t>(pool.size()), nullptr);
  evictable_.resize(pools_.size());
}

int32_t PrefixTree::take(size_t resource) {
  if (pools_[resource].free() == 0 && !evict(resource)) return -1;
  return pools_[resource].take();
}

void PrefixTree::hold(size_t resource, int32_t page) {
  PrefixNode* owner = owners_[resource][static_cast<size_t>(page)];
  if (owner && pools_[resource].refs(page) == 1) evictable_[resource].erase(entry(owner));
  pools_[resource].add_ref(page);
}

void PrefixTree::drop(size_t resource, int32_t page) {
  pools_[resource].drop_ref(page);
  PrefixNode* owner = owners_[resource][static_cast<size_t>(page)];
  if (owner && pools_[resource].refs(page) == 1) evictable_[resource].insert(entry(owner));
}

PrefixNode* PrefixTree::pin_root(const std::string& salt) {
  std::unique_ptr<PrefixNode>& root = roots_[salt];
  if (!root) {
    root = std::make_unique<PrefixNode>();
    root->id = next_id_++;
    root->held.assign(pools_.size(), -1);
  }
  pin(root.get());
  return root.get();
}

void PrefixTree::unpin(PrefixNode* node) {
  --node->pins;
  remove_if_empty(node);
}

bool PrefixTree::servable(const PrefixMatch& match, int64_t tokens, const PrefixNode* partial) const {
  const auto holds = [&](int64_t block, size_t resource) {
    const auto index = static_cast<size_t>(block);
    const PrefixNode* node = index < match.blocks.size() ? match.blocks[index] : partial;
    return node->held[resource] >= 0;
  };
  const int64_t last = (tokens - 1) / page_size_;
  for (size_t group = 0; group < windows_.size(); ++group) {
    // The next query is at position `tokens` and attends to positions above tokens − window.
    const int64_t oldest = windows_[group] > 0 ? std::max<int64_t>(0, tokens - windows_[group] + 1) : 0;
    if (oldest >= tokens) continue;
    for (int64_t block = last; block >= oldest / page_size_; --block) {
      if (!holds(block, group)) return false;
    }
  }
  if (!has_states()) return true;
  if (partial && partial->depth != tokens) return false;
  return holds(last, state_resource());
}

PrefixMatch PrefixTree::find(PrefixNode* root, std::span<const TokenId> tokens, int64_t limit) const {
  PrefixMatch match;
  limit = std::min(limit, static_cast<int64_t>(tokens.size()));
  PrefixNode* node = root;
  std::pair<PrefixNode*, int64_t> partial{nullptr, 0};
  while (node->depth < limit) {
    const auto rest = tokens.subspan(static_cast<size_t>(node->depth),
                                     static_cast<size_t>(std::min(page_size_, limit - node->depth)));
    const auto [next, common] = nearest_child(*node, rest);
    if (common < page_size_) {
      partial = {next, common};
      break;
    }
    match.blocks.push_back(next);
    node = next;
  }
  match.known = node->depth + partial.second;
  if (partial.first && servable(match, match.known, partial.first)) {
    match.partial = partial.first;
    match.tokens = match.known;
    return match;
  }
  for (; !match.blocks.empty(); match.blocks.pop_back()) {
    match.tokens = match.blocks.back()->depth;
    if (servable(match, match.tokens, nullptr)) return match;
  }
  match.tokens = 0;
  return match;
}

PrefixNode* PrefixTree::child(PrefixNode* node, std::span<const TokenId> block) {
  if (const auto found = node->children.find(block); found != node->children.end()) return found->second.get();
  auto made = std::make_unique<PrefixNode>();
  made->id = next_id_++;
  made->parent = node;
  made->depth = node->depth + static_cast<int64_t>(block.size());
  made->block.assign(block.begin(), block.end());
  made->held.assign(pools_.size(), -1);
  made->used = ++time_;
  PrefixNode* result = made.get();
  node->children.emplace(std::span<const TokenId>(result->block), std::move(made));
  return result;
}

void PrefixTree::adopt(PrefixNode* node, size_t resource, int32_t page) {
  if (node->held[resource] >= 0) return;
  // If the page was published partly filled, it moves to the node of its longer block.
  PrefixNode* owner = owners_[resource][static_cast<size_t>(page)];
  if (owner) forget(owner, resource);
  hold(resource, page);
  node->held[resource] = page;
  owners_[resource][static_cast<size_t>(page)] = node;
  if (owner) remove_if_empty(owner);
}

void PrefixTree::touch(PrefixNode* node) {
  ++time_;
  for (; node; node = node->parent) {
    for (size_t resource = 0; resource < pools_.size(); ++resource) {
      if (node->held[resource] >= 0) evictable_[resource].erase(entry(node));
    }
    node->used = time_;
    for (size_t resource = 0; resource < pools_.size(); ++resource) {
      const int32_t page = node->held[resource];
      if (page >= 0 && pools_[resource].refs(page) == 1) evictable_[resource].insert(entry(node));
    }
  }
}

void PrefixTree::clear() {
  for (size_t resource = 0; resource < pools_.size(); ++resource) {
    while (evict(resource)) {
    }
  }
}

bool PrefixTree::evict(size_t resource) {
  if (evictable_[resource].empty()) return false;
  PrefixNode* node = std::get<PrefixNode*>(*evictable_[resource].begin());
  ++evictions_;
  forget(node, resource);
  remove_if_empty(node);
  return true;
}

/// Drops the tree's reference to a node's page.
void PrefixTree::forget(PrefixNode* node, size_t resource) {
  const int32_t page = node->held[resource];
  if (pools_[resource].refs(page) == 1) evictable_[resource].erase(entry(node));
  owners_[resource][static_cast<size_t>(page)] = nullptr;
  node->held[resource] = -1;
  pools_[resource].drop_ref(page);
}

void PrefixTree::remove_if_empty(PrefixNode* node) {
  while (node && node->pins == 0 && node->children.empty() &&
         std::all_of(node->held.begin(), node->held.end(), [](int32_t page) { return page < 0; })) {
    PrefixNode* parent = node->parent;
    if (parent) {
      parent->children.erase(std::span<const TokenId>(node->block));
    } else {
      std::erase_if(roots_, [&](const auto& root) { return root.second.get() == node; });
    }
    node = parent;
  }
}

}  // namespace lamina::infer
