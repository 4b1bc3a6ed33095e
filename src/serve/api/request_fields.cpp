#include "lamina/serve/api/request_fields.h"

#include <charconv>
#include <cmath>
#include <random>

#include "lamina/infer/load.h"
#include "lamina/text/stream_decoder.h"
#include "lamina/text/utf8.h"

namespace lamina::serve {
namespace {

constexpr size_t kMaxStopBytes = 1024;
constexpr size_t kMaxBiases = 4096;

std::vector<std::pair<text::TokenId, float>> read_bias(Fields& fields, int64_t vocab) {
  std::vector<std::pair<text::TokenId, float>> biases;
  const Json* value = fields.find("logit_bias");
  if (!value) return biases;
  if (!value->is_object() || value->size() > kMaxBiases) {
    fields.fail("logit_bias",
                str(brief(*value), "; expected an object with at most ", kMaxBiases, " token ids as keys"));
  }
  for (const auto& [key, bias] : value->items()) {
    text::TokenId id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocab) {
      fields.fail("logit_bias", str("key '", key.substr(0, 40), "'; expected a token id below ", vocab));
    }
    if (!bias.is_number() || std::abs(bias.get<double>()) > 100) {
      fields.fail("logit_bias", str("the bias of ", id, " is ", brief(bias), "; expected a number from -100 to 100"));
    }
    biases.emplace_back(id, bias.get<float>());
  }
  return biases;
}

uint64_t random_seed() {
  std::random_device random;
  return (uint64_t{random()} << 32) ^ random();
}

std::vector<text::TokenId> encode(const ServedModel& model, const std::string& text, std::vector<text::TokenId> ids,
                                  bool special, const std::string& param) {
  try {
    tokenizer_of(model).encode(text, ids, special);
  } catch (const ApiError&) {
    throw;
  } catch (const Error& error) {
    throw ApiError(400, str(param, ": ", error.what()), param);
  }
  return ids;
}

/// Whether a token has a name that the text does not show.
bool is_hidden(const ServedModel& model, text::TokenId id) {
  return model.tokenizer != nullptr && id < model.tokenizer->vocab_size() && model.tokenizer->is_special(id);
}

}  // namespace

void read_sampling(Fields& fields, const ServedModel& model, infer::Request& request) {
  const int64_t vocab = model.backend->shape().vocab_size;
  infer::SamplerOptions& sampler = request.sampler;
  sampler.temperature = fields.number("temperature", 1, 0, 2);
  sampler.top_p = fields.number("top_p", 1, 0, 1);
  if (sampler.top_p == 0) sampler.top_p = 1e-9;  // keeps only the likeliest token; some clients send 0 to ask for that
  sampler.top_k = std::max<int64_t>(0, fields.integer("top_k", 0, -1, vocab));
  sampler.min_p = fields.number("min_p", 0, 0, 1);
  sampler.typical_p = fields.number("typical_p", 1, 1e-6, 1);
  sampler.repetition_penalty = fields.number("repetition_penalty", 1, 0.01, 10);
  sampler.presence_penalty = fields.number("presence_penalty", 0, -2, 2);
  sampler.frequency_penalty = fields.number("frequency_penalty", 0, -2, 2);
  const Json* seed = fields.find("seed");
  if (seed && !seed->is_number_integer()) fields.fail("seed", str(brief(*seed), "; expected a whole number"));
  sampler.seed =
      seed ? (seed->is_number_unsigned() ? seed->get<uint64_t>() : static_cast<uint64_t>(seed->get<int64_t>()))
           : random_seed();
  request.bias = read_bias(fields, vocab);
  request.stop_tokens = model.stop_tokens;
  for (const int64_t id : fields.integers("stop_token_ids", kMaxStops)) {
    if (id < 0 || id >= vocab) fields.fail("stop_token_ids", str(id, "; expected token ids below ", vocab));
    request.stop_tokens.push_back(static_cast<text::TokenId>(id));
  }
  request.stop_strings = read_stops(fields, "stop");
  if (!request.stop_strings.empty()) tokenizer_of(model);
  request.ignore_eos = fields.flag("ignore_eos", false);
  request.n = fields.integer("n", 1, 1, kMaxChoices);
  request.priority = static_cast<int>(fields.integer("priority", 0, -100, 100));
  request.cache_salt = fields.text("cache_salt");
  request.text = model.tokenizer != nullptr;
  fields.text("user");
  fields.ignore(
      {"prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "metadata"});
  fields.flag("store", false);
  const std::string tier = fields.text("service_tier", "auto");
  if (tier != "auto" && tier != "default") fields.fail("service_tier", str("'", tier, "'; expected auto or default"));
}

std::vector<std::string> read_stops(Fields& fields, const char* name) {
  std::vector<std::string> stops = fields.texts(name, kMaxStops);
  for (const std::string& stop : stops) {
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      fields.fail(name, str("a stop string of ", stop.size(), " bytes; expected 1 to ", kMaxStopBytes));
    }
  }
  return stops;
}

const text::Tokenizer& tokenizer_of(const ServedModel& model) {
  if (model.tokenizer == nullptr) {
    throw ApiError(400, str("model ", model.id,
                            " has no tokenizer; send token ids as prompt, or start the server with "
                            "--tokenizer"));
  }
  return *model.tokenizer;
}

std::vector<text::TokenId> encode_prompt(const ServedModel& model, const std::string& text, const std::string& param) {
  std::vector<text::TokenId> ids;
  if (const auto bos = tokenizer_of(model).bos()) ids.push_back(*bos);
  return encode(model, text, std::move(ids), false, param);
}

std::vector<text::TokenId> encode_chat(const ServedModel& model, const std::string& text) {
  std::vector<text::TokenId> ids;
  const auto bos = tokenizer_of(model).bos();
  if (bos && !model.template_has_bos) ids.push_back(*bos);
  return encode(model, text, std::move(ids), true, "messages");
}

std::vector<text::TokenId> checked_ids(const Json& list, const ServedModel& model, const std::string& param) {
  const int64_t vocab = model.backend->shape().vocab_size;
  std::vector<text::TokenId> ids;
  ids.reserve(list.size());
  for (const Json& item : list) {
    if (!item.is_number_integer() || item.get<int64_t>() < 0 || item.get<int64_t>() >= vocab) {
      throw ApiError(400, str(param, ": holds ", brief(item), "; expected token ids below ", vocab), param);
    }
    ids.push_back(item.get<text::TokenId>());
  }
  return ids;
}

std::string token_text(const ServedModel& model, std::optional<text::TokenId> previous, text::TokenId id,
                       std::string* bytes) {
  if (model.tokenizer == nullptr) return str("<", id, ">");
  text::StreamDecoder decoder(*model.tokenizer, /*special=*/true);
  if (previous) decoder.follow(*previous);
  std::string text = decoder.push(id);
  text += decoder.finish();
  if (bytes) *bytes = text;
  if (text::valid_prefix(text) == text.size()) return text;
  std::string escaped = "bytes:";
  for (const unsigned char byte : text) {
    char part[8];
    std::snprintf(part, sizeof part, "\\x%02x", byte);
    escaped += part;
  }
  return escaped;
}

double json_logprob(float logprob) { return std::isfinite(logprob) ? std::max(-9999.0, double{logprob}) : -9999.0; }

Json completion_logprobs(const ServedModel& model, std::optional<text::TokenId> previous,
                         const std::vector<infer::ScoredToken>& tokens, int64_t& offset, bool first_is_unscored) {
  Json names = Json::array(), values = Json::array(), tops = Json::array(), offsets = Json::array();
  bool unscored = first_is_unscored;
  for (const infer::ScoredToken& token : tokens) {
    std::string bytes;
    names.push_back(token_text(model, previous, token.id, &bytes));
    values.push_back(unscored ? Json(nullptr) : Json(json_logprob(token.logprob)));
    Json top = Json::object();
    for (const auto& [id, logprob] : token.top) top[token_text(model, previous, id)] = json_logprob(logprob);
    if (!token.top.empty())
      top.emplace(names.back().get<std::string>(), json_logprob(token.logprob));  // as OpenAI: always the token itself
    tops.push_back(unscored ? Json(nullptr) : std::move(top));
    offsets.push_back(offset);
    if (is_hidden(model, token.id)) bytes.clear();
    for (const char c : bytes) offset += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
    previous = token.id;
    unscored = false;
  }
  return {{"tokens", names}, {"token_logprobs", values}, {"top_logprobs", tops}, {"text_offset", offsets}};
}

Json chat_logprobs(const ServedModel& model, std::optional<text::TokenId> previous,
                   const std::vector<infer::ScoredToken>& tokens, bool with_ids) {
  const auto entry = [&](text::TokenId id, float logprob) {
    std::string bytes;
    Json json{{"token", token_text(model, previous, id, &bytes)}, {"logprob", json_logprob(logprob)}};
    json["bytes"] = std::vector<int>();
    for (const unsigned char byte : bytes) json["bytes"].push_back(int{byte});
    if (with_ids) json["token_id"] = id;
    return json;
  };
  Json content = Json::array();
  for (const infer::ScoredToken& token : tokens) {
    Json json = entry(token.id, token.logprob);
    json["top_logprobs"] = Json::array();
    for (const auto& [id, logprob] : token.top) json["top_logprobs"].push_back(entry(id, logprob));
    content.push_back(std::move(json));
    previous = token.id;
  }
  return {{"content", content}, {"refusal", nullptr}};
}

Json prompt_logprobs_json(const ServedModel& model, const std::vector<text::TokenId>& prompt,
                          const std::vector<infer::ScoredToken>& scores) {
  Json list = Json::array({nullptr});
  for (size_t i = 1; i < prompt.size() && i - 1 < scores.size(); ++i) {
    const infer::ScoredToken& token = scores[i - 1];
    Json entry = Json::object();
    const auto add = [&](text::TokenId id, float logprob, Json rank) {
      entry[std::to_string(id)] = {{"logprob", json_logprob(logprob)},
                                   {"rank", std::move(rank)},
                                   {"decoded_token", token_text(model, prompt[i - 1], id)}};
    };
    add(token.id, token.logprob, nullptr);
    for (size_t rank = 0; rank < token.top.size(); ++rank) add(token.top[rank].first, token.top[rank].second, rank + 1);
    list.push_back(std::move(entry));
  }
  return list;
}

Json ids_of(const std::vector<infer::ScoredToken>& tokens) {
  Json ids = Json::array();
  for (const infer::ScoredToken& token : tokens) ids.push_back(token.id);
  return ids;
}

}  // namespace lamina::serve
