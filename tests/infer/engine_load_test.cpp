#include "lamina/infer/engine/load_test.h"

#include <gtest/gtest.h>

#include "infer/fake_runner.h"

namespace lamina::infer {
namespace {

/// A FakeRunner whose steps take `seconds_per_token` of a clock each.
class TimedRunner : public FakeRunner {
 public:
  TimedRunner(FakeModel model, double& clock) : FakeRunner(std::move(model)), clock_(clock) {}
  void run(const StepPlan& plan) override {
    clock_ += 0.001 * static_cast<double>(plan.tokens());
    FakeRunner::run(plan);
  }

 private:
  double& clock_;
};

FakeModel load_test_model() {
  FakeModel model;
  model.shape.groups = {{0, 4000, 1}};
  model.shape.page_size = 4;
  model.shape.vocab_size = 97;
  model.shape.context = 256;
  return model;
}

TEST(load_test, one_request_has_the_latencies_of_its_steps) {
  double clock = 5;
  const auto now = [&] { return clock; };
  Engine engine(std::make_unique<TimedRunner>(load_test_model(), clock), {.now = now});
  const LoadTestReport report = run_load_test(engine, {.requests = 1, .prompt = 20, .answer = 11}, now, [](double) {});
  EXPECT_EQ(report.prompt_tokens, 20);
  EXPECT_EQ(report.answer_tokens, 11);
  EXPECT_NEAR(report.first_token.mean(), 0.020, 1e-9);
  EXPECT_NEAR(report.next_token.percentile(0.99), 0.001, 1e-9);
  EXPECT_NEAR(report.per_token.mean(), 0.001, 1e-9);
  EXPECT_NEAR(report.seconds, 0.030, 1e-9);
  EXPECT_EQ(report.stats.steps, 11);
}

TEST(load_test, arrivals_are_open_loop_at_the_given_rate) {
  double clock = 0, slept = 0;
  const auto now = [&] { return clock; };
  Engine engine(std::make_unique<TimedRunner>(load_test_model(), clock), {.now = now});
  const LoadTestOptions options{.requests = 400, .rate = 10, .prompt = 10, .answer = 5, .spread = 0.5, .shared = 4};
  const LoadTestReport report = run_load_test(engine, options, now, [&](double seconds) {
    clock += seconds;
    slept += seconds;
  });
  EXPECT_EQ(report.first_token.values.size(), 400U);
  EXPECT_NEAR(report.seconds, 40, 6);  // 400 arrivals at 10 per second
  EXPECT_GT(slept, 20);
  EXPECT_GT(report.stats.cached_tokens, 390 * 3);
  EXPECT_LT(report.first_token.percentile(0.5), report.first_token.percentile(0.99));
  EXPECT_EQ(engine.stats().pages_used, 0);
}

TEST(load_test, percentiles_are_ranks) {
  const Latencies latencies{{1, 2, 3, 4}};
  EXPECT_EQ(latencies.percentile(0.5), 2);
  EXPECT_EQ(latencies.percentile(0.99), 4);
  EXPECT_EQ(latencies.percentile(0), 1);
  EXPECT_EQ(latencies.mean(), 2.5);
  EXPECT_EQ(Latencies{}.percentile(0.5), 0);
}

TEST(load_test, refuses_what_makes_no_sense) {
  Engine engine(std::make_unique<FakeRunner>(load_test_model()));
  EXPECT_THROW(run_load_test(
                   engine, {.requests = 0}, [] { return 0.0; }, [](double) {}),
               Error);
  EXPECT_THROW(run_load_test(
                   engine, {.spread = 1}, [] { return 0.0; }, [](double) {}),
               Error);
  EXPECT_THROW(run_load_test(
                   engine, {.shared = 256}, [] { return 0.0; }, [](double) {}),
               Error);
}

}  // namespace
}  // namespace lamina::infer
