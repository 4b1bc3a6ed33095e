#pragma once

#include "lamina/serve/api/fields.h"
#include "lamina/serve/api/served_model.h"

namespace lamina::serve {

constexpr int64_t kMaxChoices = 128;  ///< prompts × n of a request
constexpr size_t kMaxStops = 16;

/// Reads the sampling fields that completions and chat completions share into `request`.
void read_sampling(Fields& fields, const ServedModel& model, infer::Request& request);
/// Stop strings, checked.
std::vector<std::string> read_stops(Fields& fields, const char* name);

/// The ids of a prompt's text, with BOS if the tokenizer has one. Throws ApiError for `param` if a character has no
/// token.
std::vector<text::TokenId> encode_prompt(const ServedModel& model, const std::string& text, const std::string& param);
/// As encode_prompt, for text that a chat template wrote: special tokens in it are read, and BOS is added only if the
/// template cannot.
std::vector<text::TokenId> encode_chat(const ServedModel& model, const std::string& text);
/// Checks token ids of a request.
std::vector<text::TokenId> checked_ids(const Json& list, const ServedModel& model, const std::string& param);
const text::Tokenizer& tokenizer_of(const ServedModel& model);

/// The text of one token after `previous`. Bytes that are not UTF-8 are written as "bytes:\xe2\x82".
std::string token_text(const ServedModel& model, std::optional<text::TokenId> previous, text::TokenId id,
                       std::string* bytes = nullptr);
/// Log-probabilities are finite in JSON.
double json_logprob(float logprob);

/// The logprobs of a completion: parallel lists. `previous` is the token before the first one, `offset` the number of
/// characters before it.
Json completion_logprobs(const ServedModel& model, std::optional<text::TokenId> previous,
                         const std::vector<infer::ScoredToken>& tokens, int64_t& offset, bool first_is_unscored);
/// The logprobs of a chat completion: a list of tokens with bytes and alternatives; `with_ids` adds their ids.
Json chat_logprobs(const ServedModel& model, std::optional<text::TokenId> previous,
                   const std::vector<infer::ScoredToken>& tokens, bool with_ids = false);
/// The scores of a prompt in vLLM's form: for each token an object {"ID": {"logprob", "rank", "decoded_token"}} of the
/// token and the likeliest ones; null for the first token. The rank of a token that is not among those is null.
Json prompt_logprobs_json(const ServedModel& model, const std::vector<text::TokenId>& prompt,
                          const std::vector<infer::ScoredToken>& scores);
Json ids_of(const std::vector<infer::ScoredToken>& tokens);

}  // namespace lamina::serve
