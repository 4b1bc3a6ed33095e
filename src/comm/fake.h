#pragma once

#include <map>

#include "lamina/comm/communicator.h"

namespace lamina::comm {

/// A communicator of a FakeWorld.
struct FakeGroup {
  std::string name;          ///< identifies it: the path of splits that made it
  std::vector<int> members;  ///< world ranks, ascending
};

/// One call of a rank in a FakeWorld.
struct FakeCall {
  Operation operation = Operation::barrier;
  std::string label;
  std::shared_ptr<const FakeGroup> group;
  std::vector<int64_t> signature;  ///< what must agree between ranks: element counts, dtype, root
  int64_t sent_bytes = 0;          ///< by this rank
  std::vector<int> sends;          ///< exchange only: world ranks that receive a message
  std::vector<int> receives;       ///< exchange only: world ranks that a message is expected from
};

/// Bytes that a rank sends, and its number of calls.
struct Traffic {
  int64_t calls = 0;
  int64_t bytes = 0;
};

/// Rehearses a program of many ranks without moving a byte: run it once for each rank, on meta tensors, with that
/// rank's communicator. Calls are recorded. check() then verifies that they fit together.
class FakeWorld {
 public:
  explicit FakeWorld(int size);  ///< number of ranks
  /// The communicator of a rank. It records into this world and keeps it alive.
  std::shared_ptr<Communicator> communicator(int rank);

  /// Records for rank `to` the calls of rank `from`, in groups whose members are shifted by to − from, or in the same
  /// group if it has both ranks. For ranks along one axis of a layout, which make the same calls: one of them is
  /// rehearsed for all.
  void repeat(int from, int to);

  const std::vector<FakeCall>& calls(int rank) const;  ///< of a rank, in order
  /// Calls and sent bytes of a rank, by label ("" for calls without label).
  std::map<std::string, Traffic> traffic(int rank) const;
  /// Throws Error if the recorded calls of all ranks would not complete: two ranks of a group make different calls, a
  /// message is not received, or ranks wait for each other in a circle. The message names the ranks and calls.
  void check() const;

 private:
  struct State;
  friend class FakeCommunicator;
  std::shared_ptr<State> state_;
};

}  // namespace lamina::comm
