#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lamina/base/dtype.h"
#include "lamina/base/error.h"

namespace lamina::comm {

/// Thrown if communication failed: a rank is lost, stuck or aborted. The message names rank, host, operation and
/// update. The communicator cannot be used afterwards; the job must be restarted.
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
/// Names of the operations, as messages write them.
constexpr std::array<std::string_view, 7> names_of(Operation) {
  return {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "exchange", "barrier"};
}
constexpr std::string_view name_of(Operation operation) {  ///< name of one operation
  return names_of(operation)[static_cast<size_t>(operation)];
}

using Clock = std::chrono::steady_clock;  ///< clock of deadlines

/// One call of a communicator, as transports see it. All ranks of a group make the same calls in the same order.
struct Call {
  Operation operation = Operation::barrier;
  std::string_view label;    ///< what the call is for, e.g. "gradients"
  int64_t update = 0;        ///< number of the training update, for messages
  uint32_t group = 0;        ///< identifies the communicator within its transport
  uint64_t sequence = 0;     ///< number of this call in its group
  double seconds = 0;        ///< time limit
  Clock::time_point expiry;  ///< when the time limit ends
};

/// Describes the call that sent a message. Receivers compare it with their own call.
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

/// The header of a message of `bytes` bytes.
CallHeader header_of(const Call& call, uint64_t bytes);
/// Empty if a message with header `got` is what `call` expects from `from`; else a sentence about the difference.
std::string mismatch(const Call& call, const CallHeader& got, uint64_t bytes);
/// `all_reduce "gradients" of update 12`.
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

/// Moves bytes between ranks. Collectives are built on exchange() once for all transports, so that they give the same
/// bits on each. Used by one thread at a time.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;                  ///< of this process or thread
  virtual int size() const = 0;                  ///< number of ranks
  virtual std::string host(int rank) const = 0;  ///< name of the machine that runs a rank
  virtual std::string_view name() const = 0;     ///< local, tcp or mpi

  /// Sends and receives all messages of one call. Messages between two ranks arrive in the order they were sent. Throws
  /// CommError and aborts all ranks if a rank is lost or the time limit ends.
  virtual void exchange(const Call& call, std::span<const Send> sends, std::span<const Receive> receives) = 0;
  /// The library's own sum over all ranks, in place; its order of additions is up to the library. False: there is none.
  virtual bool library_all_reduce(const Call& /*call*/, void* /*data*/, int64_t /*count*/, DType /*dtype*/) {
    return false;
  }
  /// Why communication ended: a rank is lost or aborted. Empty while all is well.
  virtual std::string failure() const = 0;
  /// Ends all ranks: every pending and later call throws CommError with this reason.
  virtual void abort(const std::string& reason) = 0;
};

}  // namespace lamina::comm
