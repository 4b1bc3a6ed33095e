#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lamina/tensor/device.h"

namespace lamina::bench {

/// One measured figure beside what it is held against, both from the same run.
struct Row {
  std::string what;
  double ours = 0;
  double reference = 0;
  std::string unit;            ///< of both numbers
  std::string reference_name;  ///< "sgemm peak", "memory bandwidth", a library
  /// ours / reference must be at least (or, for times, at most) this; nothing where the figure only informs.
  std::optional<double> at_least = std::nullopt;
  std::optional<double> at_most = std::nullopt;

  double ratio() const { return reference == 0 ? 0 : ours / reference; }
  bool reached() const { return (!at_least || ratio() >= *at_least) && (!at_most || ratio() <= *at_most); }
};

/// What suites are handed: the device to use, the machine's limits, and where rows go.
class Context {
 public:
  Context(int threads, double seconds);

  const Device& device() const { return device_; }
  Device one_thread() const { return Device::cpu(1); }

  /// Best time of one call, in seconds: repeats for the configured time after a warm-up. The best of many short runs is
  /// what survives on a machine that others use too.
  double seconds(const std::function<void()>& call) const;
  /// The same for two calls taken in turns, so that noise meets both.
  std::pair<double, double> seconds(const std::function<void()>& ours, const std::function<void()>& peer) const;
  std::vector<double> seconds(const std::vector<std::function<void()>>& calls) const;

  /// GFLOP/s of a 2048³ product by the GEMM library itself, on as many threads as device() has; measured once.
  double gemm_peak();
  /// GB/s of a = b + s·c over arrays far larger than the caches, counting two reads and a write, with streaming stores;
  /// measured once.
  double bandwidth();
  /// The best times of calls that memory limits, and its bandwidth, all taken in turns: what others leave of it
  /// changes.
  struct BesideMemory {
    std::vector<double> seconds;
    double bandwidth;  ///< GB/s
  };
  BesideMemory beside_memory(std::vector<std::function<void()>> calls) const;

  void add(Row row);
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
