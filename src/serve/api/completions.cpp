#include "lamina/serve/api/completions.h"

#include <algorithm>
#include <numeric>

#include "lamina/serve/api/request_fields.h"

namespace lamina::serve {
namespace {

constexpr int64_t kMaxLogprobs = 20;

/// A fill-in-the-middle prompt, for models trained for it (arXiv:2207.14255): prefix token, prompt, suffix token,
/// suffix, middle token.
std::vector<text::TokenId> fill_in_prompt(const ServedModel& model, const std::string& prompt,
                                          const std::string& suffix) {
  static constexpr const char* kMarks[][3] = {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
                                              {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
                                              {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"}};
  const text::Tokenizer& tokenizer = tokenizer_of(model);
  for (const auto& [before, after, middle] : kMarks) {
    const auto first = tokenizer.id_of(before), second = tokenizer.id_of(after), third = tokenizer.id_of(middle);
    if (!first || !second || !third) continue;
    std::vector<text::TokenId> ids;
    if (const auto bos = tokenizer.bos()) ids.push_back(*bos);
    ids.push_back(*first);
    try {
      tokenizer.encode(prompt, ids);
      ids.push_back(*second);
      tokenizer.encode(suffix, ids);
    } catch (const Error& error) {
      throw ApiError(400, str("prompt: ", error.what()), "prompt");
    }
    ids.push_back(*third);
    return ids;
  }
  throw ApiError(400, "suffix: is not supported: the tokenizer of this model has no fill-in-the-middle tokens",
                 "suffix");
}

class CompletionJob final : public AnswerJob {
 public:
  using AnswerJob::AnswerJob;
  void read(const Json& body);

 protected:
  void stream_update(int64_t index, const infer::Update& update) override;
  Json usage_chunk() const override;
  Json chunk_head() const override { return head(); }
  Json body() override;

 private:
  void read_prompts(Fields& fields);
  void read_amounts(Fields& fields);
  std::string prompt_text(int64_t choice) const;
  std::vector<infer::ScoredToken> scored_prompt(int64_t choice, const std::vector<infer::ScoredToken>& scores) const;
  Json head() const {
    return {{"id", "cmpl-" + id},
            {"object", "text_completion"},
            {"created", created},
            {"model", model->id},
            {"system_fingerprint", model->fingerprint}};
  }

  std::vector<int64_t> best_choices() const;
  Json choice_json(int64_t index, int64_t choice) const;

  bool echo_ = false;
  int64_t logprobs_ = -1;
  bool prompt_logprobs_ = false;
  int64_t shown_ = 1;  ///< choices per prompt in the response (n); the best of request.n computed ones
  bool return_ids_ = false;
  std::vector<std::string> texts_;  ///< the prompts' texts; empty if the request gave token ids
  // Per streamed choice: characters before the next token, the last token, and whether the prompt was sent.
  std::vector<int64_t> offsets_;
  std::vector<std::optional<text::TokenId>> last_;
  std::vector<bool> echoed_;
};

void CompletionJob::read_prompts(Fields& fields) {
  const Json* prompt = fields.find("prompt");
  if (!prompt) fields.fail("prompt", "is missing; expected a string, strings, token ids or lists of token ids");
  const Json* suffix = fields.find("suffix");
  if (suffix && !suffix->is_string()) fields.fail("suffix", str(brief(*suffix), "; expected a string"));
  if (suffix && suffix->get_ref<const std::string&>().empty()) suffix = nullptr;
  const auto add_text = [&](const Json& text) {
    texts_.push_back(text.get<std::string>());
    prompts.push_back(suffix ? fill_in_prompt(*model, texts_.back(), suffix->get<std::string>())
                             : encode_prompt(*model, texts_.back(), "prompt"));
  };
  const auto is_number = [](const Json& item) { return item.is_number(); };
  if (prompt->is_string()) {
    add_text(*prompt);
  } else if (prompt->is_array() && !prompt->empty() && std::all_of(prompt->begin(), prompt->end(), is_number)) {
    prompts.push_back(checked_ids(*prompt, *model, "prompt"));
  } else if (prompt->is_array() && !prompt->empty() && static_cast<int64_t>(prompt->size()) <= kMaxChoices) {
    for (const Json& item : *prompt) {
      if (item.is_string()) {
        add_text(item);
      } else if (item.is_array()) {
        prompts.push_back(checked_ids(item, *model, "prompt"));
      } else {
        fields.fail("prompt", str("holds ", brief(item), "; expected strings or lists of token ids"));
      }
    }
    if (!texts_.empty() && texts_.size() != prompts.size()) fields.fail("prompt", "mixes strings and token ids");
  } else {
    fields.fail("prompt", str(brief(*prompt), "; expected a string, or a list of 1 to ", kMaxChoices,
                              " strings, token ids or lists of token ids"));
  }
  for (const auto& ids : prompts) {
    if (ids.empty()) fields.fail("prompt", "is empty; give at least one token");
  }
  if (suffix && texts_.empty()) fields.fail("suffix", "needs a prompt that is a string");
  if (suffix && fields.flag("echo", false)) fields.fail("suffix", "cannot be combined with echo");
}

void CompletionJob::read_amounts(Fields& fields) {
  const int64_t context = model->backend->shape().context;
  request.max_tokens = fields.integer("max_tokens", 16, 0, std::max<int64_t>(context, 16));
  request.min_tokens = fields.integer("min_tokens", 0, 0, request.max_tokens);
  echo_ = fields.flag("echo", false);
  logprobs_ = fields.integer("logprobs", -1, 0, kMaxLogprobs);
  request.logprobs = logprobs_;
  const int64_t prompt_logprobs = fields.integer("prompt_logprobs", -1, 0, kMaxLogprobs);
  prompt_logprobs_ = prompt_logprobs >= 0;
  request.prompt_logprobs = std::max(echo_ ? logprobs_ : -1, prompt_logprobs);
  if (request.max_tokens == 0) {
    if (!echo_ && !prompt_logprobs_) {
      fields.fail("max_tokens", "0; expected at least 1, or \"echo\": true to score the prompt");
    }
    request.prompt_logprobs = std::max<int64_t>(0, request.prompt_logprobs);
  }
  shown_ = request.n;
  request.n = fields.integer("best_of", request.n, 1, kMaxChoices);
  if (request.n < shown_) fields.fail("best_of", str(request.n, " is less than n, which is ", shown_));
  if (request.n > shown_) request.logprobs = std::max<int64_t>(0, request.logprobs);  // needed to pick the best choices
}

void CompletionJob::read(const Json& json) {
  Fields fields(json);
  fields.find("model");
  read_prompts(fields);
  read_sampling(fields, *model, request);
  read_amounts(fields);
  read_stream_fields(fields);
  return_ids_ = fields.flag("return_token_ids", false);
  fields.finish();
  if (static_cast<int64_t>(prompts.size()) * request.n > kMaxChoices) {
    fields.fail("n",
                str(prompts.size(), " prompts with n ", request.n, "; expected at most ", kMaxChoices, " choices"));
  }
  if (stream && echo_ && logprobs_ >= 0 && request.n > 1) {
    fields.fail("echo", "with logprobs, a stream has one choice per prompt; set n to 1 or stream to false");
  }
  if (stream && request.n > shown_) fields.fail("best_of", "is not available in a stream; set stream to false");
  if (stream && prompt_logprobs_) fields.fail("prompt_logprobs", "is not available in a stream; set stream to false");
  usage_in_chunks = include_usage;
  keeps_tokens = !stream && (logprobs_ >= 0 || return_ids_ || request.n > shown_);
  offsets_.resize(prompts.size() * static_cast<size_t>(request.n));
  echoed_.resize(offsets_.size());
  for (size_t i = 0; i < offsets_.size(); ++i) last_.emplace_back(prompt_of(static_cast<int64_t>(i)).back());
}

std::string CompletionJob::prompt_text(int64_t choice) const {
  const auto prompt = static_cast<size_t>(choice / request.n);
  if (!texts_.empty()) return texts_[prompt];
  return model->tokenizer ? model->tokenizer->decode(prompts[prompt]) : "";
}

/// The prompt's tokens with their scores. The first token has no score.
std::vector<infer::ScoredToken> CompletionJob::scored_prompt(int64_t choice,
                                                             const std::vector<infer::ScoredToken>& scores) const {
  const auto& ids = prompt_of(choice);
  std::vector<infer::ScoredToken> tokens;
  for (size_t i = 0; i < ids.size(); ++i) {
    tokens.push_back(i > 0 && i - 1 < scores.size() ? scores[i - 1] : infer::ScoredToken{ids[i], 0, {}});
  }
  return tokens;
}

void CompletionJob::stream_update(int64_t index, const infer::Update& update) {
  const auto at = static_cast<size_t>(index);
  if (!echo_ && logprobs_ < 0 && !return_ids_) {  // common case: no JSON tree
    if (update.text.empty() && update.tokens.empty() && !update.finish) return;
    std::string& event = begin_choice();
    event.append("{\"index\":").append(std::to_string(index)).append(",\"text\":");
    append_quoted(event, update.text);
    event += ",\"logprobs\":null,\"finish_reason\":";
    event += update.finish ? dump(finish_name(*update.finish)) : "null";
    event += '}';
    return end_choice();
  }
  Json choice{{"index", index}, {"text", ""}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  std::string text = update.text;
  std::vector<infer::ScoredToken> tokens = update.tokens;
  const bool has_prompt = echo_ && !echoed_[at];  // the prompt's scores come before the first token
  bool unscored = false;
  if (has_prompt) {
    text = prompt_text(index) + text;
    const auto scored = scored_prompt(index, choices[at - at % static_cast<size_t>(request.n)].prompt_scores);
    tokens.insert(tokens.begin(), scored.begin(), scored.end());
    last_[at].reset();
    unscored = true;
    echoed_[at] = true;
  }
  choice["text"] = text;
  if (logprobs_ >= 0 && !tokens.empty()) {
    choice["logprobs"] = completion_logprobs(*model, last_[at], tokens, offsets_[at], unscored);
    if (return_ids_) {
      const auto previous = has_prompt ? std::optional(prompt_of(index).back()) : last_[at];
      choice["logprobs"]["content"] = chat_logprobs(*model, previous, update.tokens, true)["content"];
    }
  }
  if (!tokens.empty()) last_[at] = tokens.back().id;
  if (return_ids_) choice["token_ids"] = ids_of(update.tokens);
  if (update.finish) choice["finish_reason"] = finish_name(*update.finish);
  if (text.empty() && tokens.empty() && !update.finish) return;
  begin_choice() += dump(choice);
  end_choice();
}

Json CompletionJob::usage_chunk() const {
  Json chunk = head();
  chunk["choices"] = Json::array();
  chunk["usage"] = usage();
  return chunk;
}

/// The choices to show. For each prompt: the ones with the largest mean log-probability per token, best first. If all
/// are shown, they keep their order.
std::vector<int64_t> CompletionJob::best_choices() const {
  std::vector<int64_t> shown;
  const auto score = [&](int64_t index) {
    const auto& tokens = choices[static_cast<size_t>(index)].tokens;
    double sum = 0;
    for (const infer::ScoredToken& token : tokens) sum += token.logprob;
    return tokens.empty() ? 0.0 : sum / static_cast<double>(tokens.size());
  };
  for (int64_t first = 0; first < total_choices(); first += request.n) {
    std::vector<int64_t> order(static_cast<size_t>(request.n));
    std::iota(order.begin(), order.end(), first);
    if (request.n > shown_) {
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return score(a) > score(b); });
    }
    shown.insert(shown.end(), order.begin(), order.begin() + shown_);
  }
  return shown;
}

Json CompletionJob::choice_json(int64_t index, int64_t i) const {
  const Choice& choice = choices[static_cast<size_t>(i)];
  const std::vector<infer::ScoredToken>& scores = choices[static_cast<size_t>(i - i % request.n)].prompt_scores;
  Json json{{"index", index},
            {"text", echo_ ? prompt_text(i) + choice.text : choice.text},
            {"logprobs", nullptr},
            {"finish_reason", finish_name(*choice.finish)}};
  if (logprobs_ >= 0) {
    std::vector<infer::ScoredToken> tokens;
    if (echo_) tokens = scored_prompt(i, scores);
    tokens.insert(tokens.end(), choice.tokens.begin(), choice.tokens.end());
    int64_t offset = 0;
    const auto previous = echo_ ? std::nullopt : std::optional(prompt_of(i).back());
    json["logprobs"] = completion_logprobs(*model, previous, tokens, offset, echo_);
    if (return_ids_) {
      json["logprobs"]["content"] = chat_logprobs(*model, prompt_of(i).back(), choice.tokens, true)["content"];
    }
  }
  if (prompt_logprobs_) json["prompt_logprobs"] = prompt_logprobs_json(*model, prompt_of(i), scores);
  if (return_ids_) {
    json["token_ids"] = ids_of(choice.tokens);
    json["prompt_token_ids"] = prompt_of(i);
  }
  return json;
}

Json CompletionJob::body() {
  Json list = Json::array();
  for (const int64_t choice : best_choices()) list.push_back(choice_json(static_cast<int64_t>(list.size()), choice));
  Json json = head();
  json["choices"] = std::move(list);
  json["usage"] = usage();
  return json;
}

}  // namespace

void run_completion(const Json& body, const std::shared_ptr<Exchange>& exchange,
                    const std::shared_ptr<ServedModel>& model, Metrics& metrics) {
  auto job = std::make_shared<CompletionJob>(exchange, model, metrics);
  job->read(body);
  job->submit("prompt");
}

}  // namespace lamina::serve
