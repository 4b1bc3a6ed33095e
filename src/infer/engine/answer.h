#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lamina/infer/engine/cache_memory.h"
#include "lamina/infer/engine/draft_length.h"
#include "lamina/infer/engine/prompt_lookup.h"
#include "lamina/infer/engine/request.h"
#include "lamina/infer/text_stream.h"

namespace lamina::infer {

struct Answer;

/// A submitted request with its unfinished answers.
struct ActiveRequest {
  RequestId id = 0;
  Request request;
  Listener listener;
  std::optional<double> deadline;
  int64_t max_length = 0;                        ///< maximum length of prompt and answer together
  std::vector<std::shared_ptr<Answer>> answers;  ///< the unfinished ones
  /// Answers 1 … n − 1 wait here until the prompt is computed; it is computed only once.
  std::vector<std::shared_ptr<Answer>> held_back;
};

/// One sequence: a prompt and the answer that follows it.
struct Answer {
  Answer(std::shared_ptr<ActiveRequest> owner, int64_t number, const text::Tokenizer* tokenizer);

  const Request& request() const { return active->request; }
  /// Number of tokens, including those that steps in flight are sampling. If the prompt is only scored, without its
  /// last token: that one is predicted but never an input.
  int64_t length() const { return static_cast<int64_t>(tokens.size()) + unknown - (scores_only() ? 1 : 0); }
  bool scores_only() const { return request().max_tokens == 0; }
  /// Number of tokens that must be computed before the next one can be sampled.
  int64_t pending() const { return length() - computed; }
  int64_t answered() const { return length() - prompt_length; }
  bool in_prompt() const { return computed < prompt_length; }
  /// Whether no more tokens can be sampled. The results of steps in flight then decide how the answer ends.
  bool is_full() const { return answered() >= request().max_tokens || length() >= active->max_length; }
  bool scores_prompt() const { return request().prompt_logprobs >= 0 && index == 0 && !prompt_scored; }

  /// Appends a sampled or forced token, and adds it and its text to `update`. Returns the reason if the answer ends.
  std::optional<Finish> accept(ScoredToken token, Update& update);
  /// At the end: adds the text that was held back to `update`.
  void finish_text(Update& update);
  /// Fills `bits` with the tokens allowed at a position of the answer. Returns false if no token is allowed.
  bool allowed(const TokenMask& state, int64_t position, std::span<uint32_t> bits) const;

  std::shared_ptr<ActiveRequest> active;
  int64_t index;
  int64_t prompt_length;
  std::vector<TokenId> tokens;  ///< prompt and the known part of the answer
  SamplingState sampling;
  std::unique_ptr<TokenMask> mask;
  std::optional<TextStream> text;
  std::optional<DraftLength> draft_length;  ///< empty: no speculative decoding for this answer
  std::optional<PromptLookup> lookup;       ///< empty: a draft model drafts
  std::vector<TokenId> draft;               ///< drafted tokens for the next step
  std::vector<ScoredToken> prompt_scores;
  bool prompt_scored = false;
  bool ended = false;

  // Valid while the answer is admitted.
  int64_t row_id = -1;  ///< −1: waiting or ended
  int32_t slot = -1;
  CacheLease lease;
  int64_t computed = 0;     ///< tokens in the cache when the steps in flight are done
  int64_t unknown = 0;      ///< tokens that steps in flight are sampling
  int32_t last_index = -1;  ///< row index of this answer in the last plan

  uint64_t order = 0;                 ///< order of submission
  double submitted = 0;               ///< when the request was submitted
  std::optional<double> admitted;     ///< when it first got a row
  std::optional<double> first_token;  ///< when the first answer token arrived
  int64_t cached_tokens = -1;         ///< prompt tokens found in the prefix cache at the first admission
  int64_t charged = 0;                ///< tokens charged to the client
};

}  // namespace lamina::infer
