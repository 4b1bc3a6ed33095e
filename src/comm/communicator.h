#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lamina/comm/transport.h"
#include "lamina/tensor/tensor.h"

namespace lamina::comm {

/// Order of the additions in all_reduce and reduce_scatter.
enum class Order {
  ordered,  ///< a binary tree in rank order (ordered_sum.h); bit-identical on every backend
  fast,     ///< the backend's own order, or `ordered` if it has none
};

/// Options of a call.
struct CallOptions {
  std::string_view label = {};   ///< purpose of the call, for messages; must be the same on all ranks
  double deadline = 0;           ///< time limit in seconds for waiting on other ranks; 0: the communicator's default
  Order order = Order::ordered;  ///< order of additions
};

/// A message of Communicator::exchange().
struct Message {
  int peer = 0;   ///< the other rank
  Tensor tensor;  ///< contiguous; read for sends, written for receives
};

/// A group of ranks that compute together. All ranks of the group must call every collective, in the same order and
/// with the same label. If a rank waits longer than the deadline, or finds that another rank makes a different call,
/// all ranks end with a CommError. Tensors must be contiguous and in host memory; with nccl.h they may also be on a
/// GPU, and the fake backend takes `meta` tensors. Calls return when the result is available. A communicator, and those
/// split from it, may be used by only one thread at a time.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;                  ///< rank of the caller, from 0
  virtual int size() const = 0;                  ///< number of ranks
  virtual std::string_view backend() const = 0;  ///< local, tcp, mpi, nccl or fake
  virtual std::string host(int rank) const = 0;  ///< name of the machine that runs a rank

  /// x ← the sum of x over all ranks. x is f32, f64, bf16 or i64. bf16 elements are sent as bf16 and added in f32, and
  /// the sum is rounded once, regardless of the order.
  virtual void all_reduce(const Tensor& x, const CallOptions& options) = 0;
  /// Sums `input` over all ranks and gives each rank its part of the sum. Rank r's part has counts[r] elements,
  /// possibly 0; the parts in rank order make up input.
  ///   input   [Σ counts], f32, f64, bf16 or i64, as in all_reduce()    output  [counts[rank]]
  virtual void reduce_scatter(const Tensor& input, const Tensor& output, const std::vector<int64_t>& counts,
                              const CallOptions& options) = 0;
  /// Concatenates the inputs of all ranks in rank order. Rank r contributes counts[r] elements of any dtype.
  ///   input   [counts[rank]]    output  [Σ counts]; input may be its own part of output
  virtual void all_gather(const Tensor& input, const Tensor& output, const std::vector<int64_t>& counts,
                          const CallOptions& options) = 0;
  /// Sends send_counts[r] elements of input to each rank r, and receives receive_counts[r] from it. Both are in rank
  /// order.
  virtual void all_to_all(const Tensor& input, const Tensor& output, const std::vector<int64_t>& send_counts,
                          const std::vector<int64_t>& receive_counts, const CallOptions& options) = 0;
  /// x ← x of rank `root`, on every rank.
  virtual void broadcast(const Tensor& x, int root, const CallOptions& options) = 0;
  /// Grouped sends and receives. All complete together, so ranks may send to each other. Only the ranks named in
  /// messages take part.
  virtual void exchange(const std::vector<Message>& sends, const std::vector<Message>& receives,
                        const CallOptions& options) = 0;
  /// Returns when all ranks have called it.
  virtual void barrier(const CallOptions& options) = 0;

  /// The group of ranks with this rank's color, in rank order. colors[r] is the color of rank r. All ranks must pass
  /// the same colors, so no communication is needed.
  virtual std::shared_ptr<Communicator> split(const std::vector<int>& colors) = 0;
  /// Ends all ranks: their pending and later calls throw a CommError with this reason.
  virtual void abort(const std::string& reason) = 0;
  /// Why communication ended: a rank is lost or aborted. Empty while communication works.
  virtual std::string failure() const = 0;
  /// Sets the number of the training update, for messages.
  virtual void set_update(int64_t update) = 0;

 protected:
  Communicator() = default;
};

/// Default options of a communicator.
struct CommunicatorOptions {
  double deadline = 600;  ///< time limit in seconds for calls that give none
};

/// The communicator of all ranks of a transport.
std::shared_ptr<Communicator> make_communicator(std::shared_ptr<Transport> transport,
                                                const CommunicatorOptions& options = {});

/// Concatenates the values of all ranks in rank order. Every rank must give the same number of values. `deadline`: see
/// CallOptions.
std::vector<double> gather(Communicator& communicator, const std::vector<double>& values, std::string_view label,
                           double deadline = 0);
/// Returns the text of rank `root` on every rank.
std::string broadcast_text(Communicator& communicator, const std::string& text, int root, std::string_view label,
                           double deadline = 0);

}  // namespace lamina::comm
