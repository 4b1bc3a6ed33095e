#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lamina/base/error.h"
#include "lamina/infer/engine/step.h"
#include "lamina/infer/engine/token_mask.h"

namespace lamina::infer {

using RequestId = uint64_t;

/// Why an answer ended.
enum class Finish : uint8_t { max_tokens, stop_token, context, asked, stop_string, cancelled, deadline, error };
std::string_view name_of(Finish finish);

/// A prompt, and how to continue it.
struct Request {
  std::vector<TokenId> prompt;
  int64_t max_tokens = 256;  ///< limit per answer; 0: only score the prompt (needs prompt_logprobs)
  int64_t min_tokens = 0;    ///< stop tokens are not sampled before this many tokens
  int64_t context = 0;       ///< maximum length of prompt and answer; 0: what the runner allows
  int64_t n = 1;             ///< number of answers; answer i samples from random stream `stream` + i
  uint64_t stream = 0;
  SamplerOptions sampler;
  double softcap = 0;                           ///< soft-cap of the final logits; 0: none
  std::vector<std::pair<TokenId, float>> bias;  ///< added to the logits of these tokens
  std::vector<TokenId> stop_tokens;             ///< end an answer and are not part of it
  std::vector<std::string> stop_strings;        ///< end an answer; need EngineOptions::tokenizer
  bool ignore_eos = false;                      ///< generate past stop_tokens
  bool text = false;                            ///< also deliver the answer as text
  int64_t logprobs = -1;                        ///< number of likeliest tokens to report per answer token; −1: none
  int64_t prompt_logprobs = -1;                 ///< number of likeliest tokens to report per prompt token; −1: none
  int64_t prompt_logprobs_from = 1;             ///< first prompt position to score
  /// Grammar state at the start of the answer; null: all tokens are allowed.
  std::shared_ptr<const TokenMask> mask;
  bool speculate = true;  ///< use speculative decoding, if the engine is set up for it; the answer does not change

  std::string client;             ///< clients of equal priority share the engine fairly
  int priority = 0;               ///< higher runs first
  std::optional<double> timeout;  ///< time limit in seconds from submission; then the answer ends with Finish::deadline
  std::string cache_salt;         ///< only requests with the same salt share cached prefixes
  bool prefix_cache = true;       ///< read and fill the prefix cache
};

/// New results of one answer. Updates are delivered in order; the last one has `finish`.
struct Update {
  RequestId request = 0;
  int64_t answer = 0;               ///< in [0, n)
  std::vector<ScoredToken> tokens;  ///< new tokens, with log-probabilities if requested
  std::string text;                 ///< text that is final now, if requested
  std::vector<ScoredToken> prompt;  ///< scores of the prompt, delivered once, with answer 0
  std::optional<Finish> finish;     ///< set if the answer ended
  std::string error;                ///< error message, if finish is Finish::error
  int64_t cached_tokens = 0;        ///< prompt tokens found in the prefix cache, with `finish`
  bool request_done = false;        ///< whether this was the request's last answer to end
};

/// Called with every update, on the engine's thread; must not block. Returning false cancels the answer.
using Listener = std::function<bool(const Update&)>;

/// The waiting queue is full. A server answers 429.
class QueueFull : public Error {
 public:
  using Error::Error;
};

}  // namespace lamina::infer
