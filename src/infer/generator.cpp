#include "lamina/infer/generator.h"

#include <algorithm>
#include <iterator>

#include "lamina/infer/beam_search.h"
#include "lamina/infer/knn.h"
#include "lamina/infer/runner/model_runner.h"

namespace lamina::infer {
namespace {

using text::TokenId;

/// Maximum number of rows that generate() computes at once.
constexpr int64_t kMaxRows = 256;

void check_prompt(std::span<const TokenId> ids, size_t index, int64_t vocab, int64_t context) {
  LAMINA_CHECK(!ids.empty(), "generate: prompt ", index + 1,
               " has no tokens; give some text, or a tokenizer that begins with a token of its own");
  for (const TokenId id : ids) {
    LAMINA_CHECK(id >= 0 && id < vocab, "generate: prompt ", index + 1, " holds token ", id, ", the model has ", vocab,
                 "; give the tokenizer that the model was trained with");
  }
  LAMINA_CHECK(static_cast<int64_t>(ids.size()) < context, "generate: prompt ", index + 1, " has ", ids.size(),
               " tokens, the context is ", context, "; shorten the prompt, or give a longer context");
}

void check_options(const GenerateOptions& options) {
  LAMINA_CHECK(options.max_tokens > 0, "generate: ", options.max_tokens, " tokens asked for; expected at least one");
  LAMINA_CHECK(options.context >= 0, "generate: a context of ", options.context,
               " tokens; expected a positive number, or 0 for the model's own");
  LAMINA_CHECK(options.logit_cap >= 0, "generate: a logit cap of ", options.logit_cap,
               "; expected a positive number, or 0 for none");
  LAMINA_CHECK(options.draft_tokens >= 0, "generate: drafts of ", options.draft_tokens,
               " tokens; expected a positive number, or 0 for none");
  LAMINA_CHECK(!options.knn || (options.cache && !options.mask && options.draft_tokens == 0 && !options.draft_model),
               "generate: neighbours (knn) need the KV cache and exclude grammars and drafted tokens; leave these out");
}

void check_neighbours(const nn::Model& model, const GenerateOptions& options) {
  if (!options.neighbours) return;
  LAMINA_CHECK(model.spec().retrieval, "generate: neighbours for an architecture without retrieval; leave them out");
  LAMINA_CHECK(!options.knn && !options.mask && options.draft_tokens == 0 && !options.draft_model,
               "generate: retrieval by chunks excludes knn, grammars and drafted tokens; leave these out");
}

int64_t context_of(const nn::Model& model, int64_t given) { return given > 0 ? given : model.spec().context; }

Request request_of(std::vector<TokenId> prompt, const GenerateOptions& options, int64_t context, uint64_t stream,
                   int64_t vocab) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = options.max_tokens;
  request.context = context;
  request.sampler = options.sampler;
  request.softcap = options.logit_cap;
  request.stream = stream;
  request.mask = options.mask;
  // Ids outside the model's vocabulary are never sampled, so they cannot stop an answer.
  std::copy_if(options.stop_tokens.begin(), options.stop_tokens.end(), std::back_inserter(request.stop_tokens),
               [&](TokenId id) { return id >= 0 && id < vocab; });
  return request;
}

/// A listener that collects an answer. Drops tokens after the one for which on_token returned false.
Listener collect_into(Generation& answer, size_t row, const OnToken& on_token) {
  return [&answer, row, &on_token, asked = false](const Update& update) mutable {
    for (const ScoredToken& token : update.tokens) {
      if (asked) break;
      answer.ids.push_back(token.id);
      asked = on_token && !on_token(row, token.id);
    }
    if (update.finish) answer.finish = asked ? Finish::asked : *update.finish;
    return !asked;
  };
}

/// Returns the logits [vocab] of the token after `ids`.
using NextLogits = std::function<std::vector<float>(const std::vector<TokenId>& ids)>;

/// Computes the logits with a forward pass over all tokens, for every new token.
NextLogits logits_without_cache(nn::Model& model, double cap) {
  return [&model, cap](const std::vector<TokenId>& ids) {
    const auto length = static_cast<int64_t>(ids.size());
    const std::vector<int64_t> wide(ids.begin(), ids.end());
    const Tensor logits = model.logits(Tensor::from(wide, {1, length}, model.device()));
    std::vector<float> last = logits.slice(1, length - 1, 1).to_vector<float>();
    if (cap > 0) cap_logits(last, cap);
    return last;
  };
}

/// Interpolates the logits with the neighbours of the last hidden state (kNN-LM).
NextLogits logits_with_neighbors(nn::Model& model, const GenerateOptions& options, int64_t capacity) {
  auto cache = std::make_shared<nn::ModelCache>(model.make_cache(1, capacity, options.cache_dtype));
  return [&model, cache, knn = options.knn, cap = options.logit_cap,
          done = size_t{0}](const std::vector<TokenId>& ids) mutable {
    const std::vector<int64_t> fresh(ids.begin() + static_cast<std::ptrdiff_t>(done), ids.end());
    done = ids.size();
    const Tensor tokens = Tensor::from(fresh, {1, static_cast<int64_t>(fresh.size())}, model.device());
    nn::CachedOptions last;
    last.last_only = true;
    const Tensor state = model.cached_hidden(tokens, *cache, last);
    std::vector<float> logits = model.logits_of(state).to_vector<float>();
    if (cap > 0) cap_logits(logits, cap);
    knn->interpolate(state.to_vector<float>(), logits, model.device().threads());
    return logits;
  };
}

/// Neighbours of the chunks that end in tokens [begin, ids.size()): [1, chunks, neighbours, length]. Undefined if none
/// end there.
Tensor neighbours_from(const nn::Model& model, const std::vector<TokenId>& ids, size_t begin,
                       const NeighboursOf& find) {
  const arch::Retrieval& retrieval = *model.spec().retrieval;
  const auto chunk = static_cast<size_t>(retrieval.chunk);
  std::vector<int64_t> all;
  const size_t first = begin / chunk;
  const size_t end = ids.size() / chunk;
  for (size_t c = first; c < end; ++c) {
    const std::vector<int64_t> found = find(std::span(ids).subspan(c * chunk, chunk));
    all.insert(all.end(), found.begin(), found.end());
  }
  if (all.empty()) return {};
  return Tensor::from(all, {1, static_cast<int64_t>(end - first), retrieval.neighbours, retrieval.length},
                      model.device());
}

/// Computes the logits of a model with retrieval.
NextLogits logits_with_retrieval(nn::Model& model, const GenerateOptions& options, int64_t capacity) {
  const auto last_of = [cap = options.logit_cap](const Tensor& logits) {
    std::vector<float> last = logits.slice(1, logits.dim(1) - 1, 1).to(DType::f32).to_vector<float>();
    if (cap > 0) cap_logits(last, cap);
    return last;
  };
  const auto tensor = [&model](const std::vector<TokenId>& ids, size_t begin) {
    const std::vector<int64_t> wide(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end());
    return Tensor::from(wide, {1, static_cast<int64_t>(wide.size())}, model.device());
  };
  if (!options.cache) {
    return [&model, last_of, tensor, find = options.neighbours](const std::vector<TokenId>& ids) {
      nn::RunOptions run;
      run.neighbours = neighbours_from(model, ids, 0, find);
      return last_of(model.logits(tensor(ids, 0), run));
    };
  }
  auto cache = std::make_shared<nn::ModelCache>(model.make_cache(1, capacity, options.cache_dtype));
  return [&model, last_of, tensor, cache, find = options.neighbours,
          done = size_t{0}](const std::vector<TokenId>& ids) mutable {
    nn::CachedOptions last;
    last.last_only = true;
    last.neighbours = neighbours_from(model, ids, done, find);
    const Tensor fresh = tensor(ids, done);
    done = ids.size();
    return last_of(model.cached_logits(fresh, *cache, last));
  };
}

/// Computes the logits of an encoder–decoder model. The encoder, and the keys and values of its output, are computed
/// once, with the first token.
NextLogits logits_from_source(nn::Model& model, const std::vector<TokenId>& source, const GenerateOptions& options,
                              int64_t capacity) {
  const auto tensor = [&model](auto begin, auto end) {
    const std::vector<int64_t> wide(begin, end);
    return Tensor::from(wide, {1, static_cast<int64_t>(wide.size())}, model.device());
  };
  nn::RunOptions run;
  run.source = tensor(source.begin(), source.end());
  if (!options.cache) {
    return [&model, tensor, run, cap = options.logit_cap](const std::vector<TokenId>& ids) {
      const Tensor logits = model.logits(tensor(ids.begin(), ids.end()), run);
      std::vector<float> last = logits.slice(1, logits.dim(1) - 1, 1).to(DType::f32).to_vector<float>();
      if (cap > 0) cap_logits(last, cap);
      return last;
    };
  }
  auto cache = std::make_shared<nn::ModelCache>(model.make_cache(1, capacity, options.cache_dtype));
  return
      [&model, tensor, run, cache, cap = options.logit_cap, done = size_t{0}](const std::vector<TokenId>& ids) mutable {
        if (done == 0) model.read_source(run.source, *cache);
        nn::CachedOptions last;
        last.last_only = true;
        const Tensor fresh = tensor(ids.begin() + static_cast<std::ptrdiff_t>(done), ids.end());
        done = ids.size();
        std::vector<float> logits = model.cached_logits(fresh, *cache, last).to(DType::f32).to_vector<float>();
        if (cap > 0) cap_logits(logits, cap);
        return logits;
      };
}

/// Continues one prompt, token by token.
Generation continue_row(std::vector<TokenId> ids, size_t row, const GenerateOptions& options, const OnToken& on_token,
                        int64_t context, const NextLogits& next_logits) {
  SamplerOptions sampling = options.sampler;
  sampling.seed = seed_of_stream(sampling.seed, row);
  Sampler sampler(sampling);
  sampler.see_prompt(ids);
  Generation answer;
  for (;;) {
    const auto length = static_cast<int64_t>(ids.size());
    const TokenId id = sampler.next(next_logits(ids));
    const auto& stops = options.stop_tokens;
    answer.finish = Finish::stop_token;
    if (std::find(stops.begin(), stops.end(), id) != stops.end()) return answer;
    ids.push_back(id);
    answer.ids.push_back(id);
    answer.finish = Finish::asked;
    if (on_token && !on_token(row, id)) return answer;
    answer.finish = Finish::max_tokens;
    if (static_cast<int64_t>(answer.ids.size()) >= options.max_tokens) return answer;
    answer.finish = Finish::context;
    if (length + 1 >= context) return answer;
  }
}

std::vector<Generation> generate_from_sources(nn::Model& model, const std::vector<std::vector<TokenId>>& sources,
                                              const GenerateOptions& options, const OnToken& on_token,
                                              int64_t context) {
  LAMINA_CHECK(!options.knn && !options.mask && options.draft_tokens == 0,
               "generate: grammars, neighbours (knn) and drafted tokens are not supported for encoder–decoders; leave "
               "them out");
  const std::vector<TokenId> start{static_cast<TokenId>(model.spec().encoder->start_token)};
  const int64_t capacity = std::min(context, options.max_tokens + 1);
  std::vector<Generation> answers;
  for (size_t i = 0; i < sources.size(); ++i) {
    answers.push_back(
        continue_row(start, i, options, on_token, context, logits_from_source(model, sources[i], options, capacity)));
  }
  return answers;
}

}  // namespace

std::vector<Generation> generate(nn::Model& model, const std::vector<std::vector<TokenId>>& prompts,
                                 const GenerateOptions& options, const OnToken& on_token) {
  check_options(options);
  if (prompts.empty()) return {};
  const int64_t context = context_of(model, options.context);
  int64_t longest = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    check_prompt(prompts[i], i, model.spec().vocab_size, context);
    longest = std::max(longest, static_cast<int64_t>(prompts[i].size()));
  }
  if (model.spec().encoder) return generate_from_sources(model, prompts, options, on_token, context);
  std::vector<Generation> answers(prompts.size());
  check_neighbours(model, options);
  if (!options.cache || options.knn || options.neighbours) {
    for (size_t i = 0; i < prompts.size(); ++i) {
      const int64_t capacity = std::min(context, static_cast<int64_t>(prompts[i].size()) + options.max_tokens);
      answers[i] = continue_row(prompts[i], i, options, on_token, context,
                                options.neighbours ? logits_with_retrieval(model, options, capacity)
                                : options.knn      ? logits_with_neighbors(model, options, capacity)
                                                   : logits_without_cache(model, options.logit_cap));
    }
    return answers;
  }
  const auto count = static_cast<int64_t>(prompts.size());
  ModelRunnerOptions runner;
  runner.rows = std::min(count, kMaxRows);
  runner.context = std::min(context, longest + std::min(options.max_tokens, context));
  runner.cache_dtype = options.cache_dtype;
  runner.vocab_size = options.sampler.vocab_size;
  EngineOptions engine_options;
  engine_options.rows = runner.rows;
  engine_options.max_waiting = count;
  engine_options.draft_tokens = options.draft_tokens;
  std::unique_ptr<StepRunner> draft = draft_runner(options.draft_model, runner, engine_options.draft_rows);
  Engine engine(std::make_unique<ModelRunner>(model, runner), engine_options, std::move(draft));
  for (size_t i = 0; i < prompts.size(); ++i) {
    engine.submit(request_of(prompts[i], options, context, i, model.spec().vocab_size),
                  collect_into(answers[i], i, on_token));
  }
  engine.run_until_idle();
  return answers;
}

Session::Session(nn::Model& model, int64_t context, std::optional<DType> cache_dtype, int64_t draft_tokens,
                 nn::Model* draft_model)
    : model_(model), context_(context_of(model, context)) {
  ModelRunnerOptions runner;
  runner.rows = 1;
  runner.context = context_;
  runner.cache_dtype = cache_dtype;
  EngineOptions options;
  options.rows = 1;
  options.draft_tokens = draft_tokens;
  std::unique_ptr<StepRunner> draft = draft_runner(draft_model, runner, options.draft_rows);
  engine_ = std::make_unique<Engine>(std::make_unique<ModelRunner>(model, runner), options, std::move(draft));
}

Session::~Session() = default;

Generation Session::turn(std::span<const TokenId> ids, const GenerateOptions& options, const OnToken& on_token) {
  check_options(options);
  LAMINA_CHECK(!options.knn && !options.neighbours,
               "generate: a session cannot use neighbours; generate each answer by itself");
  std::vector<TokenId> all = ids_;
  all.insert(all.end(), ids.begin(), ids.end());
  LAMINA_CHECK(!all.empty(), "generate: nothing to read; give some text");
  check_prompt(all, 0, model_.spec().vocab_size, context_);
  Generation answer;
  engine_->submit(request_of(all, options, context_, turns_++, model_.spec().vocab_size),
                  collect_into(answer, 0, on_token));
  engine_->run_until_idle();
  ids_ = std::move(all);
  ids_.insert(ids_.end(), answer.ids.begin(), answer.ids.end());
  return answer;
}

void Session::clear() {
  engine_->clear_prefix_cache();
  ids_.clear();
}

}  // namespace lamina::infer
