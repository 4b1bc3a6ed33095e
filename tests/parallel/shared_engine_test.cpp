// The engine over ranks that share a model: every request gets the tokens that it gets alone from the whole model.
#include <chrono>
#include <future>
#include <thread>

#include "lamina/comm/local.h"
#include "lamina/infer/engine/engine_thread.h"
#include "parallel/shared_engine_support.h"

namespace lamina::testing {
namespace {

/// Runs `lead` on rank 0, with its shard of `whole`, while the others follow.
void run_shared(int ranks, const nn::Model& whole, const infer::ModelRunnerOptions& options,
                const std::function<void(nn::Model&, infer::ModelRunnerOptions)>& lead,
                const comm::LocalOptions& local = {}) {
  comm::run_local_ranks(
      ranks,
      [&](comm::Communicator& c) {
        const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
        const auto parallel = std::make_shared<nn::TensorParallel>(own, false);
        const auto model = shard_of(whole, parallel);
        if (c.rank() > 0) {
          infer::StepFollower follower(parallel);
          follower.add(*model, options);
          follower.run();
          return;
        }
        infer::ModelRunnerOptions leading = options;
        leading.leader = std::make_shared<infer::StepLeader>(parallel);
        lead(*model, leading);
        leading.leader->stop();
      },
      local);
}

/// `stats`: what the engine did.
void expect_same_answers(nn::Model& whole, int ranks, infer::EngineStats& stats) {
  const infer::ModelRunnerOptions full{.rows = 4, .context = 64, .page_size = 16};
  infer::ModelRunnerOptions options = full;
  options.rows = infer::ModelRunner(whole, {.rows = 1}).shape().state_slots > 0 ? 8 : 2;  // snapshots take slots
  // Few pages: requests share prefixes, evict them, and are preempted.
  options.cache_bytes = infer::ModelRunner(whole, options).cache_bytes() / ranks;
  options.rows = 4;
  GivenAnswers answers;
  std::map<RequestId, Request> requests;
  run_shared(ranks, whole, options, [&](nn::Model& model, const infer::ModelRunnerOptions& leading) {
    infer::Engine engine(std::make_unique<infer::ModelRunner>(model, leading),
                         {.rows = 4, .step_tokens = 24, .draft_tokens = 4});
    for (uint64_t i = 0; i < 14; ++i) {
      const Request request = varied_request(i);
      requests[engine.submit(request, listen_into(answers))] = request;
    }
    for (int step = 0; step < 6; ++step) engine.step();
    engine.cancel(2);
    engine.cancel(9);
    engine.run_until_idle();
    stats = engine.stats();
  });
  for (const auto& [id, request] : requests) {
    for (const auto& [key, alone] : answered_alone(whole, request)) {
      SCOPED_TRACE(str("request ", id, ", answer ", key.second));
      const GivenAnswer& got = answers[{id, key.second}];
      if (got.finish == Finish::cancelled) {
        ASSERT_LE(got.ids.size(), alone.ids.size());
        EXPECT_TRUE(std::equal(got.ids.begin(), got.ids.end(), alone.ids.begin()));
      } else {
        ASSERT_EQ(got.ids, alone.ids);
        EXPECT_EQ(got.finish, alone.finish);
        // Prompt scores of a chunk are those of its length if the RoPE frequencies depend on it.
        if (!whole.depends_on_length()) expect_near(got.prompt, alone.prompt);
      }
      expect_near(got.logprobs, alone.logprobs, got.ids.size());
    }
  }
  EXPECT_GT(stats.cancelled, 0);
  EXPECT_EQ(stats.pages_used, 0);
  EXPECT_EQ(stats.states_used, 0);
  if (!whole.depends_on_length()) {
    EXPECT_GT(stats.cached_tokens, 0);
  }
}

struct SharedCase {
  const char* preset;
  int ranks;
  std::vector<std::string> changes;
};

TEST(SharedEngine, AnswersEqualThoseOfTheWholeModel) {
  const std::string mixer = "layers[0].pattern[0].mixer.";
  const SharedCase cases[] = {
      {"llama-tiny", 2, {}},
      {"llama-tiny", 4, {}},  // two ranks hold the same KV head
      {"llama-tiny", 2, {mixer + "n_heads=6", mixer + "n_kv_heads=3", mixer + "head_dim=8"}},  // two KV heads and one
      {"gemma-2-tiny", 2, {}},                                                                 // windows and soft caps
      {"mistral-tiny", 2, {}},                                                                 // a window in all layers
      {"gpt2-tiny", 4, {}},                                                                    // learned positions
      {"bloom-tiny", 2, {}},                                                                   // ALiBi
      {"deepseek-tiny", 2, {}},  // latent attention, experts
      {"mixtral-tiny", 2, {}},
      {"phi-3-tiny", 2, {}},  // recomputes its cache when the frequencies change, beyond 32 tokens
      {"mamba-tiny", 2, {}},
      {"mamba2-tiny", 2, {mixer + "norm_groups=4"}},
      {"hybrid-tiny", 2, {}},
      {"jamba-tiny", 2, {}},
      {"falcon-h1-tiny", 2, {}},
  };
  infer::EngineStats sum;
  for (const SharedCase& one : cases) {
    SCOPED_TRACE(str(one.preset, " on ", one.ranks, " ranks"));
    nn::Model whole(changed(one.preset, one.changes).spec, Device::cpu(1));
    scramble(whole);
    infer::EngineStats stats;
    expect_same_answers(whole, one.ranks, stats);
    sum.preemptions += stats.preemptions;
    sum.evictions += stats.evictions;
    sum.accepted += stats.accepted;
    sum.drafted += stats.drafted;
  }
  EXPECT_GT(sum.preemptions, 0);
  EXPECT_GT(sum.evictions, 0);
  EXPECT_GT(sum.accepted, 0);
  EXPECT_GT(sum.drafted, sum.accepted);  // wrong drafts are rolled back
}

/// With 3 KV heads one of two ranks holds 2 and has room for fewer pages. Page numbers are valid on both.
TEST(SharedEngine, RanksAgreeOnTheSmallestCache) {
  const std::string mixer = "layers[0].pattern[0].mixer.";
  const NamedSpec spec = changed("llama-tiny", {mixer + "n_heads=6", mixer + "n_kv_heads=3", mixer + "head_dim=8"});
  nn::Model whole(spec.spec, Device::cpu(1));
  const infer::ModelRunner one(whole, {.rows = 4, .context = 64, .page_size = 16});
  const int64_t page = one.shape().groups[0].bytes_per_page;
  const infer::ModelRunnerOptions options{.rows = 4, .context = 64, .cache_bytes = 6 * page, .page_size = 16};
  run_shared(2, whole, options, [&](nn::Model& model, const infer::ModelRunnerOptions& leading) {
    const infer::ModelRunner runner(model, leading);
    EXPECT_EQ(runner.shape().groups[0].pages, 9);  // 6 · 3 / 2; the other rank could hold 16
  });
}

TEST(SharedEngine, IdleRanksOutliveTheDeadline) {
  nn::Model whole(changed("llama-tiny", {}).spec, Device::cpu(1));
  const auto idle = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1500)); };
  GivenAnswers answers;
  run_shared(2, whole, {.rows = 2},
             [&](nn::Model& model, const infer::ModelRunnerOptions& leading) {
               infer::EngineThread engine(std::make_unique<infer::ModelRunner>(model, leading));
               for (int i = 0; i < 2; ++i) {
                 idle();
                 const auto updates = engine.submit(varied_request(0));
                 std::optional<infer::Update> update;
                 do update = updates->pop(10);
                 while (update && !update->request_done);
                 ASSERT_TRUE(update);
                 EXPECT_EQ(update->finish, Finish::max_tokens) << update->error;
               }
               idle();
             },
             {.deadline = 1});
}

TEST(SharedEngine, ModelsOfSeveralThreadsTakeTurns) {
  nn::Model first(changed("llama-tiny", {}).spec, Device::cpu(1));
  nn::Model second(changed("mamba-tiny", {}).spec, Device::cpu(1));
  scramble(first);
  scramble(second, 8);
  const infer::ModelRunnerOptions options{.rows = 3, .page_size = 16};
  comm::run_local_ranks(2, [&](comm::Communicator& c) {
    const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
    const auto parallel = std::make_shared<nn::TensorParallel>(own, false);
    const std::unique_ptr<nn::Model> shards[] = {shard_of(first, parallel), shard_of(second, parallel)};
    if (c.rank() > 0) {
      infer::StepFollower follower(parallel);
      for (const auto& model : shards) follower.add(*model, options);
      follower.run();
      return;
    }
    infer::ModelRunnerOptions leading = options;
    leading.leader = std::make_shared<infer::StepLeader>(parallel);
    {
      std::vector<std::unique_ptr<infer::EngineThread>> engines;
      for (const auto& model : shards) {
        engines.push_back(std::make_unique<infer::EngineThread>(std::make_unique<infer::ModelRunner>(*model, leading)));
      }
      std::vector<std::vector<std::shared_ptr<infer::UpdateQueue>>> queues(2);
      for (uint64_t i = 0; i < 6; ++i) {
        for (size_t e = 0; e < 2; ++e) queues[e].push_back(engines[e]->submit(varied_request(i)));
      }
      for (uint64_t i = 0; i < 6; ++i) {
        for (size_t e = 0; e < 2; ++e) {
          GivenAnswers got;
          const infer::Listener listener = listen_into(got);
          for (auto update = queues[e][i]->pop(20); update; update = queues[e][i]->pop(20)) {
            update->request = 1;
            listener(*update);
            if (update->request_done) break;
          }
          for (const auto& [key, alone] : answered_alone(e == 0 ? first : second, varied_request(i))) {
            EXPECT_EQ(got[key].ids, alone.ids) << "engine " << e << ", request " << i;
          }
        }
      }
    }
    leading.leader->stop();
  });
}

TEST(SharedEngine, DraftsOfAWholeModelOnRank0ChangeNothing) {
  nn::Model whole(changed("hybrid-tiny", {}).spec, Device::cpu(1));
  scramble(whole);
  nn::Model draft(whole.spec(), Device::cpu(1));
  scramble(draft);
  draft.store_weights(nn::parse_weight_formats("q8"));
  const infer::ModelRunnerOptions options{.rows = 3, .context = 64, .page_size = 16};
  GivenAnswers answers;
  run_shared(2, whole, options, [&](nn::Model& model, const infer::ModelRunnerOptions& leading) {
    auto drafts = infer::draft_runner(&draft, leading, 3);
    infer::Engine engine(std::make_unique<infer::ModelRunner>(model, leading), {.step_tokens = 32}, std::move(drafts));
    for (uint64_t i = 0; i < 5; ++i) engine.submit(varied_request(i), listen_into(answers));
    engine.run_until_idle();
    EXPECT_GT(engine.stats().acceptance(), 0.5);
  });
  for (uint64_t i = 0; i < 5; ++i) {
    for (const auto& [key, alone] : answered_alone(whole, varied_request(i))) {
      EXPECT_EQ((answers[{static_cast<RequestId>(i + 1), key.second}].ids), alone.ids) << "request " << i;
    }
  }
}

/// A follower that fails ends rank 0's step with its reason; the answers end with that error.
TEST(SharedEngine, AFailedRankEndsAllWithItsReason) {
  nn::Model whole(changed("llama-tiny", {}).spec, Device::cpu(1));
  GivenAnswers answers;
  std::promise<void> started;
  const auto run = [&] {
    comm::run_local_ranks(2, [&](comm::Communicator& c) {
      const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
      const auto parallel = std::make_shared<nn::TensorParallel>(own, false);
      const auto model = shard_of(whole, parallel);
      const infer::ModelRunnerOptions options{.rows = 2};
      if (c.rank() > 0) {
        infer::StepFollower follower(parallel);
        follower.add(*model, options);
        started.get_future().wait();
        LAMINA_CHECK(false, "the disk of this rank is on fire");
      }
      infer::ModelRunnerOptions leading = options;
      leading.leader = std::make_shared<infer::StepLeader>(parallel);
      infer::Engine engine(std::make_unique<infer::ModelRunner>(*model, leading));
      engine.submit(varied_request(0), listen_into(answers));
      started.set_value();
      EXPECT_THROW(engine.run_until_idle(), comm::CommError);
    });
  };
  EXPECT_THROW(run(), Error);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers.begin()->second.finish, Finish::error);
  EXPECT_NE(answers.begin()->second.error.find("on fire"), std::string::npos) << answers.begin()->second.error;
}

TEST(SharedEngine, MessagesSurviveAndDamagedOnesAreRefused) {
  infer::StepMessage message;
  message.model = 3;
  message.changes = {{infer::CacheChange::Kind::copy_page, 1, 4, 5}, {infer::CacheChange::Kind::clear_state, 0, 7, 0}};
  message.step = {{5, 6, 7}, {0, 9}, {2, 1}, {-1, -1}, {{0, 1}, {-1, 3}}, {1, 2}};
  const std::vector<int32_t> numbers = encode(message);
  const infer::StepMessage read = infer::decode(numbers);
  EXPECT_EQ(encode(read), numbers);
  EXPECT_EQ(read.model, 3);
  EXPECT_EQ(read.changes[1].from, 7);
  EXPECT_EQ(read.step.ids, message.step.ids);
  EXPECT_EQ(read.step.tables, message.step.tables);
  EXPECT_EQ(read.step.wanted, message.step.wanted);
  for (size_t length = 0; length < numbers.size(); ++length) {
    EXPECT_THROW(infer::decode(std::span(numbers).first(length)), Error) << length;
  }
  std::vector<int32_t> longer = numbers;
  longer.push_back(0);
  EXPECT_THROW(infer::decode(longer), Error);
}

}  // namespace
}  // namespace lamina::testing
