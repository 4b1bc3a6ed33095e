#include "lamina/infer/engine/fair_queue.h"

#include <algorithm>

namespace lamina::infer {

void FairQueue::push_back(std::shared_ptr<Answer> answer) {
  Client& client = clients_[answer->request().client];
  client.waiting[answer->request().priority].push_back(std::move(answer));
  ++size_;
}

void FairQueue::push_front(std::shared_ptr<Answer> answer) {
  Client& client = clients_[answer->request().client];
  client.waiting[answer->request().priority].push_front(std::move(answer));
  ++size_;
}

/// Gives rounds of quanta until a client that waits at `priority` has credit. Clients that do not wait cannot collect
/// credit; they only pay off debt.
void FairQueue::begin_round(int priority) {
  int64_t rounds = INT64_MAX;
  for (const auto& [name, client] : clients_) {
    if (client.waiting.contains(priority)) rounds = std::min(rounds, (-client.credit) / quantum_ + 1);
  }
  for (auto& [name, client] : clients_) {
    client.credit += rounds * quantum_;
    if (client.waiting.empty()) client.credit = std::min<int64_t>(client.credit, 0);
  }
  std::erase_if(clients_, [](const auto& entry) { return entry.second.waiting.empty() && entry.second.credit == 0; });
}

std::shared_ptr<Answer> FairQueue::next() {
  if (size_ == 0) return nullptr;
  int priority = INT32_MIN;
  for (const auto& [name, client] : clients_) {
    if (!client.waiting.empty()) priority = std::max(priority, client.waiting.begin()->first);
  }
  const auto serves = [&](const Client& client) { return client.credit > 0 && client.waiting.contains(priority); };
  for (int attempt = 0; attempt < 2; ++attempt) {
    // Start with the client whose turn it is and go around the ring.
    auto client = clients_.lower_bound(turn_);
    for (size_t i = 0; i < clients_.size(); ++i, ++client) {
      if (client == clients_.end()) client = clients_.begin();
      if (!serves(client->second)) continue;
      turn_ = client->first;
      return client->second.waiting[priority].front();
    }
    begin_round(priority);
  }
  return nullptr;
}

bool FairQueue::remove(const Answer& answer) {
  const auto client = clients_.find(answer.request().client);
  if (client == clients_.end()) return false;
  auto& waiting = client->second.waiting;
  const auto queue = waiting.find(answer.request().priority);
  if (queue == waiting.end()) return false;
  const auto found = std::find_if(queue->second.begin(), queue->second.end(),
                                  [&](const auto& other) { return other.get() == &answer; });
  if (found == queue->second.end()) return false;
  queue->second.erase(found);
  if (queue->second.empty()) waiting.erase(queue);
  --size_;
  return true;
}

void FairQueue::charge(const std::string& client, int64_t tokens) {
  if (size_ == 0) {  // nobody waits: forget all credit and debt
    clients_.clear();
  } else {
    clients_[client].credit -= tokens;
  }
}

std::vector<std::shared_ptr<Answer>> FairQueue::all() const {
  std::vector<std::shared_ptr<Answer>> result;
  for (const auto& [name, client] : clients_) {
    for (const auto& [priority, queue] : client.waiting) result.insert(result.end(), queue.begin(), queue.end());
  }
  return result;
}

}  // namespace lamina::infer
