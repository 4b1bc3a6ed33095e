#include "lamina/infer/engine/answer.h"

#include <algorithm>

namespace lamina::infer {

Answer::Answer(std::shared_ptr<ActiveRequest> owner, int64_t number, const text::Tokenizer* tokenizer)
    : active(std::move(owner)), index(number), prompt_length(static_cast<int64_t>(active->request.prompt.size())) {
  const Request& r = active->request;
  tokens = r.prompt;
  sampling.options = r.sampler;
  sampling.stream = r.stream + static_cast<uint64_t>(index);
  sampling.softcap = r.softcap;
  sampling.bias = r.bias;
  sampling.end_tokens = r.stop_tokens;
  sampling.min_tokens = r.min_tokens;
  sampling.top_logprobs = r.logprobs;
  sampling.prompt_length = prompt_length;
  if (r.mask) mask = r.mask->clone();
  if (tokenizer && (r.text || !r.stop_strings.empty())) {
    text.emplace(*tokenizer, r.stop_strings);
    text->see_prompt(r.prompt);
  }
}

std::optional<Finish> Answer::accept(ScoredToken token, Update& update) {
  const Request& r = request();
  const TokenId id = token.id;
  const bool stops = std::find(r.stop_tokens.begin(), r.stop_tokens.end(), id) != r.stop_tokens.end();
  // Not answered(): a step in flight may already be sampling the next token.
  const int64_t before = static_cast<int64_t>(tokens.size()) - prompt_length;
  if (stops && !r.ignore_eos && before >= r.min_tokens) return Finish::stop_token;
  if (mask && !mask->accept(id)) {
    update.error = str("engine: token ", id, " was sampled against its mask (internal error, please report it)");
    return Finish::error;
  }
  tokens.push_back(id);
  if (draft_length) draft_length->advance();
  if (lookup) lookup->append(tokens);
  update.tokens.push_back(std::move(token));
  if (text) {
    update.text += text->push(id);
    if (text->stopped()) return Finish::stop_string;
  }
  if (before + 1 >= r.max_tokens) return Finish::max_tokens;
  if (prompt_length + before + 1 >= active->max_length) return Finish::context;
  return {};
}

void Answer::finish_text(Update& update) {
  if (text) update.text += text->finish();
  if (!request().text) update.text.clear();
}

bool Answer::allowed(const TokenMask& state, int64_t position, std::span<uint32_t> bits) const {
  state.mask(bits);
  if (position < request().min_tokens) {
    for (const TokenId id : request().stop_tokens) bits[static_cast<size_t>(id) / 32] &= ~(1U << (id % 32));
  }
  return std::any_of(bits.begin(), bits.end(), [](uint32_t word) { return word != 0; });
}

}  // namespace lamina::infer
