#pragma once

#include <map>

#include "lamina/comm/communicator.h"

namespace lamina::comm {

/// A communicator in a FakeWorld.
struct FakeGroup {
  std::string name;          ///< unique name: the splits that created the group
  std::vector<int> members;  ///< world ranks, ascending
};

/// One call of a rank in a FakeWorld.
struct FakeCall {
  Operation operation = Operation::barrier;
  std::string label;
  std::shared_ptr<const FakeGroup> group;
  std::vector<int64_t> signature;  ///< values that must agree between ranks: element counts, dtype, root
  int64_t sent_bytes = 0;          ///< bytes that this rank sends
  std::vector<int> sends;          ///< only for exchange: world ranks that receive a message
  std::vector<int> receives;       ///< only for exchange: world ranks from which a message is expected
};

/// The number of calls of a rank, and the bytes it sends.
struct Traffic {
  int64_t calls = 0;
  int64_t bytes = 0;
};

/// Simulates a program of many ranks without moving data. Run the program once for each rank, on meta tensors, with
/// that rank's communicator. Calls are recorded; check() then verifies that they fit together.
class FakeWorld {
 public:
  explicit FakeWorld(int size);  ///< number of ranks
  /// The communicator of a rank. It records into this world, and keeps it alive.
  std::shared_ptr<Communicator> communicator(int rank);

  /// Copies the calls of rank `from` to rank `to`. The members of their groups are shifted by to − from; a group that
  /// has both ranks stays the same. Ranks along one axis of a layout make the same calls, so only one of them needs to
  /// be simulated.
  void repeat(int from, int to);

  const std::vector<FakeCall>& calls(int rank) const;  ///< calls of a rank, in order
  /// Number of calls and sent bytes of a rank, by label ("" for calls without one).
  std::map<std::string, Traffic> traffic(int rank) const;
  /// Throws an Error if the recorded calls of all ranks would not complete: two ranks of a group make different calls,
  /// a message is not received, or ranks wait for each other (deadlock). The message names the ranks and calls.
  void check() const;

 private:
  struct State;
  friend class FakeCommunicator;
  std::shared_ptr<State> state_;
};

}  // namespace lamina::comm
