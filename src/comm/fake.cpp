#include "lamina/comm/fake.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lamina/comm/checks.h"

namespace lamina::comm {

struct FakeWorld::State {
  std::vector<std::vector<FakeCall>> calls;  ///< per rank
  std::string abort_reason;
};

/// Records calls. The sent bytes are those of the algorithms of the other backends (communicator.cpp).
class FakeCommunicator final : public Communicator {
 public:
  FakeCommunicator(std::shared_ptr<FakeWorld::State> state, std::vector<int> members, int rank, std::string name)
      : state_(std::move(state)),
        group_(std::make_shared<FakeGroup>(FakeGroup{std::move(name), std::move(members)})),
        rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->members.size()); }
  std::string_view backend() const override { return "fake"; }
  std::string host(int /*rank*/) const override { return "nowhere"; }
  void abort(const std::string& reason) override { state_->abort_reason = reason; }
  std::string failure() const override { return state_->abort_reason; }
  void set_update(int64_t /*update*/) override {}

  void all_reduce(const Tensor& x, const CallOptions& options) override {
    check(Operation::all_reduce, x);
    check_sum(Operation::all_reduce, x);
    add(Operation::all_reduce, options, {x.numel(), kind(x)}, 2 * others(x.nbytes()) / size());
  }
  void reduce_scatter(const Tensor& input, const Tensor& output, const std::vector<int64_t>& counts,
                      const CallOptions& options) override {
    check(Operation::reduce_scatter, input);
    check(Operation::reduce_scatter, output);
    check_sum(Operation::reduce_scatter, input);
    check_counts(Operation::reduce_scatter, counts, rank_, size(), input, output);
    add(Operation::reduce_scatter, options, signed_counts(counts, input), input.nbytes() - output.nbytes());
  }
  void all_gather(const Tensor& input, const Tensor& output, const std::vector<int64_t>& counts,
                  const CallOptions& options) override {
    check(Operation::all_gather, input);
    check(Operation::all_gather, output);
    check_counts(Operation::all_gather, counts, rank_, size(), output, input);
    add(Operation::all_gather, options, signed_counts(counts, input), others(input.nbytes()));
  }
  void all_to_all(const Tensor& input, const Tensor& output, const std::vector<int64_t>& send_counts,
                  const std::vector<int64_t>& receive_counts, const CallOptions& options) override {
    check(Operation::all_to_all, input);
    check(Operation::all_to_all, output);
    check_counts(Operation::all_to_all, send_counts, rank_, size(), input, slice_of(input, send_counts));
    check_counts(Operation::all_to_all, receive_counts, rank_, size(), output, slice_of(output, receive_counts));
    const int64_t kept = send_counts[static_cast<size_t>(rank_)] * static_cast<int64_t>(size_of(input.dtype()));
    add(Operation::all_to_all, options, {kind(input)}, input.nbytes() - kept);
  }
  void broadcast(const Tensor& x, int root, const CallOptions& options) override {
    check(Operation::broadcast, x);
    check_peer(Operation::broadcast, root, size());
    add(Operation::broadcast, options, {x.numel(), kind(x), root}, rank_ == root ? others(x.nbytes()) : 0);
  }
  void exchange(const std::vector<Message>& sends, const std::vector<Message>& receives,
                const CallOptions& options) override {
    int64_t bytes = 0;
    for (const Message& message : sends) bytes += message.tensor.nbytes();
    FakeCall& call = add(Operation::exchange, options, {}, bytes);
    for (const Message& message : sends) call.sends.push_back(peer(message));
    for (const Message& message : receives) call.receives.push_back(peer(message));
  }
  void barrier(const CallOptions& options) override { add(Operation::barrier, options, {}, 0); }

  std::shared_ptr<Communicator> split(const std::vector<int>& colors) override {
    check_colors(colors, size());
    const int own = colors[static_cast<size_t>(rank_)];
    std::vector<int> members;
    int rank = 0;
    for (size_t r = 0; r < colors.size(); ++r) {
      if (colors[r] != own) continue;
      if (static_cast<int>(r) == rank_) rank = static_cast<int>(members.size());
      members.push_back(group_->members[r]);
    }
    return std::make_shared<FakeCommunicator>(state_, std::move(members), rank,
                                              str(group_->name, "/", ++splits_, ":", own));
  }

 private:
  void check(Operation operation, const Tensor& x) const { check_tensor(operation, x, true); }
  int64_t others(int64_t bytes) const { return bytes * (size() - 1); }
  static int64_t kind(const Tensor& x) { return static_cast<int64_t>(x.dtype()); }
  static std::vector<int64_t> signed_counts(std::vector<int64_t> counts, const Tensor& x) {
    counts.push_back(kind(x));
    return counts;
  }
  Tensor slice_of(const Tensor& x, const std::vector<int64_t>& counts) const {
    LAMINA_CHECK(counts.size() == group_->members.size(), "all_to_all: ", counts.size(), " counts for ", size(),
                 " ranks; give one for each");
    return x.reshape({x.numel()}).slice(0, 0, counts[static_cast<size_t>(rank_)]);
  }
  int peer(const Message& message) const {
    check(Operation::exchange, message.tensor);
    check_peer(Operation::exchange, message.peer, size());
    return group_->members[static_cast<size_t>(message.peer)];
  }

  FakeCall& add(Operation operation, const CallOptions& options, std::vector<int64_t> signature, int64_t bytes) {
    if (!state_->abort_reason.empty()) throw CommError(state_->abort_reason);
    auto& calls = state_->calls[static_cast<size_t>(group_->members[static_cast<size_t>(rank_)])];
    calls.push_back(
        {operation, std::string(options.label), group_, std::move(signature), size() > 1 ? bytes : 0, {}, {}});
    return calls.back();
  }

  std::shared_ptr<FakeWorld::State> state_;
  std::shared_ptr<const FakeGroup> group_;
  int rank_;
  int splits_ = 0;
};

FakeWorld::FakeWorld(int size) : state_(std::make_shared<State>()) {
  LAMINA_CHECK(size > 0, "FakeWorld: ", size, " ranks; expected at least 1");
  state_->calls.resize(static_cast<size_t>(size));
}

std::shared_ptr<Communicator> FakeWorld::communicator(int rank) {
  check_peer(Operation::barrier, rank, static_cast<int>(state_->calls.size()));
  std::vector<int> members(state_->calls.size());
  std::iota(members.begin(), members.end(), 0);
  return std::make_shared<FakeCommunicator>(state_, std::move(members), rank, "world");
}

void FakeWorld::repeat(int from, int to) {
  const int shift = to - from;
  std::map<const FakeGroup*, std::shared_ptr<const FakeGroup>> groups;
  const auto moved = [&](const std::shared_ptr<const FakeGroup>& group) {
    std::shared_ptr<const FakeGroup>& found = groups[group.get()];
    if (found) return found;
    const std::vector<int>& members = group->members;
    if (std::binary_search(members.begin(), members.end(), to)) return found = group;
    FakeGroup own{"", members};
    for (int& member : own.members) member += shift;
    // All ranks of the copy compute the same name: that of the copied group, and the copy's first member.
    own.name = str(group->name, " of rank ", own.members[0]);
    return found = std::make_shared<FakeGroup>(std::move(own));
  };
  const auto& calls = state_->calls;
  std::vector<FakeCall> repeated;
  repeated.reserve(calls.at(static_cast<size_t>(from)).size());
  for (FakeCall call : calls.at(static_cast<size_t>(from))) {
    call.group = moved(call.group);
    for (int& peer : call.sends) peer += shift;
    for (int& peer : call.receives) peer += shift;
    repeated.push_back(std::move(call));
  }
  state_->calls.at(static_cast<size_t>(to)) = std::move(repeated);
}

const std::vector<FakeCall>& FakeWorld::calls(int rank) const { return state_->calls.at(static_cast<size_t>(rank)); }

std::map<std::string, Traffic> FakeWorld::traffic(int rank) const {
  std::map<std::string, Traffic> result;
  for (const FakeCall& call : calls(rank)) {
    Traffic& traffic = result[call.label];
    ++traffic.calls;
    traffic.bytes += call.sent_bytes;
  }
  return result;
}

namespace {

std::string described(const FakeCall& call) {
  return str(name_of(call.operation), call.label.empty() ? "" : " \"" + call.label + "\"", " of group ",
             call.group->name);
}

/// Replays the recorded calls. A collective completes when all members have reached it. An exchange completes when all
/// its messages have met their counterparts.
class Replayer {
 public:
  explicit Replayer(const std::vector<std::vector<FakeCall>>& calls)
      : calls_(calls), next_(calls.size()), missing_(calls.size()) {}

  void run() {
    for (size_t rank = 0; rank < calls_.size(); ++rank) ready_.push_back(static_cast<int>(rank));
    while (!ready_.empty()) {
      const int rank = ready_.back();
      ready_.pop_back();
      arrive(rank);
    }
    for (size_t rank = 0; rank < calls_.size(); ++rank) {
      if (next_[rank] < calls_[rank].size()) report(static_cast<int>(rank));
    }
  }

 private:
  const FakeCall& current(int rank) const {
    return calls_[static_cast<size_t>(rank)][next_[static_cast<size_t>(rank)]];
  }

  void arrive(int rank) {
    if (next_[static_cast<size_t>(rank)] >= calls_[static_cast<size_t>(rank)].size()) return;
    const FakeCall& call = current(rank);
    call.operation == Operation::exchange ? arrive_at_exchange(rank, call) : arrive_at_collective(rank, call);
  }

  void leave(int rank) {
    ++next_[static_cast<size_t>(rank)];
    ready_.push_back(rank);
  }

  void arrive_at_collective(int rank, const FakeCall& call) {
    std::vector<int>& here = waiting_[call.group->name];
    if (!here.empty()) {
      const FakeCall& first = current(here.front());
      LAMINA_CHECK(first.operation == call.operation && first.label == call.label && first.signature == call.signature,
                   "ranks ", here.front(), " and ", rank, " do not agree: ", described(first), " with sizes ",
                   sizes(first), " and ", described(call), " with sizes ", sizes(call),
                   "; all ranks must make the same calls in the same order");
    }
    here.push_back(rank);
    if (here.size() < call.group->members.size()) return;
    const std::vector<int> all = std::exchange(here, {});
    for (const int member : all) leave(member);
  }

  /// Messages between two ranks are matched in order. `posted_` counts unmatched sends (positive) or receives
  /// (negative).
  void arrive_at_exchange(int rank, const FakeCall& call) {
    int& missing = missing_[static_cast<size_t>(rank)];
    missing = static_cast<int>(call.sends.size() + call.receives.size());
    const auto meet = [&](int from, int to, int sign, int peer) {
      int& posted = posted_[{from, to}];
      if (posted * sign < 0) {
        --missing;
        if (--missing_[static_cast<size_t>(peer)] == 0) leave(peer);
      }
      posted += sign;
    };
    for (const int to : call.sends) meet(rank, to, 1, to);
    for (const int from : call.receives) meet(from, rank, -1, from);
    if (missing == 0) leave(rank);
  }

  static std::string sizes(const FakeCall& call) {
    std::string text = "[";
    for (size_t i = 0; i < call.signature.size() && i < 8; ++i) text += str(i == 0 ? "" : ", ", call.signature[i]);
    return text + (call.signature.size() > 8 ? ", ...]" : "]");
  }

  [[noreturn]] void report(int rank) const {
    const FakeCall& call = current(rank);
    std::string text = str("deadlock: rank ", rank, " waits in ", described(call));
    for (const int member : call.group->members) {
      const size_t at = next_[static_cast<size_t>(member)];
      const auto& own = calls_[static_cast<size_t>(member)];
      if (member == rank ||
          (at < own.size() && own[at].group->name == call.group->name && own[at].operation == call.operation)) {
        continue;
      }
      text += str(", rank ", member, at < own.size() ? " in " + described(own[at]) : std::string(" has ended"));
      break;
    }
    throw Error(text + "; all ranks must make the same calls in the same order");
  }

  const std::vector<std::vector<FakeCall>>& calls_;
  std::vector<size_t> next_;
  std::vector<int> missing_;  ///< per rank: messages of its current exchange that have no counterpart yet
  std::vector<int> ready_;
  std::map<std::string, std::vector<int>> waiting_;  ///< per group: ranks waiting at its next collective
  std::map<std::pair<int, int>, int> posted_;
};

}  // namespace

void FakeWorld::check() const { Replayer(state_->calls).run(); }

}  // namespace lamina::comm
