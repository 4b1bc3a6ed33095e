#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lamina/comm/transport.h"
#include "lamina/tensor/tensor.h"

namespace lamina::comm {

/// Order of additions in all_reduce and reduce_scatter.
enum class Order {
  ordered,  ///< a binary tree in rank order (ordered_sum.h): the same bits on every backend
  fast,     ///< the backend's own order; that of `ordered` if it has none
};

/// Options of one call.
struct CallOptions {
  std::string_view label = {};   ///< what the call is for; appears in messages. All ranks must give the same
  double deadline = 0;           ///< seconds until a call that waits for other ranks fails; 0: the communicator's
  Order order = Order::ordered;  ///< of sums
};

/// A message of Communicator::exchange().
struct Message {
  int peer = 0;   ///< the other rank
  Tensor tensor;  ///< contiguous; read for sends, written for receives
};

/// A group of ranks that compute together. Every collective is called by all ranks of the group, in the same order and
/// with the same label; a rank that waits longer than the deadline, or finds another call, ends all ranks with a
/// CommError. Tensors are contiguous and in host memory (of `meta` for the fake backend, also of a GPU with nccl.h).
/// Calls return when the result is there. Use a communicator, and those split from it, from one thread at a time.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;                  ///< of the caller, from 0
  virtual int size() const = 0;                  ///< number of ranks
  virtual std::string_view backend() const = 0;  ///< local, tcp, mpi, nccl or fake
  virtual std::string host(int rank) const = 0;  ///< name of the machine that runs a rank

  /// x ← the sum of x over all ranks; f32, f64, bf16 or i64. Elements of bf16 travel in bf16, are added in f32, and the
  /// sum is rounded once, whatever the order.
  virtual void all_reduce(const Tensor& x, const CallOptions& options) = 0;
  /// Sums `input` over all ranks; this rank gets its part. Rank r's part has counts[r] elements; together they are
  /// input, in rank order. Counts may differ and be 0.
  ///   input   [Σ counts], f32, f64, bf16 or i64, as in all_reduce()    output  [counts[rank]]
  virtual void reduce_scatter(const Tensor& input, const Tensor& output, const std::vector<int64_t>& counts,
                              const CallOptions& options) = 0;
  /// Concatenates the inputs of all ranks, in rank order. Rank r gives counts[r] elements of any dtype.
  ///   input   [counts[rank]]    output  [Σ counts]; input may be its own part of output
  virtual void all_gather(const Tensor& input, const Tensor& output, const std::vector<int64_t>& counts,
                          const CallOptions& options) = 0;
  /// Sends send_counts[r] elements of input to each rank r and receives receive_counts[r] from it, both in rank order.
  virtual void all_to_all(const Tensor& input, const Tensor& output, const std::vector<int64_t>& send_counts,
                          const std::vector<int64_t>& receive_counts, const CallOptions& options) = 0;
  /// x ← x of rank `root`.
  virtual void broadcast(const Tensor& x, int root, const CallOptions& options) = 0;
  /// Grouped sends and receives; all complete together, so that ranks may send to each other. Only the ranks named in
  /// messages take part.
  virtual void exchange(const std::vector<Message>& sends, const std::vector<Message>& receives,
                        const CallOptions& options) = 0;
  /// Returns once all ranks have called it.
  virtual void barrier(const CallOptions& options) = 0;

  /// The group of the ranks with this rank's color, in rank order. colors[r] is the color of rank r: a layout is known
  /// to all ranks, so no communication is needed. All ranks call it with the same colors.
  virtual std::shared_ptr<Communicator> split(const std::vector<int>& colors) = 0;
  /// Ends all ranks: their pending and later calls throw CommError with this reason.
  virtual void abort(const std::string& reason) = 0;
  /// Why communication ended: a rank is lost or aborted. Empty while all is well.
  virtual std::string failure() const = 0;
  /// Number of the training update, for messages.
  virtual void set_update(int64_t update) = 0;

 protected:
  Communicator() = default;
};

/// Defaults of a communicator.
struct CommunicatorOptions {
  double deadline = 600;  ///< seconds; of calls that give none
};

/// The communicator of all ranks of a transport.
std::shared_ptr<Communicator> make_communicator(std::shared_ptr<Transport> transport,
                                                const CommunicatorOptions& options = {});

/// The values of all ranks, concatenated in rank order. Every rank gives equally many.
std::vector<double> gather(Communicator& communicator, const std::vector<double>& values, std::string_view label);
/// The text of rank `root`, on every rank. `deadline` as in CallOptions.
std::string broadcast_text(Communicator& communicator, const std::string& text, int root, std::string_view label,
                           double deadline = 0);

}  // namespace lamina::comm
