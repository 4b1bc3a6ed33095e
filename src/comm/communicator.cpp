#include "lamina/comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "lamina/comm/checks.h"
#include "lamina/comm/ordered_sum.h"

namespace lamina::comm {
namespace {

/// memmove that accepts null pointers for 0 bytes, because empty tensors have them.
void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memmove(to, from, bytes);
}

// Up to this size, one round to all ranks is faster than two rounds of parts.
constexpr int64_t kSmallBytes = 4096;
// From this size on, the root sends a part to each rank, and ranks exchange the parts.
constexpr int64_t kSplitBroadcast = 65536;

char* at(const Tensor& x, int64_t element) {
  return static_cast<char*>(x.raw()) + element * static_cast<int64_t>(size_of(x.dtype()));
}

std::vector<int64_t> even_counts(int64_t count, int size) {
  std::vector<int64_t> counts;
  for (int64_t r = 0; r < size; ++r) counts.push_back(count * (r + 1) / size - count * r / size);
  return counts;
}

std::vector<int64_t> begins_of(const std::vector<int64_t>& counts) {
  std::vector<int64_t> begins(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), int64_t{0});
  return begins;
}

/// Collectives over a transport. Each consists of one or two rounds of messages between all pairs of ranks, and moves
/// as few bytes per rank as a ring does.
class TransportCommunicator final : public Communicator {
 public:
  TransportCommunicator(std::shared_ptr<Transport> transport, CommunicatorOptions options, std::vector<int> members,
                        uint32_t group, std::shared_ptr<int64_t> update)
      : transport_(std::move(transport)),
        options_(options),
        members_(std::move(members)),
        group_(group),
        update_(std::move(update)) {
    const auto found = std::find(members_.begin(), members_.end(), transport_->rank());
    rank_ = static_cast<int>(found - members_.begin());
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  std::string_view backend() const override { return transport_->name(); }
  std::string host(int rank) const override { return transport_->host(members_.at(static_cast<size_t>(rank))); }
  void abort(const std::string& reason) override { transport_->abort(reason); }
  std::string failure() const override { return transport_->failure(); }
  void set_update(int64_t update) override { *update_ = update; }

  void all_reduce(const Tensor& x, const CallOptions& options) override {
    const Call call = next(Operation::all_reduce, options);
    check_tensor(call.operation, x, false);
    check_sum(call.operation, x);
    if (size() == 1) return;
    x.mark_written("all_reduce");
    const bool whole = size() == transport_->size();
    if (options.order == Order::fast && whole && transport_->library_all_reduce(call, x.raw(), x.numel(), x.dtype())) {
      return;
    }
    if (x.nbytes() <= kSmallBytes) return all_reduce_small(call, x);
    const std::vector<int64_t> counts = even_counts(x.numel(), size());
    const Tensor flat = x.detach().reshape({x.numel()});
    const int64_t begin = begins_of(counts)[own()];
    const Tensor part = flat.slice(0, begin, counts[own()]);
    scatter_sum(call, flat, part, counts);
    gather_parts(call, part, flat, counts);
  }

  void reduce_scatter(const Tensor& input, const Tensor& output, const std::vector<int64_t>& counts,
                      const CallOptions& options) override {
    const Call call = next(Operation::reduce_scatter, options);
    check_tensor(call.operation, input, false);
    check_tensor(call.operation, output, false);
    check_sum(call.operation, input);
    check_counts(call.operation, counts, rank(), size(), input, output);
    output.mark_written("reduce_scatter");
    scatter_sum(call, input, output, counts);
  }

  void all_gather(const Tensor& input, const Tensor& output, const std::vector<int64_t>& counts,
                  const CallOptions& options) override {
    const Call call = next(Operation::all_gather, options);
    check_tensor(call.operation, input, false);
    check_tensor(call.operation, output, false);
    check_counts(call.operation, counts, rank(), size(), output, input);
    output.mark_written("all_gather");
    gather_parts(call, input, output, counts);
  }

  void all_to_all(const Tensor& input, const Tensor& output, const std::vector<int64_t>& send_counts,
                  const std::vector<int64_t>& receive_counts, const CallOptions& options) override {
    const Call call = next(Operation::all_to_all, options);
    check_tensor(call.operation, input, false);
    check_tensor(call.operation, output, false);
    LAMINA_CHECK(send_counts.size() == members_.size() && receive_counts.size() == members_.size(),
                 "all_to_all: ", send_counts.size(), " and ", receive_counts.size(), " counts for ", size(),
                 " ranks; give one for each");
    check_counts(call.operation, send_counts, rank(), size(), input,
                 input.reshape({-1}).slice(0, 0, send_counts[own()]));
    check_counts(call.operation, receive_counts, rank(), size(), output,
                 output.reshape({-1}).slice(0, 0, receive_counts[own()]));
    LAMINA_CHECK(send_counts[own()] == receive_counts[own()], "all_to_all: this rank keeps ", send_counts[own()],
                 " elements but expects ", receive_counts[own()], " from itself; give equal counts");
    output.mark_written("all_to_all");
    const std::vector<int64_t> from = begins_of(send_counts);
    const std::vector<int64_t> to = begins_of(receive_counts);
    std::vector<Send> sends;
    std::vector<Receive> receives;
    for (size_t r = 0; r < members_.size(); ++r) {
      if (r == own()) continue;
      sends.push_back({members_[r], at(input, from[r]), bytes(input, send_counts[r])});
      receives.push_back({members_[r], at(output, to[r]), bytes(output, receive_counts[r])});
    }
    copy_bytes(at(output, to[own()]), at(input, from[own()]), bytes(input, send_counts[own()]));
    transport_->exchange(call, sends, receives);
  }

  void broadcast(const Tensor& x, int root, const CallOptions& options) override {
    const Call call = next(Operation::broadcast, options);
    check_tensor(call.operation, x, false);
    check_peer(call.operation, root, size());
    if (size() == 1) return;
    x.mark_written("broadcast");
    const bool split = size() > 2 && x.nbytes() >= kSplitBroadcast;
    const std::vector<int64_t> counts =
        split ? even_counts(x.numel(), size()) : std::vector<int64_t>(members_.size(), x.numel());
    const std::vector<int64_t> begins = split ? begins_of(counts) : std::vector<int64_t>(members_.size(), 0);
    std::vector<Send> sends;
    std::vector<Receive> receives;
    for (size_t r = 0; r < members_.size() && rank() == root; ++r) {
      if (r != own()) sends.push_back({members_[r], at(x, begins[r]), bytes(x, counts[r])});
    }
    if (rank() != root) {
      receives.push_back({members_[static_cast<size_t>(root)], at(x, begins[own()]), bytes(x, counts[own()])});
    }
    transport_->exchange(call, sends, receives);
    if (!split) return;
    const Tensor flat = x.detach().reshape({x.numel()});
    gather_parts(call, flat.slice(0, begins[own()], counts[own()]), flat, counts);
  }

  void exchange(const std::vector<Message>& sends, const std::vector<Message>& receives,
                const CallOptions& options) override {
    Call call = next(Operation::exchange, options);
    call.sequence = 0;  // pairs of ranks may exchange messages without the others, so only their order counts
    std::vector<Send> out;
    std::vector<Receive> in;
    for (const Message& message : sends) {
      check_message(message);
      out.push_back({members_[static_cast<size_t>(message.peer)], message.tensor.raw(),
                     static_cast<size_t>(message.tensor.nbytes())});
    }
    for (const Message& message : receives) {
      check_message(message);
      message.tensor.mark_written("exchange");
      in.push_back({members_[static_cast<size_t>(message.peer)], message.tensor.raw(),
                    static_cast<size_t>(message.tensor.nbytes())});
    }
    --calls_;
    transport_->exchange(call, out, in);
  }

  void barrier(const CallOptions& options) override {
    const Call call = next(Operation::barrier, options);
    for (int step = 1; step < size(); step *= 2) {  // after round k, every rank knows of 2^k ranks
      const Send send{member((rank() + step) % size()), nullptr, 0};
      const Receive receive{member((rank() + size() - step) % size()), nullptr, 0};
      transport_->exchange(call, {&send, 1}, {&receive, 1});
    }
  }

  std::shared_ptr<Communicator> split(const std::vector<int>& colors) override {
    check_colors(colors, size());
    std::vector<int> members;
    for (size_t r = 0; r < colors.size(); ++r) {
      if (colors[r] == colors[own()]) members.push_back(members_[r]);
    }
    // All ranks of the new group compute the same number. Other groups very likely have other numbers. A collision is
    // harmless as long as the calls agree.
    const uint32_t group =
        (group_ * 0x9E3779B1U + ++splits_) * 0x85EBCA6BU + static_cast<uint32_t>(colors[own()]) * 0xC2B2AE35U + 1;
    return std::make_shared<TransportCommunicator>(transport_, options_, std::move(members), group, update_);
  }

 private:
  size_t own() const { return static_cast<size_t>(rank_); }
  int member(int rank) const { return members_[static_cast<size_t>(rank)]; }
  static size_t bytes(const Tensor& x, int64_t count) { return static_cast<size_t>(count) * size_of(x.dtype()); }

  void check_message(const Message& message) const {
    check_tensor(Operation::exchange, message.tensor, false);
    check_peer(Operation::exchange, message.peer, size());
    LAMINA_CHECK(message.peer != rank(), "exchange: rank ", rank(), " sends to itself; copy the tensor instead");
  }

  Call next(Operation operation, const CallOptions& options) {
    const double seconds = options.deadline > 0 ? options.deadline : options_.deadline;
    return {operation,
            options.label,
            *update_,
            group_,
            calls_++,
            seconds,
            Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))};
  }

  /// A single round: every rank sends everything to every other rank and computes the sum itself.
  void all_reduce_small(const Call& call, const Tensor& x) {
    const auto length = static_cast<size_t>(x.nbytes());
    const std::vector<char> sent(static_cast<const char*>(x.raw()), static_cast<const char*>(x.raw()) + length);
    std::vector<Send> sends;
    std::vector<Receive> receives;
    for (size_t r = 0; r < members_.size(); ++r) {
      if (r == own()) continue;
      sends.push_back({members_[r], sent.data(), length});
      receives.push_back({members_[r], nullptr, length});
    }
    sum_received(call, sends, receives, sent.data(), x, x.numel());
  }

  /// Sends part r of every rank's input to rank r, which sums the parts in rank order. `output` may be part of `input`.
  void scatter_sum(const Call& call, const Tensor& input, const Tensor& output, const std::vector<int64_t>& counts) {
    const std::vector<int64_t> begins = begins_of(counts);
    std::vector<Send> sends;
    std::vector<Receive> receives;
    for (size_t r = 0; r < members_.size(); ++r) {
      if (r == own()) continue;
      sends.push_back({members_[r], at(input, begins[r]), bytes(input, counts[r])});
      receives.push_back({members_[r], nullptr, bytes(input, counts[own()])});
    }
    sum_received(call, sends, receives, at(input, begins[own()]), output, counts[own()]);
  }

  /// output ← the sum of `count` elements of all ranks in rank order: `mine`, and what the others send.
  void sum_received(const Call& call, const std::vector<Send>& sends, const std::vector<Receive>& receives,
                    const void* mine, const Tensor& output, int64_t count) {
    transport_->exchange_in_place(call, sends, receives, [&](std::span<const void* const> messages) {
      std::vector<const void*> parts(messages.begin(), messages.end());
      parts.insert(parts.begin() + rank_, mine);
      ordered_sum(parts, output.raw(), count, output.dtype());
    });
  }

  void gather_parts(const Call& call, const Tensor& input, const Tensor& output, const std::vector<int64_t>& counts) {
    const std::vector<int64_t> begins = begins_of(counts);
    std::vector<Send> sends;
    std::vector<Receive> receives;
    for (size_t r = 0; r < members_.size(); ++r) {
      if (r == own()) continue;
      sends.push_back({members_[r], input.raw(), bytes(input, counts[own()])});
      receives.push_back({members_[r], at(output, begins[r]), bytes(output, counts[r])});
    }
    if (input.raw() != at(output, begins[own()])) {
      copy_bytes(at(output, begins[own()]), input.raw(), bytes(input, counts[own()]));
    }
    transport_->exchange(call, sends, receives);
  }

  std::shared_ptr<Transport> transport_;
  CommunicatorOptions options_;
  std::vector<int> members_;  ///< their ranks in the transport, ascending
  uint32_t group_;
  std::shared_ptr<int64_t> update_;  ///< shared with communicators split from this one
  int rank_ = 0;
  uint64_t calls_ = 0;
  uint32_t splits_ = 0;
};

}  // namespace

std::shared_ptr<Communicator> make_communicator(std::shared_ptr<Transport> transport,
                                                const CommunicatorOptions& options) {
  LAMINA_CHECK(transport != nullptr, "make_communicator: no transport was given");
  std::vector<int> members(static_cast<size_t>(transport->size()));
  std::iota(members.begin(), members.end(), 0);
  return std::make_shared<TransportCommunicator>(std::move(transport), options, std::move(members), 0,
                                                 std::make_shared<int64_t>(0));
}

std::vector<double> gather(Communicator& communicator, const std::vector<double>& values, std::string_view label,
                           double deadline) {
  const Device host = Device::cpu(1);
  const auto count = static_cast<int64_t>(values.size());
  const Tensor mine = Tensor::from(values, {count}, host);
  const Tensor all = Tensor::empty({count * communicator.size()}, DType::f64, host);
  const std::vector<int64_t> counts(static_cast<size_t>(communicator.size()), count);
  communicator.all_gather(mine, all, counts, {.label = label, .deadline = deadline});
  return all.to_vector<double>();
}

std::string broadcast_text(Communicator& communicator, const std::string& text, int root, std::string_view label,
                           double deadline) {
  const Device host = Device::cpu(1);
  const bool sends = communicator.rank() == root;
  const Tensor length = Tensor::full({1}, static_cast<double>(text.size()), DType::i64, host);
  communicator.broadcast(length, root, {.label = label, .deadline = deadline});
  const auto count = static_cast<int64_t>(length.item());
  const Tensor bytes = Tensor::zeros({count}, DType::u8, host);
  if (sends) copy_bytes(bytes.raw(), text.data(), text.size());
  communicator.broadcast(bytes, root, {.label = label});
  return {static_cast<const char*>(bytes.raw()), static_cast<size_t>(count)};
}

}  // namespace lamina::comm
