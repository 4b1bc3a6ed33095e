#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <random>

#include "infer/fake_runner.h"

namespace lamina::infer {
namespace {

enum class Drafts : uint8_t { none, lookup, model };

struct SoakCase {
  std::vector<CacheGroup> groups;
  int64_t states;
  bool pipelined;
  Drafts drafts;
};

/// Submits random requests, cancels some, and checks every answer against the oracle when it ends.
class Soak {
 public:
  Soak(const SoakCase& wanted, uint64_t seed) : random_(seed) {
    model_.shape.groups = wanted.groups;
    model_.shape.page_size = 4;
    model_.shape.state_slots = wanted.states;
    const bool speculates = wanted.drafts != Drafts::none;
    model_.shape.vocab_size = speculates ? 6 : 67;
    model_.shape.context = 128;
    model_.shape.pipelined = wanted.pipelined;
    model_.repetitive = speculates;
    EngineOptions options{.rows = 24, .step_tokens = 96, .max_waiting = 64, .draft_tokens = speculates ? 6 : 0};
    options.draft_rows = 24;
    options.quantum = 64;
    options.now = [this] { return static_cast<double>(steps_); };
    std::unique_ptr<StepRunner> draft;
    if (wanted.drafts == Drafts::model) {
      FakeModel small = model_;
      small.salt = 2;
      draft = std::make_unique<FakeRunner>(small);
    }
    engine_ = std::make_unique<Engine>(std::make_unique<FakeRunner>(model_), options, std::move(draft));
    for (int i = 0; i < 40; ++i) prefixes_.push_back(tokens(draw(0, 60)));
  }

  void run(int64_t requests) {
    for (int64_t i = 0; i < requests;) {
      try {
        submit_one();
        ++i;
        if (draw(0, 3) > 0) continue;
      } catch (const QueueFull&) {
        ++full_;
      }
      if (draw(0, 40) == 0 && !open_.empty()) {
        engine_->cancel(std::next(open_.begin(), draw(0, static_cast<int64_t>(open_.size()) - 1))->first);
      }
      ++steps_;
      engine_->step();
    }
    while (engine_->step()) ++steps_;
  }

  void expect_all_well(int64_t requests) const {
    const EngineStats stats = engine_->stats();
    EXPECT_EQ(stats.requests, requests);
    EXPECT_TRUE(open_.empty());
    EXPECT_EQ(wrong_, 0);
    EXPECT_EQ(stats.failed, 0);
    EXPECT_EQ(stats.pages_used, 0);
    EXPECT_EQ(stats.states_used, 0);
    EXPECT_EQ(stats.running + stats.waiting, 0);
    // Every event that this test provokes did happen.
    EXPECT_GT(full_, 0);
    EXPECT_GT(stats.cancelled, 0);
    EXPECT_GT(stats.expired, 0);
    EXPECT_GT(stats.evictions, 0);
    EXPECT_GT(stats.cached_tokens, 0);
    if (!model_.shape.groups.empty() && model_.shape.groups[0].window == 0) {
      EXPECT_GT(stats.preemptions, 0);
    }
    if (model_.repetitive) {
      EXPECT_GT(stats.accepted, 0);
    }
  }

 private:
  int64_t draw(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  std::vector<TokenId> tokens(int64_t count) {
    std::vector<TokenId> ids;
    for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>(draw(0, model_.shape.vocab_size - 1)));
    return ids;
  }

  void submit_one() {
    Request request;
    request.prompt = prefixes_[static_cast<size_t>(draw(0, 39))];
    const std::vector<TokenId> suffix = tokens(draw(1, 12));
    request.prompt.insert(request.prompt.end(), suffix.begin(), suffix.end());
    request.max_tokens = draw(1, 20);
    request.sampler.seed = static_cast<uint64_t>(draw(0, 1000));
    request.client = std::string(1, static_cast<char>('a' + draw(0, 4)));
    request.priority = draw(0, 9) == 0 ? 1 : 0;
    if (draw(0, 9) == 0) request.n = draw(2, 4);
    if (draw(0, 9) == 0) request.stop_tokens = tokens(2);
    if (draw(0, 9) == 0) request.logprobs = 1;
    if (draw(0, 9) == 0) request.cache_salt = "salt";
    if (draw(0, 19) == 0) request.prefix_cache = false;
    if (draw(0, 19) == 0) request.sampler.frequency_penalty = 0.5;
    if (draw(0, 19) == 0) request.mask = std::make_shared<FakeMask>(model_.shape.vocab_size);
    if (draw(0, 19) == 0) request.timeout = static_cast<double>(draw(1, 60));
    if (draw(0, 29) == 0) request.prompt_logprobs = 0;
    const RequestId id = engine_->submit(request, [this](const Update& update) { return take(update); });
    open_.emplace(id, Open{std::move(request), {}});
  }

  struct Open {
    Request request;
    std::map<int64_t, std::vector<ScoredToken>> answers;
  };

  bool take(const Update& update) {
    Open& open = open_.at(update.request);
    std::vector<ScoredToken>& got = open.answers[update.answer];
    got.insert(got.end(), update.tokens.begin(), update.tokens.end());
    if (update.finish) check(open, update, got);
    if (update.request_done) open_.erase(update.request);
    return true;
  }

  void check(const Open& open, const Update& update, const std::vector<ScoredToken>& got) {
    const std::vector<ScoredToken> want = model_.answer(open.request, update.answer);
    const bool cut = update.finish == Finish::cancelled || update.finish == Finish::deadline;
    bool right = cut ? got.size() <= want.size() : got.size() == want.size();
    for (size_t i = 0; right && i < got.size(); ++i) {
      right = got[i].id == want[i].id && got[i].logprob == want[i].logprob;
    }
    wrong_ += right ? 0 : 1;
  }

  std::mt19937_64 random_;
  FakeModel model_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::vector<TokenId>> prefixes_;
  std::map<RequestId, Open> open_;
  int64_t steps_ = 0, full_ = 0, wrong_ = 0;
};

class EngineSoak : public ::testing::TestWithParam<SoakCase> {};

/// Requests per case; twelve cases make 100,000. LAMINA_SOAK_REQUESTS sets another number.
int64_t soak_requests() {
  const char* wanted = std::getenv("LAMINA_SOAK_REQUESTS");
  return wanted != nullptr ? std::max<int64_t>(1000, std::atoll(wanted)) : 8400;
}

/// Resident memory in pages; 0 if the system does not say.
int64_t resident_pages() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident;
}

TEST_P(EngineSoak, every_answer_equals_the_same_request_alone_and_no_page_leaks) {
  Soak soak(GetParam(), 11);
  const int64_t requests = soak_requests();
  soak.run(requests / 4);
  const int64_t early = resident_pages();
  soak.run(requests - requests / 4);
  soak.expect_all_well(requests);
  if (requests >= 50000) {  // sanitizers hold freed memory, so not in the short run
    EXPECT_LE(static_cast<double>(resident_pages()), 1.02 * static_cast<double>(early));
  }
}

INSTANTIATE_TEST_SUITE_P(
    caches, EngineSoak,
    ::testing::Values(SoakCase{{{0, 120, 1}}, 0, false, Drafts::none},             // full attention
                      SoakCase{{{0, 120, 1}}, 0, true, Drafts::none},              // planned ahead
                      SoakCase{{{0, 120, 1}}, 0, false, Drafts::lookup},           // prompt lookup
                      SoakCase{{{0, 120, 1}, {7, 90, 1}}, 0, true, Drafts::none},  // with windows
                      SoakCase{{{7, 120, 1}}, 0, false, Drafts::lookup},           // windows alone
                      SoakCase{{{0, 120, 1}}, 36, false, Drafts::none},            // hybrid
                      SoakCase{{{0, 120, 1}, {9, 100, 1}}, 36, true, Drafts::none},
                      SoakCase{{}, 36, true, Drafts::none},                // state-space layers alone
                      SoakCase{{{0, 120, 1}}, 0, true, Drafts::model},     // draft model
                      SoakCase{{{0, 120, 1}}, 36, false, Drafts::lookup},  // states are rolled back
                      SoakCase{{{7, 120, 1}}, 48, true, Drafts::model}, SoakCase{{}, 48, false, Drafts::model}));

/// Two clients keep their queues full, one with long requests. The served tokens differ by a bounded amount.
TEST(engine_soak, clients_get_equal_shares_of_tokens) {
  FakeModel model;
  model.shape = {.groups = {{0, 1000, 1}}, .page_size = 4, .vocab_size = 67, .context = 256};
  constexpr int64_t kRows = 4, kQuantum = 64, kLongest = 40 + 60;
  EngineOptions options{.rows = kRows, .step_tokens = 64, .prefix_cache = false};
  options.quantum = kQuantum;
  Engine engine(std::make_unique<FakeRunner>(model), options);
  std::map<std::string, int64_t> served, waiting;
  int64_t next = 0;
  const auto fill = [&](const std::string& client, int64_t prompt, int64_t answer) {
    while (waiting[client] < 12) {
      Request request;
      for (int64_t i = 0; i < prompt; ++i) request.prompt.push_back(static_cast<TokenId>((next * 7 + i) % 67));
      ++next;
      request.max_tokens = answer;
      request.client = client;
      ++waiting[client];
      engine.submit(std::move(request), [&, client, prompt](const Update& update) {
        served[client] += static_cast<int64_t>(update.tokens.size());
        if (update.finish) {
          served[client] += prompt;
          --waiting[client];
        }
        return true;
      });
    }
  };
  int64_t furthest = 0;
  for (int step = 0; step < 6000; ++step) {
    fill("long", 40, 60);
    fill("short", 5, 3);
    engine.step();
    furthest = std::max(furthest, std::abs(served["long"] - served["short"]));
  }
  EXPECT_GT(served["long"], 5000);
  // A client's credit ends at most `quantum` above and one request per row below zero.
  EXPECT_LE(furthest, 2 * (kQuantum + kRows * kLongest));
}

}  // namespace
}  // namespace lamina::infer
