#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lamina/tensor/device.h"

namespace lamina::bench {

/// One measured figure and its reference, both from the same run.
struct Row {
  std::string what;
  double ours = 0;
  double reference = 0;
  std::string unit;            ///< unit of both numbers
  std::string reference_name;  ///< "sgemm peak", "memory bandwidth", a library
  /// Goal: ours / reference must be at least (for times: at most) this; empty if there is no goal.
  std::optional<double> at_least = std::nullopt;
  std::optional<double> at_most = std::nullopt;

  double ratio() const { return reference == 0 ? 0 : ours / reference; }
  bool reached() const { return (!at_least || ratio() >= *at_least) && (!at_most || ratio() <= *at_most); }
};

/// Passed to suites: the device, the machine's limits, and the table of results.
class Context {
 public:
  Context(int threads, double seconds);

  const Device& device() const { return device_; }
  Device one_thread() const { return Device::cpu(1); }

  /// Best time of one call in seconds, repeated for the configured time after a warm-up. The minimum of many short runs
  /// is robust against load from other programs.
  double seconds(const std::function<void()>& call) const;
  /// Best times of several calls, run interleaved so that noise affects all of them alike.
  std::pair<double, double> seconds(const std::function<void()>& ours, const std::function<void()>& peer) const;
  std::vector<double> seconds(const std::vector<std::function<void()>>& calls) const;

  /// GFLOP/s of a 2048³ product in the GEMM library, with as many threads as device(); measured once.
  double gemm_peak();
  /// GB/s of the triad with streaming stores, over arrays far larger than the caches; counts two reads and a write.
  /// Measured once.
  double bandwidth();
  /// Best times of memory-bound calls and the memory bandwidth, measured interleaved because other programs' use of
  /// bandwidth varies.
  struct BesideMemory {
    std::vector<double> seconds;
    double bandwidth;  ///< GB/s
  };
  BesideMemory beside_memory(std::vector<std::function<void()>> calls) const;

  void add(Row row);
  /// A row for a memory-bound call: the speed at which `bytes` were read and written, against `limit` GB/s.
  void add_speed(const std::string& what, int64_t bytes, double seconds, double limit,
                 std::optional<double> at_least = std::nullopt);
  void add_speed(const std::string& what, int64_t bytes, double seconds) {
    add_speed(what, bytes, seconds, bandwidth());
  }
  const std::vector<Row>& rows() const { return rows_; }

 private:
  Device device_;
  double seconds_;
  double gemm_peak_ = 0;
  double bandwidth_ = 0;
  std::vector<Row> rows_;
};

struct Suite {
  std::string name;
  std::function<void(Context&)> run;
};

std::vector<Suite>& suites();
bool register_suite(const std::string& name, std::function<void(Context&)> run);

}  // namespace lamina::bench

/// LAMINA_BENCH_SUITE(norm) { context.add(…); }
#define LAMINA_BENCH_SUITE(name)                                                                                     \
  static void bench_##name(::lamina::bench::Context& context);                                                       \
  [[maybe_unused]] static const bool bench_registered_##name = ::lamina::bench::register_suite(#name, bench_##name); \
  static void bench_##name(::lamina::bench::Context& context)
