#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lamina/infer/engine/answer.h"

namespace lamina::infer {

/// Answers that wait for admission. The highest priority goes first. Within a priority, clients take turns by deficit
/// round robin (Shreedhar and Varghese 1995) in tokens: a client is served while it has credit, every computed token
/// costs one, and a round gives each waiting client `quantum` tokens. Answers of one client are first in, first out.
class FairQueue {
 public:
  explicit FairQueue(int64_t quantum) : quantum_(quantum) {}

  void push_back(std::shared_ptr<Answer> answer);
  /// For a preempted answer: it keeps its turn.
  void push_front(std::shared_ptr<Answer> answer);
  /// The next answer, or null. Stays in the queue.
  std::shared_ptr<Answer> next();
  /// Removes an answer if it is waiting; returns whether it was.
  bool remove(const Answer& answer);
  /// Takes tokens from a client's credit.
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
  std::string turn_;  ///< the client that is served, or the one before the next
  int64_t size_ = 0;
};

}  // namespace lamina::infer
