#include "lamina/comm/mpi.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "lamina/base/shared_library.h"
#include "lamina/comm/monitor.h"
#include "lamina/comm/mpi_plugin/mpi_plugin.h"
#include "lamina/comm/store.h"

namespace lamina::comm {
namespace {

constexpr size_t kHostBytes = 64;

class MpiTransport final : public Transport {
 public:
  MpiTransport(const LaminaMpi& mpi, const RankEnvironment& environment) : mpi_(mpi) {
    check(mpi_.start(&rank_, &size_), "MPI cannot be started");
    gather_hosts();
    if (environment.master_address.empty() || environment.master_port == 0 || size_ == 1) return;
    RankEnvironment own = environment;
    own.rank = rank_;
    own.size = size_;
    Meeting meeting = meet(
        own, [](const std::string&) { return std::string(); }, 120);
    monitor_ = std::make_unique<Monitor>(rank_, std::move(meeting.connections), hosts_, own.heartbeat_seconds);
  }

  /// MPI_Finalize waits for all ranks. After a failure some ranks will never call it, so it is skipped and the launcher
  /// ends the remaining processes.
  ~MpiTransport() override {
    // The monitor may know of a loss that no call has noticed.
    const bool failed = !reason_.empty() || !failure().empty();
    monitor_.reset();
    if (!failed) mpi_.finish();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string host(int rank) const override { return hosts_.at(static_cast<size_t>(rank)); }
  std::string_view name() const override { return "mpi"; }

  void abort(const std::string& reason) override {
    if (reason_.empty()) reason_ = reason;
    if (monitor_) monitor_->abort(reason);
  }
  std::string failure() const override { return monitor_ ? monitor_->reason() : reason_; }

  void exchange(const Call& call, std::span<const Send> sends, std::span<const Receive> receives) override {
    std::vector<CallHeader> sent(sends.size());
    std::vector<CallHeader> got(receives.size());
    std::vector<Pending> pending;
    for (size_t i = 0; i < receives.size(); ++i) {
      const Receive& receive = receives[i];
      add(pending, receive.from, mpi_.receive, static_cast<void*>(&got[i]), sizeof(CallHeader));
      pending.back().checks = static_cast<int>(i);
      if (receive.bytes > 0) add(pending, receive.from, mpi_.receive, receive.data, receive.bytes);
    }
    for (size_t i = 0; i < sends.size(); ++i) {
      const Send& send = sends[i];
      sent[i] = header_of(call, send.bytes);
      add(pending, send.to, mpi_.send, static_cast<const void*>(&sent[i]), sizeof(CallHeader));
      if (send.bytes > 0) add(pending, send.to, mpi_.send, send.data, send.bytes);
    }
    finish(call, pending, [&](size_t i) {
      const std::string problem = mismatch(call, got[i], receives[i].bytes);
      if (problem.empty()) return;
      fail(str("rank ", receives[i].from, " (host ", host(receives[i].from), ") does not follow rank ", rank_,
               " (host ", host(rank_), ") in ", describe(call), ": ", problem));
    });
  }

  bool library_all_reduce(const Call& call, void* data, int64_t count, DType dtype) override {
    if (dtype == DType::bf16) return false;  // MPI has no bf16
    std::vector<Pending> pending(1);
    pending[0].peer = (rank_ + 1) % size_;
    const int kind = dtype == DType::f32 ? 0 : dtype == DType::f64 ? 1 : 2;
    check(mpi_.all_reduce(data, static_cast<size_t>(count), kind, &pending[0].request), "MPI_Iallreduce failed");
    finish(call, pending, [](size_t) {});
    return true;
  }

 private:
  struct Pending {
    int peer = 0;
    void* request = nullptr;
    int checks = -1;  ///< index of the receive to which this header belongs
  };

  void check(int error, const char* what) const {
    if (error == 0) return;
    char text[256] = "";
    mpi_.error_text(error, text, sizeof text);
    throw CommError(str(what, ": ", text));
  }

  template <class Start, class Pointer>
  void add(std::vector<Pending>& pending, int peer, Start start, Pointer data, size_t bytes) {
    pending.push_back({peer, nullptr});
    check(start(peer, data, bytes, &pending.back().request), "an MPI message cannot be started");
  }

  [[noreturn]] void fail(const std::string& reason) {
    abort(reason);
    throw CommError(monitor_ ? monitor_->reason() : reason_);
  }

  /// Polls until all requests are done. MPI makes progress only when it is called. After a short spin, the thread
  /// sleeps between calls, so that ranks may share cores. The sleep grows with the waiting time, so that a process that
  /// waits for an idle server needs no core.
  template <class Check>
  void finish(const Call& call, std::vector<Pending>& pending, const Check& check_header) {
    if (monitor_) monitor_->set_call(&call);
    constexpr Clock::duration kSpin = std::chrono::microseconds(200);
    constexpr Clock::duration kShortestSleep = std::chrono::microseconds(50);
    constexpr Clock::duration kLongestSleep = std::chrono::milliseconds(5);
    const Clock::time_point began = Clock::now();
    while (!pending.empty()) {
      const size_t before = pending.size();
      for (size_t i = 0; i < pending.size();) {
        int done = 0;
        if (const int error = mpi_.test(pending[i].request, &done); error != 0) {
          char text[256] = "";
          mpi_.error_text(error, text, sizeof text);
          fail(str("MPI failed between rank ", pending[i].peer, " (host ", host(pending[i].peer), ") and rank ", rank_,
                   " (host ", host(rank_), ") in ", describe(call), ": ", text));
        }
        if (done == 0) {
          ++i;
          continue;
        }
        const int header = pending[i].checks;
        pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(i));
        if (header >= 0) check_header(static_cast<size_t>(header));
      }
      if (pending.size() < before) continue;
      throw_if_over(call, pending.front().peer);
      const Clock::duration waited = Clock::now() - began;
      if (waited < kSpin) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::clamp(waited / 200, kShortestSleep, kLongestSleep));
      }
    }
    if (monitor_) monitor_->set_call(nullptr);
  }

  void throw_if_over(const Call& call, int peer) {
    if (monitor_) {
      if (const std::string reason = monitor_->reason(); !reason.empty()) {
        reason_ = reason;
        throw CommError(reason);
      }
    }
    if (Clock::now() < call.expiry) return;
    fail(str("rank ", peer, " (host ", hosts_.empty() ? "unknown" : host(peer), ") did not reach ", describe(call),
             " within ", call.seconds, " s; rank ", rank_, " waited for it"));
  }

  /// Exchanges host names between all ranks.
  void gather_hosts() {
    std::vector<std::string> names(static_cast<size_t>(size_), std::string(kHostBytes, '\0'));
    check(mpi_.host(names[static_cast<size_t>(rank_)].data(), kHostBytes), "the host's name is not known");
    const std::string own = names[static_cast<size_t>(rank_)];
    std::vector<Pending> pending;
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      add(pending, r, mpi_.receive, static_cast<void*>(names[static_cast<size_t>(r)].data()), kHostBytes);
      add(pending, r, mpi_.send, static_cast<const void*>(own.data()), kHostBytes);
    }
    Call call{Operation::all_gather, "hosts"};
    call.seconds = 120;
    call.expiry = Clock::now() + std::chrono::seconds(120);
    finish(call, pending, [](size_t) {});
    for (const std::string& name : names) hosts_.emplace_back(name.c_str());
  }

  const LaminaMpi& mpi_;
  int rank_ = 0;
  int size_ = 1;
  std::vector<std::string> hosts_;
  std::unique_ptr<Monitor> monitor_;
  std::string reason_;
};

std::vector<std::string> plugin_names() {
  if (const char* given = std::getenv("LAMINA_MPI_PLUGIN")) return {given};
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  return {(folder / "liblamina_mpi.so").string(), (folder / "../lib/lamina/liblamina_mpi.so").string()};
}

}  // namespace

std::shared_ptr<Transport> make_mpi_transport(const RankEnvironment& environment, std::string& problem) {
  const SharedLibrary library("the MPI plugin", plugin_names());
  problem = library.problem();
  if (!library.is_loaded()) return nullptr;
  const auto table = library.function<const LaminaMpi* (*)()>("lamina_mpi")();
  if (table->version != kLaminaMpiVersion) {
    problem = str("liblamina_mpi.so has version ", table->version, " of the interface, this program ",
                  kLaminaMpiVersion, "; install both from one build");
    return nullptr;
  }
  return std::make_shared<MpiTransport>(*table, environment);
}

}  // namespace lamina::comm
