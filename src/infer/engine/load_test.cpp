#include "lamina/infer/engine/load_test.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lamina/base/philox.h"

namespace lamina::infer {
namespace {

struct LoadRequest {
  double arrival = 0;
  Request request;
  double first = -1, last = 0;  ///< times of the first and of the latest delivery
  int64_t tokens = 0;
};

/// Uniform random numbers in (0, 1).
class LoadRandom {
 public:
  explicit LoadRandom(uint64_t seed) : key_{seed, 0} {}
  double next() { return (static_cast<double>(philox_word(key_, drawn_++)) + 0.5) / 4294967296.0; }

 private:
  RandomKey key_;
  uint64_t drawn_ = 0;
};

std::vector<LoadRequest> make_requests(const LoadTestOptions& options, int64_t vocab) {
  LoadRandom random(options.seed);
  const auto token = [&] { return static_cast<TokenId>(random.next() * static_cast<double>(vocab)); };
  const auto length = [&](int64_t mean) {
    const double factor = 1 + options.spread * (2 * random.next() - 1);
    return std::max<int64_t>(1, std::llround(static_cast<double>(mean) * factor));
  };
  std::vector<TokenId> common;
  for (int64_t i = 0; i < options.shared; ++i) common.push_back(token());
  std::vector<LoadRequest> requests(static_cast<size_t>(options.requests));
  double time = 0;
  for (LoadRequest& one : requests) {
    if (options.rate > 0) time += -std::log(random.next()) / options.rate;
    one.arrival = time;
    Request& request = one.request;
    request.prompt = common;
    const int64_t tokens = std::max(options.shared + 1, length(options.prompt));
    while (static_cast<int64_t>(request.prompt.size()) < tokens) request.prompt.push_back(token());
    request.max_tokens = length(options.answer);
  }
  return requests;
}

void check_load(const LoadTestOptions& o) {
  LAMINA_CHECK(
      o.requests > 0 && o.prompt > 0 && o.answer > 0 && o.rate >= 0 && o.spread >= 0 && o.spread < 1 && o.shared >= 0 &&
          o.shared < o.prompt,
      "load test: ", o.requests, " requests, ", o.prompt, " tokens in, ", o.answer, " out, rate ", o.rate, ", spread ",
      o.spread, ", ", o.shared,
      " shared tokens; expected positive numbers, a spread below 1 and fewer shared tokens than prompt tokens");
}

void add_latencies(const LoadRequest& one, LoadTestReport& report) {
  const auto prompt = static_cast<double>(one.request.prompt.size());
  const auto answer = static_cast<double>(one.tokens);
  report.prompt_tokens += static_cast<int64_t>(prompt);
  report.answer_tokens += one.tokens;
  report.attended_tokens += answer * (prompt + answer / 2);
  if (one.first < 0) return;
  report.first_token.values.push_back(one.first - one.arrival);
  if (one.tokens > 1) report.per_token.values.push_back((one.last - one.first) / (answer - 1));
}

/// The counters of a run, as the difference to the counters before it.
EngineStats since(EngineStats stats, const EngineStats& before) {
  stats.requests -= before.requests;
  stats.steps -= before.steps;
  stats.prompt_tokens -= before.prompt_tokens;
  stats.cached_tokens -= before.cached_tokens;
  stats.answer_tokens -= before.answer_tokens;
  stats.preemptions -= before.preemptions;
  stats.drafted -= before.drafted;
  stats.accepted -= before.accepted;
  stats.step_seconds -= before.step_seconds;
  return stats;
}

}  // namespace

double Latencies::mean() const {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Latencies::percentile(double share) const {
  if (values.empty()) return 0;
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  return values[static_cast<size_t>(std::clamp(rank, 1.0, static_cast<double>(values.size()))) - 1];
}

LoadTestReport run_load_test(Engine& engine, const LoadTestOptions& options, const std::function<double()>& now,
                             const std::function<void(double)>& sleep) {
  check_load(options);
  std::vector<LoadRequest> requests = make_requests(options, engine.shape().vocab_size);
  LoadTestReport report;
  const EngineStats before = engine.stats();
  const double start = now();
  for (size_t next = 0;;) {
    for (; next < requests.size() && start + requests[next].arrival <= now(); ++next) {
      LoadRequest& one = requests[next];
      one.arrival += start;
      engine.submit(one.request, [&](const Update& update) {
        if (update.tokens.empty()) return true;
        const double time = now();
        if (one.first < 0) {
          one.first = time;
        } else {
          report.next_token.values.push_back(time - one.last);
        }
        one.last = time;
        one.tokens += static_cast<int64_t>(update.tokens.size());
        return true;
      });
    }
    if (engine.step()) continue;
    if (next == requests.size()) break;
    sleep(std::max(0.0, start + requests[next].arrival - now()));
  }
  double last = start;
  for (const LoadRequest& one : requests) {
    add_latencies(one, report);
    last = std::max(last, one.last);
  }
  report.seconds = last - start;
  for (Latencies* latencies : {&report.first_token, &report.next_token, &report.per_token}) {
    std::sort(latencies->values.begin(), latencies->values.end());
  }
  report.stats = since(engine.stats(), before);
  return report;
}

}  // namespace lamina::infer
