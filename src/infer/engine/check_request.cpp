#include "lamina/infer/engine/check_request.h"

#include <algorithm>
#include <cmath>

#include "lamina/infer/stop_strings.h"

namespace lamina::infer {
namespace {

constexpr int64_t kMaxAnswers = 1024;
constexpr int64_t kMaxTopLogprobs = 1024;

void check_ids(std::span<const TokenId> ids, const char* what, int64_t vocab) {
  for (const TokenId id : ids) {
    LAMINA_CHECK(id >= 0 && id < vocab, "generate: ", what, " ", id, " is outside the vocabulary of ", vocab,
                 " tokens; use the model's own tokenizer");
  }
}

void check_amounts(const Request& r) {
  LAMINA_CHECK(r.max_tokens > 0 || (r.max_tokens == 0 && r.prompt_logprobs >= 0), "generate: max_tokens ", r.max_tokens,
               "; expected at least 1, or 0 to score the prompt only");
  LAMINA_CHECK(r.min_tokens >= 0 && r.min_tokens <= r.max_tokens, "generate: min_tokens ", r.min_tokens,
               "; expected 0 to max_tokens, which is ", r.max_tokens);
  LAMINA_CHECK(r.n >= 1 && r.n <= kMaxAnswers, "generate: n is ", r.n, "; expected 1 to ", kMaxAnswers, " answers");
  LAMINA_CHECK(r.logprobs >= -1 && r.logprobs <= kMaxTopLogprobs && r.prompt_logprobs >= -1 &&
                   r.prompt_logprobs <= kMaxTopLogprobs,
               "generate: logprobs ", r.logprobs, ", prompt_logprobs ", r.prompt_logprobs, "; expected 0 to ",
               kMaxTopLogprobs, ", or -1 for none");
  LAMINA_CHECK(r.prompt_logprobs_from >= 1, "generate: prompt_logprobs_from ", r.prompt_logprobs_from,
               "; expected at least 1: the first token is never predicted");
  LAMINA_CHECK(r.softcap >= 0 && std::isfinite(r.softcap), "generate: softcap ", r.softcap,
               "; expected a positive number, or 0 for none");
  LAMINA_CHECK(r.context >= 0, "generate: context ", r.context,
               "; expected a positive number, or 0 for the model's own");
  LAMINA_CHECK(!r.timeout || *r.timeout > 0, "generate: a timeout of ", r.timeout.value_or(0),
               " seconds; expected a positive number");
}

}  // namespace

int64_t check_request(const Request& request, const CacheShape& shape, const EngineOptions& options) {
  check_amounts(request);
  const Sampler sampler(request.sampler);  // the constructor checks the options
  LAMINA_CHECK(!request.prompt.empty(), "generate: the prompt is empty; give at least one token, for example BOS");
  check_ids(request.prompt, "prompt token", shape.vocab_size);
  check_ids(request.stop_tokens, "stop token", shape.vocab_size);
  for (const auto& [id, bias] : request.bias) {
    check_ids(std::span(&id, 1), "biased token", shape.vocab_size);
    LAMINA_CHECK(!std::isnan(bias), "generate: the bias of token ", id, " is not a number");
  }
  LAMINA_CHECK(options.tokenizer || (request.stop_strings.empty() && !request.text),
               "generate: stop strings and text need a tokenizer; give the engine one, or use stop tokens");
  const StopStrings stops(request.stop_strings);  // the constructor checks them
  LAMINA_CHECK(request.n <= options.max_waiting, "generate: ", request.n, " answers; at most ", options.max_waiting,
               " may wait");
  const int64_t context = request.context > 0 ? std::min(request.context, shape.context) : shape.context;
  int64_t limit = context;
  for (const CacheGroup& group : shape.groups) {
    if (group.window == 0) limit = std::min(limit, group.pages * shape.page_size);
  }
  const auto length = static_cast<int64_t>(request.prompt.size());
  LAMINA_CHECK(request.max_tokens > 0 || length > 1, "generate: a prompt of one token has nothing to score");
  // If the prompt is only scored, its last token is predicted but never an input.
  const int64_t least = request.max_tokens > 0 ? length + 1 : length - 1;
  LAMINA_CHECK(least <= context, "generate: the prompt has ", length, " tokens, the context ", context,
               "; shorten it or raise the context");
  LAMINA_CHECK(least <= limit, "generate: the prompt has ", length, " tokens, the cache memory holds ", limit,
               "; raise the memory limit or shorten the prompt");
  return limit;
}

}  // namespace lamina::infer
