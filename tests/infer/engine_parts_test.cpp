#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "infer/fake_runner.h"
#include "lamina/infer/engine/engine_thread.h"
#include "lamina/infer/engine/fair_queue.h"
#include "lamina/infer/engine/prefix_tree.h"
#include "lamina/infer/engine/prompt_lookup.h"

namespace lamina::infer {
namespace {

TEST(page_pool, counts_references) {
  PagePool pool(2);
  const int32_t a = pool.take();
  const int32_t b = pool.take();
  EXPECT_NE(a, b);
  EXPECT_EQ(pool.take(), -1);
  pool.add_ref(a);
  pool.drop_ref(a);
  EXPECT_EQ(pool.free(), 0);
  pool.drop_ref(a);
  EXPECT_EQ(pool.take(), a);
  pool.drop_ref(b);
  EXPECT_THROW(pool.drop_ref(b), Error);
}

CacheShape tree_shape(std::vector<CacheGroup> groups, int64_t states = 0) {
  CacheShape shape;
  shape.groups = std::move(groups);
  shape.page_size = 2;
  shape.state_slots = states;
  return shape;
}

/// Publishes `tokens` in blocks of two, each with a fresh page per group, as a sequence that then ends.
std::vector<PrefixNode*> plant(PrefixTree& tree, const std::vector<TokenId>& tokens) {
  PrefixNode* node = tree.pin_root("");
  PrefixNode* root = node;
  std::vector<PrefixNode*> nodes;
  for (size_t at = 0; at < tokens.size(); at += 2) {
    node = tree.child(node, std::span(tokens).subspan(at, std::min<size_t>(2, tokens.size() - at)));
    nodes.push_back(node);
    tree.pin(node);
    for (size_t resource = 0; resource < tree.resources(); ++resource) {
      const int32_t page = tree.take(resource);
      if (page < 0) continue;
      tree.adopt(node, resource, page);
      tree.drop(resource, page);
    }
  }
  tree.touch(node);
  for (PrefixNode* made : nodes) tree.unpin(made);
  tree.unpin(root);
  return nodes;
}

TEST(prefix_tree, finds_the_longest_prefix_to_the_token) {
  PrefixTree tree(tree_shape({{0, 10, 1}}));
  plant(tree, {1, 2, 3, 4, 5});
  plant(tree, {1, 2, 7, 8});
  PrefixNode* root = tree.pin_root("");
  const auto found = [&](const std::vector<TokenId>& tokens, int64_t limit = 100) {
    return tree.find(root, tokens, limit).tokens;
  };
  EXPECT_EQ(found({1, 2, 3, 4, 5, 6}), 5);
  EXPECT_EQ(found({1, 2, 3, 9}), 3);
  EXPECT_EQ(found({1, 2, 7, 8, 5}), 4);
  EXPECT_EQ(found({1, 2, 3, 4, 5, 6}, 4), 4);
  EXPECT_EQ(found({1, 2, 3, 4, 5, 6}, 3), 3);
  EXPECT_EQ(found({2, 2}), 0);
  tree.unpin(root);
}

TEST(prefix_tree, evicts_the_least_recently_used_and_the_deepest_first) {
  PrefixTree tree(tree_shape({{0, 4, 1}}));
  plant(tree, {1, 2, 3, 4});
  plant(tree, {5, 6, 7, 8});
  PrefixNode* root = tree.pin_root("");
  const std::vector<TokenId> first{1, 2, 3, 4}, second{5, 6, 7, 8};
  tree.touch(tree.find(root, first, 4).blocks.back());
  EXPECT_GE(tree.take(0), 0);
  EXPECT_EQ(tree.find(root, second, 4).tokens, 2);
  EXPECT_EQ(tree.find(root, first, 4).tokens, 4);
  EXPECT_GE(tree.take(0), 0);
  EXPECT_EQ(tree.find(root, second, 4).tokens, 0);
  EXPECT_GE(tree.take(0), 0);
  EXPECT_EQ(tree.find(root, first, 4).tokens, 2);
  EXPECT_GE(tree.take(0), 0);
  EXPECT_EQ(tree.take(0), -1);
  EXPECT_EQ(tree.evictions(), 4);
  tree.unpin(root);
}

TEST(prefix_tree, a_hit_needs_every_group_and_the_state) {
  // A window of three tokens: after four tokens the next query sees the tokens 2 and 3, after six 4 and 5.
  PrefixTree windows(tree_shape({{0, 10, 1}, {3, 10, 1}}));
  const std::vector<TokenId> tokens{1, 2, 3, 4, 5, 6, 7};
  std::vector<PrefixNode*> nodes = plant(windows, {1, 2, 3, 4, 5, 6});
  PrefixNode* root = windows.pin_root("");
  EXPECT_EQ(windows.find(root, tokens, 6).tokens, 6);
  windows.hold(0, nodes[0]->held[0]);
  for (int taken = 0; taken < 8; ++taken) windows.take(1);  // evicts the last block's page of the windowed group
  EXPECT_EQ(windows.find(root, tokens, 6).tokens, 4);
  EXPECT_EQ(windows.find(root, tokens, 6).known, 6);
  windows.drop(0, nodes[0]->held[0]);
  windows.unpin(root);

  PrefixTree states(tree_shape({{0, 10, 1}}, 2));  // two slots: the first block's state is evicted
  plant(states, {1, 2, 3, 4, 5, 6});
  root = states.pin_root("");
  EXPECT_EQ(states.find(root, tokens, 6).tokens, 6);
  EXPECT_EQ(states.find(root, tokens, 5).tokens, 4);
  EXPECT_EQ(states.find(root, tokens, 3).tokens, 0);
  EXPECT_EQ(states.find(root, tokens, 3).known, 3);
  states.unpin(root);
}

std::shared_ptr<Answer> waiting_answer(const std::string& client, int priority = 0) {
  auto active = std::make_shared<ActiveRequest>();
  active->request.prompt = {1};
  active->request.client = client;
  active->request.priority = priority;
  return std::make_shared<Answer>(active, 0, nullptr);
}

TEST(fair_queue, serves_priorities_first_and_clients_by_tokens) {
  FairQueue queue(10);
  const auto urgent = waiting_answer("b", 5);
  for (int i = 0; i < 40; ++i) queue.push_back(waiting_answer("a"));
  for (int i = 0; i < 40; ++i) queue.push_back(waiting_answer("b"));
  queue.push_back(urgent);
  EXPECT_EQ(queue.next(), urgent);
  EXPECT_TRUE(queue.remove(*urgent));
  EXPECT_FALSE(queue.remove(*urgent));
  std::map<std::string, int64_t> served;
  for (int i = 0; i < 40; ++i) {
    const auto next = queue.next();
    const std::string client = next->request().client;
    const int64_t cost = client == "a" ? 30 : 6;
    queue.remove(*next);
    queue.charge(client, cost);
    served[client] += cost;
  }
  EXPECT_LE(std::abs(served["a"] - served["b"]), 10 + 30);
  EXPECT_EQ(queue.size(), 40);
  EXPECT_EQ(queue.all().size(), 40U);
}

TEST(fair_queue, a_preempted_answer_keeps_its_turn) {
  FairQueue queue(10);
  const auto first = waiting_answer("a");
  queue.push_back(waiting_answer("a"));
  queue.push_front(first);
  EXPECT_EQ(queue.next(), first);
}

TEST(prompt_lookup, continues_the_last_occurrence) {
  PromptLookup lookup;
  std::vector<TokenId> tokens{1, 2, 3, 4, 5, 1, 2, 3, 6, 7, 9, 1, 2, 3};
  lookup.append(tokens);
  EXPECT_EQ(lookup.draft(tokens, 2), (std::vector<TokenId>{6, 7}));
  tokens = {1, 2, 3, 4};
  EXPECT_TRUE(PromptLookup().draft(tokens, 4).empty());
  PromptLookup cycle;
  tokens = {5, 5, 5, 5, 5};
  cycle.append(tokens);
  EXPECT_EQ(cycle.draft(tokens, 8), std::vector<TokenId>(8, 5));
}

TEST(draft_length, follows_the_acceptance) {
  DraftLength draft(12);
  for (int i = 0; i < 20; ++i) draft.measure(draft.length(), draft.length());
  EXPECT_EQ(draft.length(), 12);
  for (int i = 0; i < 40 && draft.length() > 0; ++i) draft.measure(draft.length(), 0);
  EXPECT_EQ(draft.length(), 0);  // paused
  for (int i = 0; i < 30; ++i) draft.advance();
  EXPECT_GT(draft.length(), 0);  // tried again
}

TEST(update_queue, merges_what_was_not_taken) {
  UpdateQueue queue;
  Update update;
  for (int i = 0; i < 3; ++i) {
    update.answer = i % 2;
    update.tokens = {{i, 0, {}}};
    update.text = std::to_string(i);
    EXPECT_TRUE(queue.push(update));
  }
  update.answer = 0;
  update.tokens.clear();
  update.text.clear();
  update.finish = Finish::stop_token;
  update.request_done = true;
  EXPECT_TRUE(queue.push(update));
  EXPECT_EQ(queue.pop(0)->answer, 1);
  const std::optional<Update> last = queue.pop(0);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->text, "02");
  EXPECT_EQ(last->tokens.size(), 2U);
  EXPECT_TRUE(last->request_done);
  EXPECT_FALSE(queue.pop(0.001));
  queue.close();
  EXPECT_FALSE(queue.push(update));
}

FakeModel thread_model() {
  FakeModel model;
  model.shape.groups = {{0, 2000, 1}};
  model.shape.page_size = 4;
  model.shape.vocab_size = 67;
  model.shape.context = 256;
  model.shape.pipelined = true;
  return model;
}

TEST(engine_thread, serves_many_threads) {
  const FakeModel model = thread_model();
  EngineThread engine(std::make_unique<FakeRunner>(model), {.rows = 16, .step_tokens = 64});
  std::atomic<int> right = 0;
  std::vector<std::thread> clients;
  for (int t = 0; t < 4; ++t) {
    clients.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        Request request;
        for (int p = 0; p < 5 + i; ++p) request.prompt.push_back((t * 17 + p) % 67);
        request.max_tokens = 1 + i;
        request.client = std::to_string(t);
        const auto queue = engine.submit(request);
        std::vector<TokenId> ids;
        for (bool done = false; !done;) {
          const std::optional<Update> update = queue->pop(10);
          if (!update) break;
          for (const ScoredToken& token : update->tokens) ids.push_back(token.id);
          done = update->request_done;
        }
        std::vector<TokenId> want;
        for (const ScoredToken& token : model.answer(request, 0)) want.push_back(token.id);
        right += ids == want ? 1 : 0;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, 100);
  EXPECT_THROW(engine.submit(Request{}), Error);
}

TEST(engine_thread, cancels_what_nobody_reads_and_what_runs_at_the_end) {
  FakeModel model = thread_model();
  model.shape.context = 100000;
  model.shape.groups[0].pages = 30000;
  Request endless;
  endless.prompt = {1, 2, 3};
  endless.max_tokens = 99000;
  std::vector<Finish> finishes;
  std::atomic<int> ended = 0;
  {
    EngineThread engine(std::make_unique<FakeRunner>(model));
    const auto listener = [&](const Update& update) {
      if (update.finish) {
        finishes.push_back(*update.finish);
        ++ended;
      }
      return true;
    };
    const RequestId cancelled = engine.submit(endless, listener);
    engine.submit(endless, listener);
    const auto queue = engine.submit(endless);
    EXPECT_TRUE(queue->pop(10));
    queue->close();
    engine.cancel(cancelled);
    while (ended == 0 || engine.stats().running > 1) std::this_thread::yield();
  }
  EXPECT_EQ(finishes, (std::vector<Finish>{Finish::cancelled, Finish::cancelled}));
}

/// A runner whose steps wait for permission.
class SteppedRunner : public FakeRunner {
 public:
  using FakeRunner::FakeRunner;
  StepResult wait() override {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return allowed_ >= waiting_; });
    return FakeRunner::wait();
  }
  void allow_steps(int count) {
    const std::lock_guard lock(mutex_);
    allowed_ += count;
    changed_.notify_all();
  }
  /// Waits until step `number`, from 1 on, is in progress.
  void await_step(int number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= number; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0, allowed_ = 0;
};

TEST(engine_thread, a_cancel_frees_the_row_at_the_end_of_the_step_in_progress) {
  FakeModel model = thread_model();
  model.shape.pipelined = false;
  auto owned = std::make_unique<SteppedRunner>(model);
  SteppedRunner& runner = *owned;
  EngineThread engine(std::move(owned), {.rows = 4});
  Request request;
  request.prompt = {1, 2, 3};
  request.max_tokens = 50;
  std::promise<void> ended;
  const RequestId id = engine.submit(request, [&](const Update& update) {
    if (update.finish == Finish::cancelled) ended.set_value();
    return true;
  });
  runner.await_step(1);
  runner.allow_steps(2);
  runner.await_step(3);
  engine.cancel(id);
  runner.allow_steps(1);  // the step in progress, and none after it
  ended.get_future().get();
  while (engine.stats().running > 0) std::this_thread::yield();
  EXPECT_EQ(engine.stats().pages_used, 0);
  EXPECT_EQ(engine.stats().steps, 3);
}

TEST(engine_thread, runs_tasks_between_steps_while_idle_and_busy) {
  FakeModel model = thread_model();
  model.shape.context = 100000;
  model.shape.groups[0].pages = 30000;
  EngineThread engine(std::make_unique<FakeRunner>(model), {.rows = 2});
  std::promise<std::thread::id> idle, busy;
  engine.post([&] { idle.set_value(std::this_thread::get_id()); });
  const std::thread::id thread = idle.get_future().get();
  EXPECT_NE(thread, std::this_thread::get_id());
  Request endless;
  endless.prompt = {1, 2, 3};
  endless.max_tokens = 90000;
  const auto queue = engine.submit(endless);
  EXPECT_TRUE(queue->pop(10));
  engine.post([] { throw Error("dropped"); });
  engine.post([&] { busy.set_value(std::this_thread::get_id()); });
  EXPECT_EQ(busy.get_future().get(), thread);
  while (engine.running().empty()) std::this_thread::yield();
  const std::vector<RunningAnswer> running = engine.running();
  ASSERT_EQ(running.size(), 1U);
  EXPECT_EQ(running[0].prompt_tokens, 3);
  EXPECT_EQ(engine.stats().rows, 2);
  std::promise<void> hold;
  const std::shared_future<void> released = hold.get_future().share();
  std::atomic<bool> holding = false;
  engine.post([&holding, released] {
    holding = true;
    released.wait();
  });
  while (!holding) std::this_thread::yield();
  for (size_t i = 0; i < EngineThread::kMaxTasks; ++i) engine.post([] {});
  EXPECT_THROW(engine.post([] {}), QueueFull);
  hold.set_value();
  queue->close();
}

struct RecordingObserver final : EngineObserver {
  void on_step(const StepRecord& step) override { steps.push_back(step); }
  void on_answer(const AnswerRecord& answer) override { answers.push_back(answer); }
  std::vector<StepRecord> steps;
  std::vector<AnswerRecord> answers;
};

TEST(engine_observer, is_told_of_every_step_and_answer) {
  double clock = 0;
  RecordingObserver observer;
  EngineOptions options{.rows = 1, .step_tokens = 64, .now = [&] { return clock += 1; }};
  options.observer = &observer;
  Engine engine(std::make_unique<FakeRunner>(thread_model()), options);
  Request request;
  request.prompt = {1, 2, 3, 4};
  request.max_tokens = 3;
  engine.submit(request, {});
  engine.submit(request, {});
  const RequestId cancelled = engine.submit(request, {});
  engine.cancel(cancelled);
  engine.run_until_idle();
  ASSERT_EQ(observer.answers.size(), 3U);
  EXPECT_EQ(static_cast<int64_t>(observer.steps.size()), engine.stats().steps);
  int64_t tokens = 0;
  for (const StepRecord& step : observer.steps) {
    tokens += step.tokens;
    EXPECT_EQ(step.rows, 1);
    EXPECT_GT(step.seconds, 0);
  }
  EXPECT_EQ(tokens, engine.stats().prompt_tokens + 2 * (3 - 1));  // the last token of an answer is not computed
  EXPECT_EQ(observer.answers[0].finish, Finish::cancelled);
  EXPECT_FALSE(observer.answers[0].admitted || observer.answers[0].row >= 0);
  for (const size_t i : {1, 2}) {
    const AnswerRecord& answer = observer.answers[i];
    EXPECT_EQ(answer.generated, 3);
    EXPECT_EQ(answer.row, 0);
    ASSERT_TRUE(answer.admitted && answer.first_token);
    EXPECT_LT(answer.submitted, *answer.admitted);
    EXPECT_LT(*answer.admitted, *answer.first_token);
    EXPECT_LT(*answer.first_token, answer.ended);
  }
  EXPECT_GE(*observer.answers[2].admitted, observer.answers[1].ended);  // one row
}

TEST(engine_thread, a_failure_of_any_kind_ends_only_the_answers_of_its_step) {
  auto runner = std::make_unique<FakeRunner>(thread_model());
  runner->fail_at = 2;
  runner->fail = [] { throw std::bad_alloc(); };
  EngineThread engine(std::move(runner), {.rows = 2});
  Request request;
  request.prompt = {1, 2, 3};
  request.max_tokens = 8;
  for (const Finish expected : {Finish::error, Finish::max_tokens}) {
    const auto queue = engine.submit(request);
    std::optional<Finish> finish;
    std::string error;
    while (!finish) {
      const auto update = queue->pop(20);
      ASSERT_TRUE(update);
      finish = update->finish;
      error = update->error;
    }
    EXPECT_EQ(name_of(*finish), name_of(expected)) << error;
  }
}

}  // namespace
}  // namespace lamina::infer
