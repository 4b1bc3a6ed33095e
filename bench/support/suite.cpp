#include "support/suite.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "support/limits.h"

namespace lamina::bench {
namespace {

constexpr double kShortCall = 2e-3;  // seconds

double timed(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Context::Context(int threads, double seconds) : device_(Device::cpu(threads)), seconds_(seconds) {}

double Context::seconds(const std::function<void()>& call) const { return seconds(std::vector{call}).front(); }

std::pair<double, double> Context::seconds(const std::function<void()>& ours, const std::function<void()>& peer) const {
  const std::vector<double> times = seconds(std::vector{ours, peer});
  return {times[0], times[1]};
}

std::vector<double> Context::seconds(const std::vector<std::function<void()>>& calls) const {
  for (const auto& call : calls) call();
  std::vector<double> best(calls.size(), std::numeric_limits<double>::infinity());
  double spent = 0;
  for (int runs = 0; runs < 1000 && (runs < 3 || spent < seconds_ * static_cast<double>(calls.size())); ++runs) {
    for (size_t i = 0; i < calls.size(); ++i) {
      // Another library's threads may still spin and ours may sleep: a short call warms up first.
      if (calls.size() > 1 && best[i] < kShortCall) calls[i]();
      const double time = timed(calls[i]);
      best[i] = std::min(best[i], time);
      spent += time;
    }
  }
  return best;
}

double Context::gemm_peak() {
  if (gemm_peak_ == 0) gemm_peak_ = measure_gemm_peak(*this);
  return gemm_peak_;
}

double Context::bandwidth() {
  if (bandwidth_ == 0) bandwidth_ = beside_memory({}).bandwidth;
  return bandwidth_;
}

Context::BesideMemory Context::beside_memory(std::vector<std::function<void()>> calls) const {
  const Triad triad(device_);
  calls.emplace_back([&] { triad(); });
  BesideMemory result{seconds(calls), 0};
  result.bandwidth = Triad::bytes() / result.seconds.back() * 1e-9;
  result.seconds.pop_back();
  return result;
}

void Context::add(Row row) { rows_.push_back(std::move(row)); }

void Context::add_speed(const std::string& what, int64_t bytes, double seconds, double limit,
                        std::optional<double> at_least) {
  add({what, static_cast<double>(bytes) / seconds * 1e-9, limit, "GB/s", "memory bandwidth", at_least});
}

std::vector<Suite>& suites() {
  static std::vector<Suite> all;
  return all;
}

bool register_suite(const std::string& name, std::function<void(Context&)> run) {
  suites().push_back({name, std::move(run)});
  return true;
}

}  // namespace lamina::bench
