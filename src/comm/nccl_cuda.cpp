#include <algorithm>
#include <numeric>
#include <thread>

#include "lamina/comm/checks.h"
#include "lamina/comm/nccl.h"
#include "lamina/comm/nccl_functions.h"
#include "lamina/comm/ordered_sum_cuda.h"
#include "lamina/tensor/cuda/runtime.h"

namespace lamina::comm {
namespace {

int64_t first_element(const std::vector<int64_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
}

/// Collectives of GPU tensors over NCCL. A call blocks on the host until its result is available, like calls of other
/// backends. The gradient reducer calls from its own thread, so backward continues meanwhile.
class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<Communicator> host, const Device& device)
      : host_(std::move(host)), device_(device), nccl_(Nccl::get()) {
    Nccl::UniqueId id{};
    use_device();
    if (rank() == 0) check(nccl_.get_unique_id(&id), "ncclGetUniqueId");
    const std::string bytes = broadcast_text(*host_, std::string(id.bytes, sizeof id.bytes), 0, "NCCL's address");
    std::copy(bytes.begin(), bytes.end(), id.bytes);
    check(nccl_.init_rank(&comm_, size(), id, rank()), "ncclCommInitRank");
    LAMINA_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "NCCL's stream");
    LAMINA_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "NCCL's event");
  }

  /// After a failure, other ranks may never make their calls, so NCCL is told to drop pending work.
  ~NcclCommunicator() override {
    if (comm_ != nullptr) failed_ ? nccl_.abort(comm_) : nccl_.destroy(comm_);
    if (event_ != nullptr) cudaEventDestroy(event_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::string_view backend() const override { return "nccl"; }
  std::string host(int rank) const override { return host_->host(rank); }
  std::string failure() const override { return host_->failure(); }
  void abort(const std::string& reason) override { host_->abort(reason); }
  void barrier(const CallOptions& options) override { host_->barrier(options); }
  void set_update(int64_t update) override {
    update_ = update;
    host_->set_update(update);
  }

  void all_reduce(const Tensor& x, const CallOptions& options) override {
    if (!on_gpu(x)) return host_->all_reduce(x, options);
    check_gpu_tensor(Operation::all_reduce, x);
    check_sum(Operation::all_reduce, x);
    x.mark_written("all_reduce");
    if (size() == 1 || x.numel() == 0) return;
    if (!own_sum(x, options)) {
      return run(Operation::all_reduce, options, [&] {
        check(nccl_.all_reduce(x.raw(), x.raw(), elements(x), type(x), Nccl::kSum, comm_, stream_), "ncclAllReduce");
      });
    }
    std::vector<int64_t> counts;
    for (int64_t r = 0; r < size(); ++r) counts.push_back(x.numel() * (r + 1) / size() - x.numel() * r / size());
    const Tensor flat = x.detach().reshape({x.numel()});
    const Tensor part = flat.slice(0, first_element(counts, rank()), own(counts));
    const Tensor parts = parts_buffer(part);
    run(Operation::all_reduce, options, [&] {
      add_in_order(flat, part, parts, counts);
      gather_parts(part, flat, counts);
    });
  }

  void reduce_scatter(const Tensor& input, const Tensor& output, const std::vector<int64_t>& counts,
                      const CallOptions& options) override {
    if (!on_gpu(input)) return host_->reduce_scatter(input, output, counts, options);
    check_gpu_tensor(Operation::reduce_scatter, input);
    check_gpu_tensor(Operation::reduce_scatter, output);
    check_sum(Operation::reduce_scatter, input);
    check_counts(Operation::reduce_scatter, counts, rank(), size(), input, output);
    output.mark_written("reduce_scatter");
    const bool ordered = own_sum(input, options);
    const Tensor parts = ordered ? parts_buffer(output) : Tensor();
    run(Operation::reduce_scatter, options, [&] {
      if (ordered) return add_in_order(input, output, parts, counts);
      group([&] {
        for (int r = 0; r < size(); ++r) {
          const auto count = static_cast<size_t>(counts[static_cast<size_t>(r)]);
          if (count == 0) continue;
          check(nccl_.reduce(at(input, first_element(counts, r)), output.raw(), count, type(input), Nccl::kSum, r,
                             comm_, stream_),
                "ncclReduce");
        }
      });
    });
  }

  void all_gather(const Tensor& input, const Tensor& output, const std::vector<int64_t>& counts,
                  const CallOptions& options) override {
    if (!on_gpu(output)) return host_->all_gather(input, output, counts, options);
    check_gpu_tensor(Operation::all_gather, input);
    check_gpu_tensor(Operation::all_gather, output);
    check_counts(Operation::all_gather, counts, rank(), size(), output, input);
    output.mark_written("all_gather");
    run(Operation::all_gather, options, [&] { gather_parts(input, output, counts); });
  }

  void all_to_all(const Tensor& input, const Tensor& output, const std::vector<int64_t>& send_counts,
                  const std::vector<int64_t>& receive_counts, const CallOptions& options) override {
    if (!on_gpu(input)) return host_->all_to_all(input, output, send_counts, receive_counts, options);
    check_gpu_tensor(Operation::all_to_all, input);
    check_gpu_tensor(Operation::all_to_all, output);
    check_counts(Operation::all_to_all, send_counts, rank(), size(), input,
                 input.slice(0, first_element(send_counts, rank()), own(send_counts)));
    check_counts(Operation::all_to_all, receive_counts, rank(), size(), output,
                 output.slice(0, first_element(receive_counts, rank()), own(receive_counts)));
    output.mark_written("all_to_all");
    run(Operation::all_to_all, options, [&] {
      group([&] {
        for (int r = 0; r < size(); ++r) {
          send(input, first_element(send_counts, r), send_counts[static_cast<size_t>(r)], r);
          receive(output, first_element(receive_counts, r), receive_counts[static_cast<size_t>(r)], r);
        }
      });
    });
  }

  void broadcast(const Tensor& x, int root, const CallOptions& options) override {
    if (!on_gpu(x)) return host_->broadcast(x, root, options);
    check_gpu_tensor(Operation::broadcast, x);
    check_peer(Operation::broadcast, root, size());
    if (rank() != root) x.mark_written("broadcast");
    run(Operation::broadcast, options,
        [&] { check(nccl_.broadcast(x.raw(), x.raw(), elements(x), type(x), root, comm_, stream_), "ncclBroadcast"); });
  }

  void exchange(const std::vector<Message>& sends, const std::vector<Message>& receives,
                const CallOptions& options) override {
    const auto gpu = [&](const Message& message) { return on_gpu(message.tensor); };
    if (std::none_of(sends.begin(), sends.end(), gpu) && std::none_of(receives.begin(), receives.end(), gpu)) {
      return host_->exchange(sends, receives, options);
    }
    for (const auto& messages : {sends, receives}) {
      for (const Message& message : messages) {
        check_gpu_tensor(Operation::exchange, message.tensor);
        check_peer(Operation::exchange, message.peer, size());
      }
    }
    for (const Message& message : receives) message.tensor.mark_written("exchange");
    run(Operation::exchange, options, [&] {
      group([&] {
        for (const Message& message : sends) send(message.tensor, 0, message.tensor.numel(), message.peer);
        for (const Message& message : receives) receive(message.tensor, 0, message.tensor.numel(), message.peer);
      });
    });
  }

  std::shared_ptr<Communicator> split(const std::vector<int>& colors) override {
    return std::make_shared<NcclCommunicator>(host_->split(colors), device_);
  }

 private:
  /// Whether this class computes the sum instead of NCCL, which rounds bf16 sums after every addition.
  static bool own_sum(const Tensor& x, const CallOptions& options) {
    return options.order == Order::ordered || x.dtype() == DType::bf16;
  }
  static bool on_gpu(const Tensor& x) { return x.defined() && x.device().kind() == DeviceKind::cuda; }
  static size_t elements(const Tensor& x) {
    // Types that NCCL does not know are sent as bytes.
    const size_t scale = Nccl::data_type(x.dtype()) == 1 ? size_of(x.dtype()) : 1;
    return static_cast<size_t>(x.numel()) * scale;
  }
  static int type(const Tensor& x) { return Nccl::data_type(x.dtype()); }
  static char* at(const Tensor& x, int64_t element) {
    return static_cast<char*>(x.raw()) + element * static_cast<int64_t>(size_of(x.dtype()));
  }
  int64_t own(const std::vector<int64_t>& counts) const { return counts[static_cast<size_t>(rank())]; }

  void check_gpu_tensor(Operation operation, const Tensor& x) const {
    LAMINA_CHECK(x.defined() && x.device() == device_ && x.is_contiguous(), name_of(operation),
                 ": expected contiguous ", "tensors of ", device_, ", the device that this communicator was made for");
  }

  void check(int result, const char* what) const {
    if (result == Nccl::kSuccess || result == Nccl::kInProgress) return;
    throw CommError(str(what, " failed on rank ", rank(), " (host ", host(rank()), "): ", nccl_.error_text(result),
                        "; NCCL_DEBUG=WARN prints the cause"));
  }

  void use_device() const { LAMINA_CUDA(cudaSetDevice(device_.index()), "NCCL's device"); }

  template <class Body>
  void group(const Body& body) const {
    check(nccl_.group_start(), "ncclGroupStart");
    body();
    check(nccl_.group_end(), "ncclGroupEnd");
  }

  void send(const Tensor& x, int64_t begin, int64_t count, int peer) const {
    if (count == 0) return;
    check(nccl_.send(at(x, begin), bytes(x, count), Nccl::data_type(DType::u8), peer, comm_, stream_), "ncclSend");
  }
  void receive(const Tensor& x, int64_t begin, int64_t count, int peer) const {
    if (count == 0) return;
    check(nccl_.receive(at(x, begin), bytes(x, count), Nccl::data_type(DType::u8), peer, comm_, stream_), "ncclRecv");
  }
  static size_t bytes(const Tensor& x, int64_t count) { return static_cast<size_t>(count) * size_of(x.dtype()); }

  /// Memory for one part of each rank. Allocate it before run(): NCCL's stream then waits for the memory's previous
  /// user. Free it after run().
  Tensor parts_buffer(const Tensor& part) const {
    return Tensor::empty({size() * part.numel()}, part.dtype(), device_);
  }

  /// Sends part r of every rank's input to rank r, which adds the parts in rank order. `output` may be part of `input`.
  void add_in_order(const Tensor& input, const Tensor& output, const Tensor& parts,
                    const std::vector<int64_t>& counts) const {
    const int64_t count = own(counts);
    group([&] {
      for (int r = 0; r < size(); ++r) {
        if (r == rank()) continue;
        send(input, first_element(counts, r), counts[static_cast<size_t>(r)], r);
        receive(parts, r * count, count, r);
      }
    });
    copy(at(parts, rank() * count), at(input, first_element(counts, rank())), bytes(input, count));
    ordered_sum_cuda(parts.raw(), size(), count, input.dtype(), stream_);
    copy(output.raw(), parts.raw(), bytes(output, count));
  }

  void gather_parts(const Tensor& input, const Tensor& output, const std::vector<int64_t>& counts) const {
    group([&] {
      for (int r = 0; r < size(); ++r) {
        const size_t count = bytes(output, counts[static_cast<size_t>(r)]);
        if (count == 0) continue;
        char* const to = at(output, first_element(counts, r));
        const void* const from = r == rank() ? input.raw() : to;
        check(nccl_.broadcast(from, to, count, Nccl::data_type(DType::u8), r, comm_, stream_), "ncclBroadcast");
      }
    });
  }

  void copy(void* to, const void* from, size_t count) const {
    if (count == 0 || to == from) return;
    LAMINA_CUDA(cudaMemcpyAsync(to, from, count, cudaMemcpyDeviceToDevice, stream_), "NCCL's copy");
  }

  /// Runs `body` on NCCL's stream, after the work that the device's stream contains now. Waits until it is done, a rank
  /// fails, or the time limit is reached.
  template <class Body>
  void run(Operation operation, const CallOptions& options, const Body& body) {
    use_device();
    LAMINA_CUDA(cudaEventRecord(event_, cuda::stream_of(device_)), "NCCL's event");
    LAMINA_CUDA(cudaStreamWaitEvent(stream_, event_, 0), "NCCL's stream");
    body();
    LAMINA_CUDA(cudaEventRecord(event_, stream_), "NCCL's event");
    const double seconds = options.deadline > 0 ? options.deadline : kDeadline;
    const auto limit = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    const Clock::time_point expiry = Clock::now() + limit;
    for (int polls = 0; cudaEventQuery(event_) == cudaErrorNotReady; ++polls) {
      int error = Nccl::kSuccess;
      nccl_.async_error(comm_, &error);
      const auto call = [&] { return describe({.operation = operation, .label = options.label, .update = update_}); };
      if (error != Nccl::kSuccess && error != Nccl::kInProgress) {
        fail(str("NCCL failed on rank ", rank(), " (host ", host(rank()), ") in ", call(), ": ",
                 nccl_.error_text(error)));
      }
      if (const std::string reason = host_->failure(); !reason.empty()) fail(reason);
      if (Clock::now() > expiry) {
        fail(str("a rank did not reach ", call(), " within ", seconds, " s; rank ", rank(), " (host ", host(rank()),
                 ") waited for it"));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(polls < 50 ? 2 : 50));
    }
    LAMINA_CUDA(cudaEventSynchronize(event_), "a collective");
  }

  /// Ends all ranks. NCCL reports that a rank is gone, but not which one. The host communicator finds out by its
  /// heartbeats, and its reason is used if it comes in time.
  [[noreturn]] void fail(const std::string& reason) {
    failed_ = true;
    const Clock::time_point patience = Clock::now() + std::chrono::seconds(5);
    while (host_->failure().empty() && Clock::now() < patience) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    const std::string known = host_->failure();
    host_->abort(reason);
    nccl_.abort(comm_);
    comm_ = nullptr;
    throw CommError(known.empty() ? reason : known);
  }

  static constexpr double kDeadline = 600;  ///< time limit in seconds for calls that give none

  std::shared_ptr<Communicator> host_;
  Device device_;
  const Nccl& nccl_;
  Nccl::Comm comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  int64_t update_ = 0;
  bool failed_ = false;
};

}  // namespace

std::shared_ptr<Communicator> make_nccl_communicator(std::shared_ptr<Communicator> host, const Device& device) {
  return std::make_shared<NcclCommunicator>(std::move(host), device);
}

}  // namespace lamina::comm
