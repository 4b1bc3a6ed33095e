#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lamina/infer/engine/answer.h"

namespace lamina::infer {

/// Answers that wait for admission. The highest priority goes first. Within a priority, clients take turns by deficit
/// round robin (Shreedhar and Varghese 1995), counted in tokens: a client is served while it has credit, every computed
/// token costs one, and each round gives `quantum` tokens to every waiting client. Answers of one client are first in,
/// first out.
class FairQueue {
 public:
  explicit FairQueue(int64_t quantum) : quantum_(quantum) {}

  void push_back(std::shared_ptr<Answer> answer);
  /// Queues a preempted answer in front of its client's others.
  void push_front(std::shared_ptr<Answer> answer);
  /// The next answer, or null if none waits. It stays in the queue.
  std::shared_ptr<Answer> next();
  /// Removes an answer. Returns false if it was not waiting.
  bool remove(const Answer& answer);
  /// Subtracts tokens from a client's credit.
  void charge(const std::string& client, int64_t tokens);
  int64_t size() const { return size_; }
  std::vector<std::shared_ptr<Answer>> all() const;

 private:
  struct Client {
    int64_t credit = 0;
    std::map<int, std::deque<std::shared_ptr<Answer>>, std::greater<>> waiting;  ///< by priority
  };
  using Clients = std::map<std::string, Client>;

  void begin_round(int priority);

  int64_t quantum_;
  Clients clients_;
  std::string turn_;  ///< the client being served, or the one before the next
  int64_t size_ = 0;
};

}  // namespace lamina::infer
