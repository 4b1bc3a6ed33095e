#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lamina/base/dtype.h"
#include "lamina/base/error.h"

namespace lamina::comm {

/// Thrown if communication failed: a rank is lost, stuck or aborted. The message names rank, host, operation and
/// update. The communicator cannot be used afterwards, and the job must be restarted.
class CommError : public Error {
 public:
  using Error::Error;
};

/// Operations of a communicator.
enum class Operation : uint32_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  exchange,
  barrier,
};
/// Names of the operations, for messages.
constexpr std::array<std::string_view, 7> names_of(Operation) {
  return {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "exchange", "barrier"};
}
constexpr std::string_view name_of(Operation operation) {  ///< name of one operation
  return names_of(operation)[static_cast<size_t>(operation)];
}

using Clock = std::chrono::steady_clock;  ///< clock for time limits

/// One call of a communicator, as a transport receives it. All ranks of a group make the same calls in the same order.
struct Call {
  Operation operation = Operation::barrier;
  std::string_view label;    ///< purpose of the call, for example "gradients"
  int64_t update = 0;        ///< number of the training update, for messages
  uint32_t group = 0;        ///< identifies the communicator within its transport
  uint64_t sequence = 0;     ///< index of this call in its group
  double seconds = 0;        ///< time limit
  Clock::time_point expiry;  ///< time at which the limit is reached
};

/// Identifies the call that sent a message. Receivers compare it with their own call.
struct CallHeader {
  uint32_t magic = 0;
  uint32_t operation = 0;
  uint32_t group = 0;
  uint32_t reserved = 0;
  uint64_t sequence = 0;
  int64_t update = 0;
  uint64_t bytes = 0;
  std::array<char, 40> label{};  ///< truncated, ends with 0
};

/// The header of a message with `bytes` bytes.
CallHeader header_of(const Call& call, uint64_t bytes);
/// Compares the header `got` of a message with what `call` expects. Returns a sentence about the difference; empty if
/// there is none.
std::string mismatch(const Call& call, const CallHeader& got, uint64_t bytes);
/// For example `all_reduce "gradients" of update 12`.
std::string describe(const Call& call);

/// A message to another rank.
struct Send {
  int to = 0;                  ///< rank in the transport
  const void* data = nullptr;  ///< valid until exchange() returns
  size_t bytes = 0;            ///< may be 0
};

/// A message from another rank.
struct Receive {
  int from = 0;          ///< rank in the transport
  void* data = nullptr;  ///< written by exchange()
  size_t bytes = 0;      ///< must equal the bytes sent
};

/// Moves bytes between ranks. Collectives are implemented once for all transports, on top of exchange(), so results are
/// bit-identical on each. May be used by only one thread at a time.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;                  ///< rank of this process or thread
  virtual int size() const = 0;                  ///< number of ranks
  virtual std::string host(int rank) const = 0;  ///< name of the machine that runs a rank
  virtual std::string_view name() const = 0;     ///< local, tcp or mpi

  /// Sends and receives all messages of a call. Messages between two ranks arrive in the order in which they were sent.
  /// If a rank is lost or the time limit is reached, throws CommError and aborts all ranks.
  virtual void exchange(const Call& call, std::span<const Send> sends, std::span<const Receive> receives) = 0;
  /// exchange() of a collective: gives `use` the addresses of the received messages, in the order of `receives`, whose
  /// `data` is ignored. They are valid until `use` returns. A transport that can reach the senders' memory copies
  /// nothing.
  virtual void exchange_in_place(const Call& call, std::span<const Send> sends, std::span<const Receive> receives,
                                 const std::function<void(std::span<const void* const> messages)>& use);
  /// The library's own sum over all ranks, in place; the library chooses the order of additions. Returns false if the
  /// transport has none.
  virtual bool library_all_reduce(const Call& /*call*/, void* /*data*/, int64_t /*count*/, DType /*dtype*/) {
    return false;
  }
  /// Why communication ended: a rank is lost or aborted. Empty while communication works.
  virtual std::string failure() const = 0;
  /// Ends all ranks: every pending and later call throws a CommError with this reason.
  virtual void abort(const std::string& reason) = 0;

 private:
  std::unique_ptr<char[]> messages_;  ///< of exchange_in_place(); kept, because fresh memory costs page faults
  size_t capacity_ = 0;               ///< bytes in messages_
};

}  // namespace lamina::comm
