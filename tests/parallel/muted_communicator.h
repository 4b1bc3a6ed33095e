#pragma once

#include <set>

#include "parallel/parallel_support.h"

namespace lamina::testing {

using CallLog = std::set<std::string>;  ///< labels of calls, each with "/operation" or "/from lower"

/// Skips all calls with one label, or with "label/operation" only those of one operation; results are what this rank
/// alone has. "label/from lower" and "label/from higher" lose the messages from ranks on one side of an exchange.
/// Groups that are split from it skip the same calls. Calls within groups of several ranks are added to `log`, if
/// given.
class MutedCommunicator final : public comm::Communicator {
 public:
  MutedCommunicator(std::shared_ptr<comm::Communicator> inner, std::string muted, std::atomic<int>& skipped,
                    CallLog* log = nullptr)
      : inner_(std::move(inner)), muted_(std::move(muted)), skipped_(skipped), log_(log) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view backend() const override { return inner_->backend(); }
  std::string host(int rank) const override { return inner_->host(rank); }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  std::string failure() const override { return inner_->failure(); }
  void set_update(int64_t update) override { inner_->set_update(update); }
  std::shared_ptr<comm::Communicator> split(const std::vector<int>& colors) override {
    return std::make_shared<MutedCommunicator>(inner_->split(colors), muted_, skipped_, log_);
  }

  void all_reduce(const Tensor& x, const comm::CallOptions& o) override {
    if (!skip(o, "all_reduce")) inner_->all_reduce(x, o);
  }
  void reduce_scatter(const Tensor& input, const Tensor& output, const std::vector<int64_t>& counts,
                      const comm::CallOptions& o) override {
    if (!skip(o, "reduce_scatter")) return inner_->reduce_scatter(input, output, counts, o);
    Tensor(output).copy_(input.slice(0, begin_of(counts), output.numel()));
  }
  void all_gather(const Tensor& input, const Tensor& output, const std::vector<int64_t>& counts,
                  const comm::CallOptions& o) override {
    if (!skip(o, "all_gather")) return inner_->all_gather(input, output, counts, o);
    const Tensor own = input.clone();
    Tensor(output).fill_(0);
    output.slice(0, begin_of(counts), own.numel()).copy_(own);
  }
  void all_to_all(const Tensor& input, const Tensor& output, const std::vector<int64_t>& sent,
                  const std::vector<int64_t>& received, const comm::CallOptions& o) override {
    if (!skip(o, "all_to_all")) return inner_->all_to_all(input, output, sent, received, o);
    Tensor(output).fill_(0);
    const auto own = static_cast<size_t>(rank());
    output.slice(0, begin_of(received), received[own]).copy_(input.slice(0, begin_of(sent), sent[own]));
  }
  void broadcast(const Tensor& x, int root, const comm::CallOptions& o) override {
    if (!skip(o, "broadcast")) inner_->broadcast(x, root, o);
  }
  void exchange(const std::vector<comm::Message>& sends, const std::vector<comm::Message>& receives,
                const comm::CallOptions& o) override {
    inner_->exchange(sends, receives, o);
    for (const comm::Message& message : receives) {
      const char* side = message.peer < rank() ? "from lower" : "from higher";
      if (skip(o, side)) Tensor(message.tensor).fill_(0);
    }
  }
  void barrier(const comm::CallOptions& o) override {
    if (!skip(o, "barrier")) inner_->barrier(o);
  }

 private:
  bool skip(const comm::CallOptions& options, const char* operation) {
    std::string call = str(options.label, "/", operation);
    const bool skips = options.label == muted_ || call == muted_;
    if (log_ != nullptr && size() > 1) log_->insert(std::move(call));
    if (!skips) return false;
    ++skipped_;
    return true;
  }
  int64_t begin_of(const std::vector<int64_t>& counts) const {
    int64_t begin = 0;
    for (int r = 0; r < rank(); ++r) begin += counts[static_cast<size_t>(r)];
    return begin;
  }

  std::shared_ptr<comm::Communicator> inner_;
  std::string muted_;
  std::atomic<int>& skipped_;
  CallLog* log_;
};

}  // namespace lamina::testing
