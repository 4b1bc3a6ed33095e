// Models with retrieval: against an oracle in plain loops, and properties for any weights.
#include <gtest/gtest.h>

#include <random>

#include "lamina/autograd/tape.h"
#include "nn/model_support.h"
#include "nn/retrieval_oracle.h"
#include "support/error_of.h"

namespace lamina::testing {
namespace {

const Device kCpu = Device::cpu(2);  // NOLINT(cert-err58-cpp): a test's constant

/// One spec per switch of retrieval; all within what the oracle supports.
std::vector<NamedSpec> retrieval_specs() {
  const std::string first = "retrieval.layers[0].pattern[0].";
  return {
      changed("retro-tiny", {}),
      changed("retro-tiny", {first + "cross=null"}),  // a neighbour encoder that does not see the chunk
      changed("retro-tiny", {"retrieval.d_model=32", "retrieval.layers[0].pattern[*].mixer.n_heads=4",
                             first + "cross.n_heads=4"}),  // shares the token table
      changed("retro-tiny", {"retrieval.at.cross.position=none", first + "cross.position=none"}),
      changed("retro-tiny", {"retrieval.at.cross.bias=true", first + "cross.bias=true"}),
      changed("retro-tiny", {"retrieval.chunk=1", "retrieval.neighbours=1"}),
      changed("retro-tiny", {"retrieval.chunk=5", "retrieval.length=3", "retrieval.at={\"first\":1,\"every\":2}"}),
      changed("llama-tiny", {"retrieval={\"chunk\":3,\"neighbours\":2,\"length\":4,\"at\":{\"first\":2}}"}),
  };
}

std::unique_ptr<nn::Model> f64_model(const arch::ArchSpec& spec) {
  auto model = std::make_unique<nn::Model>(spec, kCpu, nn::ModelOptions{.dtype = DType::f64});
  scramble(*model);
  return model;
}

struct Example {
  std::vector<int64_t> ids;         // [batch, seq]
  std::vector<int64_t> neighbours;  // [batch, chunks, neighbours, length]
  int64_t batch;
  int64_t seq;
  Shape shape;
};

Example example_of(const arch::ArchSpec& spec, int64_t batch, int64_t seq, uint64_t seed = 1) {
  const arch::Retrieval& r = *spec.retrieval;
  const Shape shape{batch, seq / r.chunk, r.neighbours, r.length};
  return {random_ids(batch * seq, spec.vocab_size, seed),
          random_ids(batch * (seq / r.chunk) * r.neighbours * r.length, spec.vocab_size, seed + 100), batch, seq,
          shape};
}

Tensor ids_of(const Example& e) { return Tensor::from(e.ids, {e.batch, e.seq}, kCpu); }
nn::RunOptions run_of(const Example& e) {
  nn::RunOptions run;
  run.neighbours = Tensor::from(e.neighbours, e.shape, kCpu);
  return run;
}

RetrievalOracle::Weights weights_of_model(const nn::Model& model) {
  RetrievalOracle::Weights weights;
  for (const auto& [name, tensor] : model.state_dict()) weights[name] = tensor.to_vector<double>();
  return weights;
}

RetrievalOracle::Rows oracle_of_row(const arch::ArchSpec& spec, const RetrievalOracle::Weights& weights,
                                    const Example& e, int64_t row) {
  std::vector<std::vector<std::vector<int64_t>>> neighbours;
  auto at = e.neighbours.begin() + row * (e.shape[1] * e.shape[2] * e.shape[3]);
  for (int64_t u = 0; u < e.shape[1]; ++u) {
    auto& chunk = neighbours.emplace_back();
    for (int64_t j = 0; j < e.shape[2]; ++j, at += e.shape[3]) chunk.emplace_back(at, at + e.shape[3]);
  }
  const auto first = e.ids.begin() + row * e.seq;
  return RetrievalOracle(spec, weights).logits({first, first + e.seq}, neighbours);
}

TEST(Retrieval, LogitsEqualTheOracle) {
  for (const NamedSpec& named : retrieval_specs()) {
    const auto model = f64_model(named.spec);
    const auto weights = weights_of_model(*model);
    for (const int64_t seq : {11, 12, 3, 1}) {
      const Example e = example_of(named.spec, 2, seq);
      const std::vector<double> ours = model->logits(ids_of(e), run_of(e)).to_vector<double>();
      std::vector<double> truth;
      for (int64_t row = 0; row < 2; ++row) {
        for (const auto& logits : oracle_of_row(named.spec, weights, e, row)) {
          truth.insert(truth.end(), logits.begin(), logits.end());
        }
      }
      expect_same_model(*model, ours, truth, str(named.name, " seq ", seq));
    }
  }
}

/// Mean cross entropy by the oracle's logits.
double oracle_loss(const arch::ArchSpec& spec, const RetrievalOracle::Weights& weights, const Example& e,
                   const std::vector<int64_t>& targets) {
  double sum = 0;
  for (int64_t row = 0; row < e.batch; ++row) {
    const auto logits = oracle_of_row(spec, weights, e, row);
    for (size_t t = 0; t < logits.size(); ++t) {
      double total = 0;
      for (const double value : logits[t]) total += std::exp(value);
      const auto target = static_cast<size_t>(targets[static_cast<size_t>(row * e.seq) + t]);
      sum += std::log(total) - logits[t][target];
    }
  }
  return sum / static_cast<double>(e.batch * e.seq);
}

/// The derivative of the oracle's loss along a random direction of each parameter, by central differences.
TEST(Retrieval, GradientOfEveryParameterEqualsTheOracles) {
  for (const NamedSpec& named : {retrieval_specs()[0], retrieval_specs()[2], retrieval_specs()[4]}) {
    const auto model = f64_model(named.spec);
    const Example e = example_of(named.spec, 2, 9);
    const std::vector<int64_t> targets = random_ids(18, named.spec.vocab_size, 77);
    Tape tape;
    for (auto& [name, parameter] : model->named_parameters()) tape.watch(parameter);
    tape.backward(model->loss(ids_of(e), Tensor::from(targets, {2, 9}, kCpu), {}, run_of(e)).total);
    const nn::StateDict gradients = model->named_gradients(tape);
    auto weights = weights_of_model(*model);
    std::mt19937 random(5);
    std::normal_distribution<double> normal;
    size_t of_retrieval = 0;
    for (const auto& [name, gradient] : gradients) {
      ASSERT_TRUE(gradient.defined()) << name;
      const std::vector<double> g = gradient.to_vector<double>();
      std::vector<double> direction(g.size());
      double ours = 0;
      for (size_t i = 0; i < g.size(); ++i) {
        direction[i] = normal(random);
        ours += g[i] * direction[i];
      }
      const std::vector<double> kept = weights.at(name);
      constexpr double kStep = 1e-6;
      double losses[2];
      for (const int side : {0, 1}) {
        for (size_t i = 0; i < g.size(); ++i) weights[name][i] = kept[i] + (side == 0 ? -kStep : kStep) * direction[i];
        losses[side] = oracle_loss(named.spec, weights, e, targets);
      }
      weights[name] = kept;
      const double truth = (losses[1] - losses[0]) / (2 * kStep);
      EXPECT_NEAR(ours, truth, 1e-7 * std::max(1.0, std::abs(truth))) << named.name << " " << name;
      const bool retrieves = name.starts_with("retrieval.") || name.find(".cross") != std::string::npos;
      if (retrieves && std::abs(truth) > 1e-9) ++of_retrieval;
    }
    EXPECT_GE(of_retrieval, 20U) << named.name;
  }
}

TEST(Retrieval, WithoutNeighboursItIsThePlainDecoder) {
  const NamedSpec named = changed("retro-tiny", {});
  arch::ArchSpec plain = arch::load_preset("retro-tiny");
  plain.retrieval.reset();
  nn::Model decoder(arch::resolve(plain, "plain"), kCpu, {.dtype = DType::f64});
  const auto model = f64_model(named.spec);
  nn::StateDict shared;
  for (const auto& entry : model->state_dict()) {
    const bool own = entry.name.starts_with("retrieval.") || entry.name.find(".cross") != std::string::npos;
    if (!own) shared.push_back(entry);
  }
  decoder.load_state_dict(shared);
  const Example e = example_of(named.spec, 2, 10);
  EXPECT_EQ(model->logits(ids_of(e)).to_vector<double>(), decoder.logits(ids_of(e)).to_vector<double>());
  // The first chunk − 1 tokens pass unchanged with neighbours, too.
  const Tensor with = model->logits(ids_of(e), run_of(e));
  const Tensor without = model->logits(ids_of(e));
  const int64_t chunk = named.spec.retrieval->chunk;
  const auto part = [](const Tensor& x, int64_t begin, int64_t count) { return x.slice(1, begin, count).contiguous(); };
  EXPECT_EQ(largest_error(part(with, 0, chunk - 1), part(without, 0, chunk - 1)), 0.0);
  EXPECT_GT(largest_error(part(with, chunk - 1, 1), part(without, chunk - 1, 1)), 1e-9);
}

TEST(Retrieval, NoLogitDependsOnLaterTokensOrNeighboursOfLaterChunks) {
  for (const NamedSpec& named : retrieval_specs()) {
    const auto model = f64_model(named.spec);
    const int64_t seq = 13;
    const int64_t chunk = named.spec.retrieval->chunk;
    const Example base = example_of(named.spec, 1, seq);
    const Tensor truth = model->logits(ids_of(base), run_of(base));
    const auto logits_before = [&](const Tensor& x, int64_t count) { return x.slice(1, 0, count).contiguous(); };
    for (int64_t t = 0; t < seq; ++t) {
      Example other = base;
      other.ids[static_cast<size_t>(t)] = (other.ids[static_cast<size_t>(t)] + 1) % named.spec.vocab_size;
      const Tensor changed_logits = model->logits(ids_of(other), run_of(other));
      if (t == 0) continue;
      EXPECT_EQ(largest_error(logits_before(changed_logits, t), logits_before(truth, t)), 0.0) << named.name << t;
    }
    const int64_t each = named.spec.retrieval->neighbours * named.spec.retrieval->length;
    for (int64_t u = 0; u < base.shape[1]; ++u) {
      Example other = base;
      auto& token = other.neighbours[static_cast<size_t>(u * each + each - 1)];
      token = (token + 1) % named.spec.vocab_size;
      const Tensor changed_logits = model->logits(ids_of(other), run_of(other));
      const int64_t end = (u + 1) * chunk - 1;  // the chunk's last token is the first to see its neighbours
      if (end > 0) {
        EXPECT_EQ(largest_error(logits_before(changed_logits, end), logits_before(truth, end)), 0.0) << named.name;
      }
      const auto at_end = [&](const Tensor& x) { return x.slice(1, end, 1).contiguous(); };
      EXPECT_GT(largest_error(at_end(changed_logits), at_end(truth)), 1e-12) << named.name << " chunk " << u;
    }
  }
}

/// Neighbours of the chunks that end in tokens [begin, end).
nn::CachedOptions step_neighbours(const Example& e, int64_t chunk, int64_t begin, int64_t end) {
  nn::CachedOptions options;
  const int64_t from = begin / chunk;
  const int64_t count = end / chunk - from;
  if (count > 0) options.neighbours = Tensor::from(e.neighbours, e.shape, kCpu).slice(1, from, count).contiguous();
  return options;
}

TEST(Retrieval, CachedDecodingEqualsTheFullForward) {
  for (const NamedSpec& named : retrieval_specs()) {
    const auto model = f64_model(named.spec);
    const int64_t seq = 17;
    const int64_t chunk = named.spec.retrieval->chunk;
    const Example e = example_of(named.spec, 2, seq);
    const Tensor full = model->logits(ids_of(e), run_of(e));
    for (const std::vector<int64_t>& steps :
         {std::vector<int64_t>(17, 1), {17}, {2, 9, 1, 1, 4}, {4, 4, 1, 7, 1}, {3, 5, 8, 1}}) {
      nn::ModelCache cache = model->make_cache(2, seq);
      int64_t at = 0;
      for (const int64_t count : steps) {
        const Tensor logits = model->cached_logits(ids_of(e).slice(1, at, count).contiguous(), cache,
                                                   step_neighbours(e, chunk, at, at + count));
        expect_same_model(*model, logits, full.slice(1, at, count), str(named.name, " from ", at));
        at += count;
      }
      EXPECT_FALSE(cache.can_truncate());
    }
  }
}

TEST(Retrieval, ACacheIsReusedAfterResetAndReordered) {
  const NamedSpec named = changed("retro-tiny", {});
  const auto model = f64_model(named.spec);
  const Example e = example_of(named.spec, 2, 10);
  nn::ModelCache cache = model->make_cache(2, 10);
  model->cached_logits(ids_of(e).slice(1, 0, 7).contiguous(), cache, step_neighbours(e, 4, 0, 7));
  cache.reset(0);
  cache.reset(1);
  model->cached_logits(ids_of(e).slice(1, 0, 6).contiguous(), cache, step_neighbours(e, 4, 0, 6));
  const std::vector<int64_t> swapped{1, 0};
  cache.reorder(swapped);
  const Tensor full = model->logits(ids_of(e), run_of(e));
  const auto swap = [](const Tensor& x) {
    Tensor y = x.clone();
    y.slice(0, 0, 1).copy_(x.slice(0, 1, 1));
    y.slice(0, 1, 1).copy_(x.slice(0, 0, 1));
    return y;
  };
  nn::CachedOptions last = step_neighbours(e, 4, 6, 10);
  last.neighbours = swap(last.neighbours);
  const Tensor step = model->cached_logits(swap(ids_of(e).slice(1, 6, 4).contiguous()), cache, last);
  expect_same_model(*model, step, swap(full.slice(1, 6, 4).contiguous()), "reordered");
}

/// Until neighbours are given, rows may be truncated and differ in length; then the states of a chunk are missing.
TEST(Retrieval, WithoutNeighboursACacheIsThatOfAPlainDecoder) {
  const auto model = f64_model(changed("retro-tiny", {}).spec);
  const Example e = example_of(model->spec(), 2, 10);
  const Tensor full = model->logits(ids_of(e));
  nn::ModelCache cache = model->make_cache(2, 10);
  nn::CachedOptions ragged;
  ragged.counts = {5, 3};
  model->cached_logits(ids_of(e).slice(1, 0, 5).contiguous(), cache, ragged);
  cache.truncate(0, 3);
  const Tensor ids = ids_of(e).slice(1, 3, 2).contiguous();
  expect_error([&] { model->cached_logits(ids, cache, step_neighbours(e, 4, 3, 5)); }, "lacks the first 3 tokens");
  const Tensor step = model->cached_logits(ids_of(e).slice(1, 3, 3).contiguous(), cache);
  expect_same_model(*model, step, full.slice(1, 3, 3), "after the cut");
  nn::ModelCache one = cache.rows(0, 1);
  EXPECT_EQ(one.lengths(), std::vector<int64_t>{6});
  EXPECT_TRUE(cache.can_truncate());
  // The chunk that began after the cut can have neighbours.
  model->cached_logits(ids_of(e).slice(1, 6, 2).contiguous(), cache, step_neighbours(e, 4, 6, 8));
  EXPECT_FALSE(cache.can_truncate());
}

TEST(Retrieval, CheckpointingGivesTheSameGradients) {
  const NamedSpec named = changed("retro-tiny", {});
  const auto model = f64_model(named.spec);
  const Example e = example_of(named.spec, 2, 9);
  const Tensor targets = Tensor::from(random_ids(18, named.spec.vocab_size, 7), {2, 9}, kCpu);
  const auto gradients = [&](bool checkpointed) {
    Tape tape;
    for (auto& [name, parameter] : model->named_parameters()) tape.watch(parameter);
    nn::RunOptions run = run_of(e);
    run.training = true;
    run.dropout = {0.1, 0.1, 0.1};
    if (checkpointed) run.checkpoint = &tape;
    tape.backward(model->loss(ids_of(e), targets, {}, run).total);
    return model->named_gradients(tape);
  };
  const nn::StateDict plain = gradients(false);
  const nn::StateDict again = gradients(true);
  ASSERT_EQ(plain.size(), again.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    ASSERT_TRUE(plain[i].tensor.defined()) << plain[i].name;
    EXPECT_EQ(largest_error(again[i].tensor, plain[i].tensor), 0.0) << plain[i].name;
  }
}

/// Wirings and placements that the oracle does not know: cached decoding still equals the full forward.
TEST(Retrieval, AnyDecoderCanRetrieve) {
  const std::string at = "retrieval={\"chunk\":3,\"neighbours\":2,\"length\":4,\"at\":{\"first\":1}}";
  const std::string heads = "retrieval.at.cross.n_heads=4";  // the default is the layer's, which Mamba does not have
  for (const char* preset : {"gpt2-tiny", "falcon-tiny", "gemma-2-tiny", "olmo-2-tiny", "bloom-tiny", "mixtral-tiny",
                             "qwen3-tiny", "deepseek-tiny", "mamba-tiny"}) {
    const NamedSpec named = changed(preset, {at, heads});
    const auto model = f64_model(named.spec);
    const Example e = example_of(named.spec, 1, 8);
    const Tensor full = model->logits(ids_of(e), run_of(e));
    EXPECT_GT(largest_error(full, model->logits(ids_of(e))), 1e-9) << preset;
    nn::ModelCache cache = model->make_cache(1, 8);
    for (int64_t t = 0; t < 8; ++t) {
      const Tensor step =
          model->cached_logits(ids_of(e).slice(1, t, 1).contiguous(), cache, step_neighbours(e, 3, t, t + 1));
      expect_same_model(*model, step, full.slice(1, t, 1), str(preset, " token ", t));
    }
  }
}

TEST(Retrieval, ErrorsSayWhatToDo) {
  const auto model = f64_model(changed("retro-tiny", {}).spec);
  const auto plain = f64_model(changed("llama-tiny", {}).spec);
  const Example e = example_of(model->spec(), 2, 9);
  expect_error([&] { plain->logits(ids_of(e), run_of(e)); }, "no retrieval");
  nn::RunOptions fewer = run_of(e);
  fewer.neighbours = fewer.neighbours.slice(1, 0, 1).contiguous();
  expect_error([&] { model->logits(ids_of(e), fewer); }, "expected i64 or i32 [2,2,2,6]");
  nn::RunOptions padded = run_of(e);
  padded.lengths = {9, 4};
  expect_error([&] { model->logits(ids_of(e), padded); }, "packed documents or padded rows");
  nn::ModelCache cache = model->make_cache(2, 9);
  nn::CachedOptions ragged = step_neighbours(e, 4, 0, 9);
  ragged.counts = {9, 4};
  expect_error([&] { model->cached_logits(ids_of(e), cache, ragged); }, "rows of one length");
  model->cached_logits(ids_of(e).slice(1, 0, 5).contiguous(), cache, step_neighbours(e, 4, 0, 5));
  expect_error([&] { cache.rows(0, 1); }, "cannot be filled separately");
  expect_error([&] { cache.truncate(0, 3); }, "neighbours of a chunk");
}

}  // namespace
}  // namespace lamina::testing
