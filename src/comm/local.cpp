#include "lamina/comm/local.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

namespace lamina::comm {
namespace {

/// A message in flight. The receiver reads the sender's memory.
struct Letter {
  CallHeader header;
  const void* data = nullptr;
  size_t bytes = 0;
  bool* taken = nullptr;
};

/// State shared by the threads of all ranks.
struct LocalWorld {
  explicit LocalWorld(int count) : size(count) {}
  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<Letter>> letters;  ///< by (from, to), in the order of sending
  /// Number of receivers that are reading a sender's memory.
  int reading = 0;
  std::string abort_reason;
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<LocalWorld> world, int rank, double bandwidth)
      : world_(std::move(world)), rank_(rank), bandwidth_(bandwidth) {}

  int rank() const override { return rank_; }
  int size() const override { return world_->size; }
  std::string host(int /*rank*/) const override { return "this process"; }
  std::string_view name() const override { return "local"; }

  void abort(const std::string& reason) override {
    const std::lock_guard lock(world_->mutex);
    stop(reason);
  }
  std::string failure() const override {
    const std::lock_guard lock(world_->mutex);
    return world_->abort_reason;
  }

  void exchange(const Call& call, std::span<const Send> sends, std::span<const Receive> receives) override {
    run(call, sends, [&](std::unique_lock<std::mutex>& lock) {
      for (const Receive& receive : receives) {
        const Letter letter = take(call, receive, lock);
        read({&letter, 1}, lock, [&] {
          if (letter.bytes > 0) std::memcpy(receive.data, letter.data, letter.bytes);
        });
      }
    });
  }

  void exchange_in_place(const Call& call, std::span<const Send> sends, std::span<const Receive> receives,
                         const std::function<void(std::span<const void* const> messages)>& use) override {
    run(call, sends, [&](std::unique_lock<std::mutex>& lock) {
      std::vector<Letter> letters;
      std::vector<const void*> messages;
      for (const Receive& receive : receives) {
        letters.push_back(take(call, receive, lock));
        messages.push_back(letters.back().data);
      }
      read(letters, lock, [&] { use(messages); });
    });
  }

 private:
  /// Simulates a link: sleeps as long as the messages would take with the given bandwidth.
  void pretend_link(std::span<const Send> sends) const {
    if (bandwidth_ <= 0) return;
    double bytes = 0;
    for (const Send& send : sends) bytes += static_cast<double>(send.bytes);
    std::this_thread::sleep_for(std::chrono::duration<double>(bytes / bandwidth_));
  }

  /// Requires the lock.
  void stop(const std::string& reason) {
    if (world_->abort_reason.empty()) world_->abort_reason = reason;
    world_->changed.notify_all();
  }
  void throw_if_aborted() const {
    if (!world_->abort_reason.empty()) throw CommError(world_->abort_reason);
  }

  template <class Done>
  void wait(const Call& call, int peer, std::unique_lock<std::mutex>& lock, const Done& done) {
    const auto ready = [&] { return done() || !world_->abort_reason.empty(); };
    if (!world_->changed.wait_until(lock, call.expiry, ready)) {
      stop(str("rank ", peer, " (", host(peer), ") did not reach ", describe(call), " within ", call.seconds,
               " s; rank ", rank_, " waited for it"));
    }
    throw_if_aborted();
  }

  /// Sends all messages, runs `receive`, and waits until the receivers have read what was sent.
  template <class Body>
  void run(const Call& call, std::span<const Send> sends, const Body& receive) {
    pretend_link(sends);
    const auto taken = std::make_unique<bool[]>(sends.size());
    std::unique_lock lock(world_->mutex);
    throw_if_aborted();
    for (size_t i = 0; i < sends.size(); ++i) {
      world_->letters[{rank_, sends[i].to}].push_back(
          {header_of(call, sends[i].bytes), sends[i].data, sends[i].bytes, &taken[i]});
    }
    world_->changed.notify_all();
    try {
      receive(lock);
      for (size_t i = 0; i < sends.size(); ++i) {
        wait(call, sends[i].to, lock, [&] { return taken[i]; });
      }
    } catch (...) {
      // All ranks stop. First wait for the ranks that are reading this thread's memory.
      world_->changed.wait(lock, [&] { return world_->reading == 0; });
      throw;
    }
  }

  Letter take(const Call& call, const Receive& receive, std::unique_lock<std::mutex>& lock) {
    std::deque<Letter>& box = world_->letters[{receive.from, rank_}];
    wait(call, receive.from, lock, [&] { return !box.empty(); });
    const Letter letter = box.front();
    const std::string problem = mismatch(call, letter.header, receive.bytes);
    if (!problem.empty()) {
      stop(str("rank ", receive.from, " (", host(receive.from), ") does not follow rank ", rank_, " in ",
               describe(call), ": ", problem));
      throw_if_aborted();
    }
    box.pop_front();
    return letter;
  }

  /// Runs `use`, which reads the memory of the senders of `letters`, without the lock. Then the senders may go on.
  template <class Use>
  void read(std::span<const Letter> letters, std::unique_lock<std::mutex>& lock, const Use& use) {
    ++world_->reading;
    lock.unlock();
    std::exception_ptr error;
    try {
      use();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    --world_->reading;
    for (const Letter& letter : letters) *letter.taken = true;
    world_->changed.notify_all();
    if (error) std::rethrow_exception(error);
  }

  std::shared_ptr<LocalWorld> world_;
  int rank_;
  double bandwidth_;
};

}  // namespace

void run_local_ranks(int ranks, const std::function<void(Communicator&)>& body, const LocalOptions& options) {
  LAMINA_CHECK(ranks > 0, "run_local_ranks: ", ranks, " ranks; expected at least 1");
  const auto world = std::make_shared<LocalWorld>(ranks);
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&](int rank) {
    const auto transport = std::make_shared<LocalTransport>(world, rank, options.bandwidth);
    const auto keep = [&] {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    };
    try {
      body(*make_communicator(transport, {.deadline = options.deadline}));
    } catch (const std::exception& error) {
      keep();
      transport->abort(str("rank ", rank, " (", transport->host(rank), ") failed: ", error.what()));
    } catch (...) {
      keep();
      transport->abort(str("rank ", rank, " (", transport->host(rank), ") failed"));
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < ranks; ++rank) threads.emplace_back(run, rank);
  run(0);
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

std::shared_ptr<Communicator> single_rank() {
  return make_communicator(std::make_shared<LocalTransport>(std::make_shared<LocalWorld>(1), 0, 0));
}

}  // namespace lamina::comm
