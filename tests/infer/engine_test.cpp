#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "infer/fake_runner.h"
#include "lamina/text/simple.h"

namespace lamina::infer {
namespace {

CacheShape fake_shape(std::vector<CacheGroup> groups, int64_t states = 0) {
  CacheShape shape;
  shape.groups = std::move(groups);
  shape.page_size = 4;
  shape.state_slots = states;
  shape.vocab_size = 101;
  shape.context = 512;
  shape.rows = 64;
  return shape;
}

/// Everything an engine delivered for one answer.
struct Collected {
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
  std::vector<ScoredToken> prompt;
  std::string text;
  std::optional<Finish> finish;
  std::string error;
  int64_t cached = 0;
};

struct Harness {
  explicit Harness(FakeModel fake, EngineOptions options = {}, std::unique_ptr<FakeRunner> draft = {}) : model(fake) {
    auto owned = std::make_unique<FakeRunner>(fake);
    runner = owned.get();
    engine = std::make_unique<Engine>(std::move(owned), std::move(options), std::move(draft));
  }

  RequestId submit(Request request) {
    return engine->submit(std::move(request), [this](const Update& update) {
      Collected& to = answers[{update.request, update.answer}];
      EXPECT_FALSE(to.finish) << "an update after the last one";
      for (const ScoredToken& token : update.tokens) {
        to.ids.push_back(token.id);
        to.logprobs.push_back(token.logprob);
      }
      to.prompt.insert(to.prompt.end(), update.prompt.begin(), update.prompt.end());
      to.text += update.text;
      to.finish = update.finish;
      to.error = update.error;
      to.cached = update.cached_tokens;
      return true;
    });
  }

  void expect_oracle(RequestId id, const Request& request) {
    for (int64_t index = 0; index < request.n; ++index) {
      std::vector<TokenId> ids;
      std::vector<float> logprobs;
      for (const ScoredToken& token : model.answer(request, index)) {
        ids.push_back(token.id);
        logprobs.push_back(token.logprob);
      }
      const Collected& got = answers[{id, index}];
      EXPECT_EQ(got.ids, ids) << "request " << id << ", answer " << index;
      if (request.logprobs >= 0) {
        EXPECT_EQ(got.logprobs, logprobs);
      }
      EXPECT_TRUE(got.finish.has_value());
    }
  }

  void expect_no_leak() {
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.running, 0);
    EXPECT_EQ(stats.waiting, 0);
    EXPECT_EQ(stats.pages_used, 0);
    EXPECT_EQ(stats.states_used, 0);
  }

  FakeModel model;
  FakeRunner* runner = nullptr;
  std::unique_ptr<Engine> engine;
  std::map<std::pair<RequestId, int64_t>, Collected> answers;
};

std::vector<TokenId> some_tokens(int64_t count, int64_t from = 0) {
  std::vector<TokenId> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>((from * 31 + i * i * 7 + i) % 101));
  return ids;
}

Request some_request(int64_t prompt, int64_t max_tokens, int64_t from = 0) {
  Request request;
  request.prompt = some_tokens(prompt, from);
  request.max_tokens = max_tokens;
  return request;
}

/// Shapes of all kinds of models: attention, windows, hybrids, pure state-space.
std::vector<CacheShape> all_shapes() {
  std::vector<CacheShape> shapes{fake_shape({{0, 400, 1}}), fake_shape({{0, 300, 1}, {6, 100, 1}}),
                                 fake_shape({{9, 90, 1}}), fake_shape({{0, 300, 1}}, 40), fake_shape({}, 40)};
  for (size_t i = 0, count = shapes.size(); i < count; ++i) {
    shapes.push_back(shapes[i]);
    shapes.back().pipelined = true;
  }
  return shapes;
}

TEST(engine, answers_equal_the_oracle_for_every_kind_of_cache) {
  int kind = 0;
  for (const CacheShape& shape : all_shapes()) {
    SCOPED_TRACE(kind++);
    Harness h({shape}, {.rows = 8, .step_tokens = 24});
    std::map<RequestId, Request> requests;
    for (int64_t i = 0; i < 20; ++i) {
      Request request = some_request(1 + i * 3, 1 + i, i % 3);
      request.sampler.seed = static_cast<uint64_t>(i);
      request.logprobs = i % 4 - 1;
      if (i % 5 == 0) request.n = 3;
      if (i % 7 == 3) request.sampler.repetition_penalty = 1.5;
      requests[h.submit(request)] = request;
    }
    h.engine->run_until_idle();
    for (const auto& [id, request] : requests) h.expect_oracle(id, request);
    h.expect_no_leak();
    EXPECT_LE(h.runner->most_tokens, 24);
  }
}

TEST(engine, a_prefix_is_reused_to_the_token) {
  Harness h({fake_shape({{0, 100, 1}})});
  Request first = some_request(30, 4);
  h.submit(first);
  h.engine->run_until_idle();
  Request second = first;
  second.prompt.resize(27);
  second.prompt.back() = 99;
  const RequestId id = h.submit(second);
  h.engine->run_until_idle();
  h.expect_oracle(id, second);
  EXPECT_EQ((h.answers[{id, 0}].cached), 26);  // six pages, and two tokens of the seventh by copy-on-write

  Request third = first;  // another client's secrets stay its own
  third.cache_salt = "other";
  const RequestId other = h.submit(third);
  h.engine->run_until_idle();
  EXPECT_EQ((h.answers[{other, 0}].cached), 0);
  h.expect_oracle(other, third);
}

TEST(engine, the_next_turn_reuses_the_answer) {
  for (const bool states : {false, true}) {
    Harness h({fake_shape({{0, 100, 1}, {8, 60, 1}}, states ? 20 : 0)});
    const Request first = some_request(21, 10);
    const RequestId id = h.submit(first);
    h.engine->run_until_idle();
    Request second = first;
    const std::vector<TokenId>& answer = h.answers[{id, 0}].ids;
    second.prompt.insert(second.prompt.end(), answer.begin(), answer.end());
    second.prompt.push_back(5);
    const RequestId next = h.submit(second);
    h.engine->run_until_idle();
    h.expect_oracle(next, second);
    EXPECT_EQ((h.answers[{next, 0}].cached), 30) << "all but the last sampled token, which was never computed";
  }
}

TEST(engine, answers_of_one_prompt_share_its_pages) {
  Harness h({fake_shape({{0, 60, 1}})}, {.rows = 8});
  Request request = some_request(81, 6);
  request.n = 8;
  const RequestId id = h.submit(request);
  h.engine->run_until_idle();
  h.expect_oracle(id, request);
  EXPECT_EQ(h.engine->stats().preemptions, 0);  // 21 pages once and 3 pages each fit; 8 × 22 would not
  EXPECT_EQ((h.answers[{id, 7}].cached), 80);
}

TEST(engine, state_snapshots_serve_shared_prefixes) {
  Harness h({fake_shape({}, 40)}, {.step_tokens = 16});
  const std::vector<TokenId> system = some_tokens(22);
  int64_t cached = 0;
  for (TokenId i = 0; i < 3; ++i) {
    Request request = some_request(1, 3);
    request.prompt = system;
    for (TokenId j = 0; j < 9; ++j) request.prompt.push_back((i * 13 + j) % 101);
    const RequestId id = h.submit(request);
    h.engine->run_until_idle();
    h.expect_oracle(id, request);
    cached = h.answers[{id, 0}].cached;
  }
  EXPECT_EQ(cached, 20);  // the second request found the branch and left a snapshot at its last whole page
}

TEST(engine, preemption_changes_no_token) {
  int kind = 0;
  for (CacheShape shape : all_shapes()) {
    SCOPED_TRACE(kind++);
    for (CacheGroup& group : shape.groups) group.pages = std::max<int64_t>(24, group.window / 4 + 6);
    if (shape.groups.empty()) continue;
    Harness h({shape}, {.rows = 8, .step_tokens = 16});
    std::map<RequestId, Request> requests;
    for (int64_t i = 0; i < 12; ++i) {
      Request request = some_request(9, 60, i);
      request.priority = static_cast<int>(i % 3);
      requests[h.submit(request)] = request;
    }
    h.engine->run_until_idle();
    for (const auto& [id, request] : requests) h.expect_oracle(id, request);
    h.expect_no_leak();
    if (shape.groups[0].window == 0) {
      EXPECT_GT(h.engine->stats().preemptions, 0);
    }
  }
}

TEST(engine, speculation_changes_no_token) {
  FakeModel model{fake_shape({{0, 400, 1}}), true};
  model.shape.vocab_size = 5;
  int64_t steps[2] = {};
  for (const int64_t draft : {0, 8}) {
    Harness h(model, {.draft_tokens = draft});
    for (uint64_t seed = 0; seed < 8; ++seed) {
      Request request = some_request(20, 120);
      for (TokenId& id : request.prompt) id %= 5;
      request.sampler.seed = seed;
      if (seed == 3) request.mask = std::make_shared<FakeMask>(5);
      const RequestId id = h.submit(request);
      h.engine->run_until_idle();
      h.expect_oracle(id, request);
    }
    steps[draft > 0] = h.runner->steps;
    if (draft > 0) {
      EXPECT_GT(h.engine->stats().accepted * 2, h.engine->stats().drafted);
    }
  }
  EXPECT_LT(steps[1] * 3, steps[0] * 2);
}

FakeModel repetitive_model(const CacheShape& shape) {
  FakeModel model{shape, true};
  model.shape.vocab_size = 5;
  return model;
}

Request repetitive_request(uint64_t seed, int64_t max_tokens) {
  Request request = some_request(20, max_tokens);
  for (TokenId& id : request.prompt) id %= 5;
  request.sampler.seed = seed;
  request.logprobs = static_cast<int64_t>(seed % 3) - 1;
  if (seed == 3) request.mask = std::make_shared<FakeMask>(5);
  return request;
}

/// Models with states roll them back; every kind of target takes drafts of every kind of draft model.
TEST(engine, a_draft_model_changes_no_token) {
  for (const CacheShape& shape : all_shapes()) {
    const FakeModel target = repetitive_model(shape);
    for (const CacheShape& draft_shape : all_shapes()) {
      FakeModel draft = repetitive_model(draft_shape);
      draft.salt = 2;
      draft.shape.rows = 6;
      Harness h(target, {.step_tokens = 64}, std::make_unique<FakeRunner>(draft));
      std::map<RequestId, Request> requests;
      for (uint64_t seed = 0; seed < 10; ++seed) {
        const Request request = repetitive_request(seed, 60);
        requests[h.submit(request)] = request;
        for (int step = 0; step < 12; ++step) h.engine->step();
      }
      h.engine->run_until_idle();
      for (const auto& [id, request] : requests) h.expect_oracle(id, request);
      h.expect_no_leak();
      EXPECT_GT(h.engine->stats().accepted * 2, h.engine->stats().drafted);
      EXPECT_GT(h.engine->stats().draft_steps, 0);
    }
  }
}

TEST(engine, a_draft_model_saves_steps_and_pauses_if_it_is_wrong) {
  const FakeModel target = repetitive_model(fake_shape({{0, 400, 1}}));
  FakeModel wrong{target.shape, false, 3};
  int64_t steps[3] = {};
  int64_t draft_steps[3] = {};
  for (const int kind : {0, 1, 2}) {
    const FakeModel& draft = kind == 1 ? target : wrong;
    Harness h(target, {}, kind == 0 ? nullptr : std::make_unique<FakeRunner>(draft));
    const Request request = repetitive_request(1, 200);
    const RequestId id = h.submit(request);
    h.engine->run_until_idle();
    h.expect_oracle(id, request);
    steps[kind] = h.runner->steps;
    draft_steps[kind] = h.engine->stats().draft_steps;
    if (kind == 1) {  // the same model draws the same tokens
      EXPECT_EQ(h.engine->stats().accepted, h.engine->stats().drafted);
    }
  }
  EXPECT_LT(steps[1] * 5, steps[0]);
  EXPECT_LT(draft_steps[2] * 2, steps[0]);  // paused most of the time
}

TEST(engine, a_draft_model_that_cannot_follow_is_not_used) {
  const FakeModel target = repetitive_model(fake_shape({{0, 400, 1}}));
  for (const int kind : {0, 1, 2}) {
    FakeModel draft = target;
    if (kind == 0) draft.shape.context = 24;          // answers outgrow it
    if (kind == 1) draft.shape.groups = {{0, 4, 1}};  // its memory is short
    if (kind == 2) draft.shape.vocab_size = 3;        // it cannot read all tokens
    Harness h(target, {}, std::make_unique<FakeRunner>(draft));
    const Request request = repetitive_request(1, 80);
    const RequestId id = h.submit(request);
    h.engine->run_until_idle();
    h.expect_oracle(id, request);
    EXPECT_LE(h.engine->stats().drafted, 16);
  }
}

TEST(engine, many_answers_are_not_drafted_for) {
  const FakeModel target = repetitive_model(fake_shape({{0, 400, 1}}));
  EngineOptions options;
  options.draft_rows = 3;
  Harness h(target, options, std::make_unique<FakeRunner>(target));
  for (uint64_t seed = 10; seed < 14; ++seed) h.submit(repetitive_request(seed, 30));
  h.engine->run_until_idle();
  EXPECT_EQ(h.engine->stats().drafted, 0);
}

TEST(engine, prompt_lookup_rolls_states_back) {
  for (const CacheShape& shape : {fake_shape({{0, 300, 1}}, 40), fake_shape({}, 40), fake_shape({{6, 90, 1}}, 40)}) {
    Harness h(repetitive_model(shape), {.draft_tokens = 6});
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const Request request = repetitive_request(seed, 120);
      const RequestId id = h.submit(request);
      h.engine->run_until_idle();
      h.expect_oracle(id, request);
    }
    h.expect_no_leak();
    EXPECT_GT(h.engine->stats().drafted, h.engine->stats().accepted);
    EXPECT_GT(h.engine->stats().accepted, 0);
  }
}

TEST(engine, grammars_are_kept_and_forced_tokens_cost_no_step) {
  for (const bool pipelined : {false, true}) {
    FakeModel model{fake_shape({{0, 400, 1}})};
    model.shape.pipelined = pipelined;
    Harness h(model);
    Request request = some_request(7, 50);
    request.mask = std::make_shared<FakeMask>(101);
    request.stop_tokens = {0};
    request.min_tokens = 30;
    const RequestId id = h.submit(request);
    const RequestId plain = h.submit(some_request(9, 20));
    h.engine->run_until_idle();
    h.expect_oracle(id, request);
    h.expect_oracle(plain, some_request(9, 20));
    EXPECT_GT(h.engine->stats().forced, 10);
    EXPECT_LT(h.runner->steps, 45);
  }
}

TEST(engine, prompts_are_scored_in_chunks) {
  for (const bool states : {false, true}) {
    Harness h({fake_shape({{0, 100, 1}}, states ? 9 : 0)}, {.step_tokens = 7});
    for (const int64_t from : {1, 12}) {
      Request request = some_request(30, 0);
      request.context = 29;  // the last token is only predicted
      request.prompt_logprobs = 2;
      request.prompt_logprobs_from = from;
      const RequestId id = h.submit(request);
      h.engine->run_until_idle();
      const Collected& got = h.answers[{id, 0}];
      EXPECT_EQ(got.finish, Finish::max_tokens);
      ASSERT_EQ(got.prompt.size(), static_cast<size_t>(30 - from));
      for (int64_t i = from; i < 30; ++i) {
        const std::span<const TokenId> before(request.prompt.data(), static_cast<size_t>(i));
        const ScoredToken want = h.model.score(h.model.logits(before), request.prompt[static_cast<size_t>(i)], 2);
        EXPECT_EQ(got.prompt[static_cast<size_t>(i - from)].logprob, want.logprob);
        EXPECT_EQ(got.prompt[static_cast<size_t>(i - from)].top, want.top);
      }
    }
    h.expect_no_leak();
  }
}

TEST(engine, answers_end_as_asked) {
  Harness h({fake_shape({{0, 100, 1}})});
  Request request = some_request(5, 20);
  const std::vector<ScoredToken> all = h.model.answer(request, 0);
  request.stop_tokens = {all[7].id};
  const RequestId stopped = h.submit(request);
  request.ignore_eos = true;
  const RequestId ignored = h.submit(request);
  request = some_request(5, 20);
  request.context = 9;
  const RequestId full = h.submit(request);
  request = some_request(5, 20);
  request.bias = {{42, 100.0F}};
  const RequestId biased = h.submit(request);
  int64_t seen = 0;
  std::optional<Finish> asked;
  h.engine->submit(some_request(5, 20), [&](const Update& update) {
    seen += static_cast<int64_t>(update.tokens.size());
    asked = update.finish;
    return seen < 3;
  });
  h.engine->run_until_idle();
  EXPECT_EQ((h.answers[{stopped, 0}].finish), Finish::stop_token);
  EXPECT_LE((h.answers[{stopped, 0}].ids.size()), 7U);
  EXPECT_EQ((h.answers[{ignored, 0}].finish), Finish::max_tokens);
  EXPECT_EQ((h.answers[{full, 0}].finish), Finish::context);
  EXPECT_EQ((h.answers[{full, 0}].ids.size()), 4U);
  EXPECT_EQ((h.answers[{biased, 0}].ids), std::vector<TokenId>(20, 42));
  EXPECT_EQ(asked, Finish::asked);
  EXPECT_EQ(seen, 3);
  h.expect_no_leak();
}

TEST(engine, text_ends_before_a_stop_string) {
  FakeModel model{fake_shape({{0, 100, 1}})};
  model.shape.vocab_size = 256;
  const auto tokenizer = text::byte_tokenizer();
  Harness h(model, {.tokenizer = tokenizer.get()});
  Request request = some_request(5, 30);
  request.text = true;
  const std::vector<ScoredToken> all = model.answer(request, 0);
  std::vector<TokenId> ids;
  for (const ScoredToken& token : all) ids.push_back(token.id);
  const std::string whole = tokenizer->decode(ids);
  ASSERT_EQ(whole.find(whole.substr(12, 3)), 12U);
  const RequestId plain = h.submit(request);
  request.stop_strings = {whole.substr(12, 3)};
  const RequestId stopped = h.submit(request);
  h.engine->run_until_idle();
  EXPECT_EQ((h.answers[{plain, 0}].text), whole);
  EXPECT_EQ((h.answers[{stopped, 0}].text), whole.substr(0, 12));
  EXPECT_EQ((h.answers[{stopped, 0}].finish), Finish::stop_string);
  EXPECT_LT((h.answers[{stopped, 0}].ids.size()), 20U);  // an incomplete character may be pending
}

TEST(engine, cancels_and_deadlines_end_answers_and_free_memory) {
  for (const bool pipelined : {false, true}) {
    double time = 0;
    FakeModel model{fake_shape({{0, 100, 1}})};
    model.shape.pipelined = pipelined;
    Harness h(model, {.rows = 2, .step_tokens = 8, .now = [&] { return time; }});
    Request request = some_request(20, 200);
    request.n = 2;
    const RequestId running = h.submit(request);
    const RequestId waiting = h.submit(some_request(6, 3));
    request = some_request(30, 200, 1);
    request.timeout = 10;
    const RequestId late = h.submit(request);
    for (; time < 12; ++time) h.engine->step();
    h.engine->cancel(running);
    h.engine->cancel(12345);
    h.engine->run_until_idle();
    EXPECT_EQ((h.answers[{running, 0}].finish), Finish::cancelled);
    EXPECT_EQ((h.answers[{running, 1}].finish), Finish::cancelled);
    EXPECT_EQ((h.answers[{late, 0}].finish), Finish::deadline);
    EXPECT_EQ((h.answers[{waiting, 0}].finish), Finish::max_tokens);
    h.expect_no_leak();
    EXPECT_EQ(h.engine->stats().cancelled, 2);
    EXPECT_EQ(h.engine->stats().expired, 1);
  }
}

TEST(engine, a_failed_step_ends_its_answers_and_the_engine_goes_on) {
  Harness h({fake_shape({{0, 100, 1}})});
  const RequestId first = h.submit(some_request(20, 10));
  h.runner->fail_at = 3;
  EXPECT_THROW(h.engine->run_until_idle(), Error);
  EXPECT_EQ((h.answers[{first, 0}].finish), Finish::error);
  EXPECT_EQ((h.answers[{first, 0}].error), "fake runner: failed as asked");
  const RequestId second = h.submit(some_request(20, 10));
  h.engine->run_until_idle();
  h.expect_oracle(second, some_request(20, 10));
  EXPECT_EQ((h.answers[{second, 0}].cached), 0);  // pages of the failed step are not reused
  h.expect_no_leak();
}

TEST(engine, requests_that_cannot_be_served_are_refused) {
  Harness h({fake_shape({{0, 10, 1}})}, {.max_waiting = 2});
  const auto refused = [&](const std::function<void(Request&)>& change, const char* message) {
    Request request = some_request(5, 5);
    change(request);
    try {
      h.engine->submit(request, {});
      ADD_FAILURE() << "accepted; expected: " << message;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  };
  refused([](Request& r) { r.prompt.clear(); }, "prompt is empty");
  refused([](Request& r) { r.prompt[2] = 101; }, "prompt token 101 is outside");
  refused([](Request& r) { r.stop_tokens = {-1}; }, "stop token -1 is outside");
  refused([](Request& r) { r.bias = {{3, std::numeric_limits<float>::quiet_NaN()}}; }, "not a number");
  refused([](Request& r) { r.max_tokens = 0; }, "max_tokens 0");
  refused([](Request& r) { r.n = 0; }, "n is 0");
  refused([](Request& r) { r.n = 3; }, "at most 2");
  refused([](Request& r) { r.min_tokens = 6; }, "min_tokens 6");
  refused([](Request& r) { r.sampler.top_p = 0; }, "top-p 0");
  refused([](Request& r) { r.stop_strings = {"x"}; }, "need a tokenizer");
  refused([](Request& r) { r.prompt = some_tokens(40); }, "cache memory holds 40");
  refused([](Request& r) { r.prompt = some_tokens(512); }, "the context 512");
  refused([](Request& r) { r.timeout = 0; }, "timeout of 0");
  h.submit(some_request(5, 5));
  h.submit(some_request(5, 5));
  EXPECT_THROW(h.submit(some_request(5, 5)), QueueFull);
  EXPECT_EQ(h.engine->stats().rejected, 1);
}

}  // namespace
}  // namespace lamina::infer
