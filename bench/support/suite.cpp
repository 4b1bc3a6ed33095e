#include "support/suite.h"

#include <algorithm>
#include <chrono>

#include "support/limits.h"

namespace lamina::bench {
namespace {

double timed(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Context::Context(int threads, double seconds) : device_(Device::cpu(threads)), seconds_(seconds) {}

double Context::seconds(const std::function<void()>& call) const {
  call();
  double best = timed(call);
  double spent = best;
  for (int runs = 1; runs < 1000 && (runs < 3 || spent < seconds_); ++runs) {
    const double time = timed(call);
    best = std::min(best, time);
    spent += time;
  }
  return best;
}

std::pair<double, double> Context::seconds(const std::function<void()>& ours, const std::function<void()>& peer) const {
  ours();
  peer();
  double best_ours = timed(ours);
  double best_peer = timed(peer);
  double spent = best_ours + best_peer;
  for (int runs = 1; runs < 1000 && (runs < 3 || spent < 2 * seconds_); ++runs) {
    const double time_ours = timed(ours);
    const double time_peer = timed(peer);
    best_ours = std::min(best_ours, time_ours);
    best_peer = std::min(best_peer, time_peer);
    spent += time_ours + time_peer;
  }
  return {best_ours, best_peer};
}

double Context::gemm_peak() {
  if (gemm_peak_ == 0) gemm_peak_ = measure_gemm_peak(*this);
  return gemm_peak_;
}

double Context::bandwidth() {
  if (bandwidth_ == 0) bandwidth_ = measure_bandwidth(*this);
  return bandwidth_;
}

void Context::add(Row row) { rows_.push_back(std::move(row)); }

std::vector<Suite>& suites() {
  static std::vector<Suite> all;
  return all;
}

bool register_suite(const std::string& name, std::function<void(Context&)> run) {
  suites().push_back({name, std::move(run)});
  return true;
}

}  // namespace lamina::bench
