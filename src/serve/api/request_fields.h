#pragma once

#include "lamina/serve/api/fields.h"
#include "lamina/serve/api/served_model.h"

namespace lamina::serve {

constexpr int64_t kMaxChoices = 128;  ///< limit on prompts × n in one request
constexpr size_t kMaxStops = 16;

/// Reads the sampling fields that completions and chat completions share into `request`.
void read_sampling(Fields& fields, const ServedModel& model, infer::Request& request);

/// Encodes a prompt, with BOS if the tokenizer has one. If a character has no token, throws an ApiError that names the
/// field `param`.
std::vector<text::TokenId> encode_prompt(const ServedModel& model, const std::string& text, const std::string& param);
/// Encodes text that a chat template wrote. Special tokens in the text are recognized. BOS is added only if the
/// template cannot write it.
std::vector<text::TokenId> encode_chat(const ServedModel& model, const std::string& text);
/// Reads a list of token ids; throws ApiError if an id is not in the vocabulary.
std::vector<text::TokenId> checked_ids(const Json& list, const ServedModel& model, const std::string& param);
const text::Tokenizer& tokenizer_of(const ServedModel& model);

/// The text of one token after the token `previous`. Incomplete UTF-8 is written as, for example, "bytes:\xe2\x82".
std::string token_text(const ServedModel& model, std::optional<text::TokenId> previous, text::TokenId id,
                       std::string* bytes = nullptr);
/// Replaces −∞ by a finite number, because JSON has no infinity.
double json_logprob(float logprob);

/// The logprobs object of a completion: parallel lists. `previous` is the token before the first one. `offset` is the
/// number of characters before the first token; the call advances it.
Json completion_logprobs(const ServedModel& model, std::optional<text::TokenId> previous,
                         const std::vector<infer::ScoredToken>& tokens, int64_t& offset, bool first_is_unscored);
/// The logprobs object of a chat completion: a list of tokens with bytes and alternatives. `with_ids` adds token ids.
Json chat_logprobs(const ServedModel& model, std::optional<text::TokenId> previous,
                   const std::vector<infer::ScoredToken>& tokens, bool with_ids = false);
/// The scores of a prompt in vLLM's form. Each token has an object {"ID": {"logprob", "rank", "decoded_token"}} with
/// the token and the likeliest alternatives; the first token has null. A token that is not among the likeliest has rank
/// null.
Json prompt_logprobs_json(const ServedModel& model, const std::vector<text::TokenId>& prompt,
                          const std::vector<infer::ScoredToken>& scores);
Json ids_of(const std::vector<infer::ScoredToken>& tokens);

}  // namespace lamina::serve
