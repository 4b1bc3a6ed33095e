#include "lamina/serve/api/inspect.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "lamina/arch/layers.h"
#include "lamina/infer/inspect.h"
#include "lamina/serve/api/answer_job.h"
#include "lamina/serve/api/chat.h"
#include "lamina/serve/api/chat_messages.h"
#include "lamina/serve/api/model_task.h"
#include "lamina/serve/api/request_fields.h"

namespace lamina::serve {
namespace {

constexpr int64_t kMaxInspectTop = 20;
constexpr int64_t kMaxInspectTokens = 2048;
constexpr int64_t kMaxAttentionNumbers = int64_t{1} << 22;  ///< layers × heads × tokens²
constexpr int64_t kMaxCompared = int64_t{1} << 25;          ///< tokens × vocabulary

/// Query heads of each layer; 0: the layer has no attention.
std::vector<int64_t> heads_of_layers(const arch::ArchSpec& spec) {
  std::vector<int64_t> heads;
  for (const arch::Block* block : arch::layer_blocks(spec)) {
    const auto* attention = arch::attention_of(block->mixer);
    const auto* latent = std::get_if<arch::Mla>(&block->mixer);
    heads.push_back(attention != nullptr ? attention->n_heads : latent != nullptr ? latent->n_heads : 0);
  }
  return heads;
}

double rounded(double value, double scale) { return std::round(value * scale) / scale; }
/// Rounds log-probabilities, entropies and divergences to six decimals.
double six_decimals(double value) { return rounded(value, 1e6); }

class InspectJob final : public ModelTask {
 public:
  InspectJob(std::shared_ptr<Exchange> client, std::shared_ptr<ServedModel> served, std::shared_ptr<ServedModel> other,
             PostToWorker post)
      : ModelTask(std::move(client)), model_(std::move(served)), other_(std::move(other)), post_(std::move(post)) {}

  void read(const Json& json);
  void start();

 private:
  void read_prompt(Fields& fields);
  void read_attention(Fields& fields);
  void check_comparison(const Fields& fields) const;
  void compute(nn::Model& model);
  Json body() const;
  Json token_json(size_t index) const;
  Json top_json(size_t prediction) const;
  std::string attention_text() const;
  Json cache_json() const;
  int64_t tokens() const { return static_cast<int64_t>(ids_.size()); }

  std::shared_ptr<ServedModel> model_, other_;
  PostToWorker post_;
  std::vector<text::TokenId> ids_;
  infer::InspectOptions options_;
  bool wants_attention_ = false;
  std::vector<float> compared_;
  infer::Inspection result_;
};

void InspectJob::read_prompt(Fields& fields) {
  const Json* prompt = fields.find("prompt");
  const Json* messages = fields.find("messages");
  const bool open = fields.flag("add_generation_prompt", true);
  if ((prompt != nullptr) == (messages != nullptr)) {
    fields.fail("prompt", "expected either prompt (a string or token ids) or messages");
  }
  if (messages != nullptr) {
    ids_ = encode_chat(*model_, render_chat(*model_, read_messages(*messages), nullptr, nullptr, open));
  } else if (prompt->is_string()) {
    ids_ = encode_prompt(*model_, prompt->get<std::string>(), "prompt");
  } else if (prompt->is_array()) {
    ids_ = checked_ids(*prompt, *model_, "prompt");
  } else {
    fields.fail("prompt", str(brief(*prompt), "; expected a string or a list of token ids"));
  }
  const int64_t limit = std::min(kMaxInspectTokens, model_->backend->shape().context);
  if (ids_.empty() || tokens() > limit) {
    fields.fail(messages != nullptr ? "messages" : "prompt", str(tokens(), " tokens; expected 1 to ", limit));
  }
}

void InspectJob::read_attention(Fields& fields) {
  const Json* value = fields.find("attention");
  if (value == nullptr || *value == Json(false)) return;
  wants_attention_ = true;
  const std::vector<int64_t> heads = heads_of_layers(model_->model->spec());
  const auto layers = static_cast<int64_t>(heads.size());
  options_.layers.resize(heads.size());
  std::iota(options_.layers.begin(), options_.layers.end(), 0);
  if (value->is_object()) {
    Fields inner(*value, "attention");
    if (inner.has("layers")) options_.layers = inner.integers("layers", heads.size());
    options_.heads = inner.integers("heads", 4096);
    inner.finish();
  } else if (!value->is_boolean()) {
    fields.fail("attention", str(brief(*value), "; expected true, false or {\"layers\": [...], \"heads\": [...]}"));
  }
  std::sort(options_.layers.begin(), options_.layers.end());
  std::sort(options_.heads.begin(), options_.heads.end());
  const auto repeats = [](const std::vector<int64_t>& list) {
    return std::adjacent_find(list.begin(), list.end()) != list.end();
  };
  if (repeats(options_.layers) || repeats(options_.heads)) fields.fail("attention", "names a layer or head twice");
  int64_t maps = 0;
  for (const int64_t layer : options_.layers) {
    if (layer < 0 || layer >= layers) {
      fields.fail("attention.layers", str(layer, "; the model has layers 0 to ", layers - 1));
    }
    const int64_t count = heads[static_cast<size_t>(layer)];
    maps += options_.heads.empty() ? count : static_cast<int64_t>(options_.heads.size());
    if (count > 0 && !options_.heads.empty() && (options_.heads.front() < 0 || options_.heads.back() >= count)) {
      fields.fail("attention.heads", str("layer ", layer, " has heads 0 to ", count - 1));
    }
  }
  if (maps * tokens() * tokens() > kMaxAttentionNumbers) {
    fields.fail("attention", str(maps, " maps of ", tokens(), " x ", tokens(), " tokens; expected at most ",
                                 kMaxAttentionNumbers, " numbers: ask for fewer layers or heads, or a shorter prompt"));
  }
}

void InspectJob::check_comparison(const Fields& fields) const {
  if (other_ == nullptr) return;
  const infer::CacheShape& shape = model_->backend->shape();
  if (other_->model == nullptr || other_->tokenizer_fingerprint != model_->tokenizer_fingerprint ||
      other_->backend->shape().vocab_size != shape.vocab_size) {
    fields.fail("compare_with",
                str(other_->id, " and ", model_->id, " have different tokenizers; compare models with the same one"));
  }
  if (tokens() > other_->backend->shape().context) {
    fields.fail("compare_with",
                str(tokens(), " tokens; ", other_->id, " has a context of ", other_->backend->shape().context));
  }
  const int64_t most = kMaxCompared / shape.vocab_size;
  if (tokens() > most) fields.fail("compare_with", str(tokens(), " tokens; expected at most ", most));
}

void InspectJob::read(const Json& json) {
  Fields fields(json);
  fields.find("model");
  fields.find("compare_with");
  if (!model_->runs_tasks()) fields.fail("model", str(model_->id, " cannot be inspected", model_->why_no_tasks()));
  if (!arch::is_causal(model_->model->spec())) {
    fields.fail("model", str(model_->id, " is an encoder, which predicts no next tokens; expected a decoder"));
  }
  read_prompt(fields);
  read_attention(fields);
  options_.top = fields.integer("top", 5, 0, kMaxInspectTop);
  options_.hidden_norms = fields.flag("hidden", false);
  options_.vocab_size = model_->backend->shape().vocab_size;
  fields.finish();
  check_comparison(fields);
}

void InspectJob::start() {
  watch_client();
  const auto self = std::static_pointer_cast<InspectJob>(shared_from_this());
  const auto measure = [self] {
    self->between_steps(self->model_, [self](nn::Model& model) { self->compute(model); });
  };
  if (other_ == nullptr) return measure();
  between_steps(other_, [self, measure](nn::Model& model) {
    self->compared_ = infer::next_token_logprobs(model, self->ids_, self->options_.vocab_size);
    self->options_.compare = self->compared_;
    measure();
  });
}

void InspectJob::compute(nn::Model& model) {
  result_ = infer::inspect(model, ids_, options_);
  // Large JSON takes long to write, so a worker does it, not the engine's thread.
  post_([self = std::static_pointer_cast<InspectJob>(shared_from_this())] {
    self->guard([&] {
      HttpResponse response = json_response(self->body());
      if (self->wants_attention_) {
        response.body.pop_back();  // the closing brace
        response.body += ",\"attention\":" + self->attention_text() + "}";
      }
      self->exchange->send(std::move(response));
    });
  });
}

Json InspectJob::top_json(size_t prediction) const {
  Json list = Json::array();
  for (const auto& [id, logprob] : result_.predictions[prediction].top) {
    list.push_back({{"id", id},
                    {"text", token_text(*model_, ids_[prediction], id)},
                    {"logprob", six_decimals(json_logprob(logprob))}});
  }
  return list;
}

Json InspectJob::token_json(size_t index) const {
  const auto previous = index > 0 ? std::optional(ids_[index - 1]) : std::nullopt;
  std::string bytes;
  Json json{{"id", ids_[index]}, {"text", token_text(*model_, previous, ids_[index], &bytes)}};
  json["bytes"] = Json::array();
  for (const unsigned char byte : bytes) json["bytes"].push_back(int{byte});
  if (index == 0) {
    json["logprob"] = json["entropy"] = nullptr;
    json["top"] = Json::array();
    return json;
  }
  const infer::Prediction& prediction = result_.predictions[index - 1];
  json["logprob"] = six_decimals(json_logprob(static_cast<float>(prediction.logprob)));
  json["entropy"] = six_decimals(prediction.entropy);
  json["top"] = top_json(index - 1);
  return json;
}

/// Writes the numbers directly as text: JSON trees of millions of weights would take ten times the memory.
std::string InspectJob::attention_text() const {
  constexpr size_t kLongestNumber = 8;  // "0.12345,"
  std::string text = "[";
  text.reserve(result_.attention.size() * static_cast<size_t>(tokens() * (tokens() + 1) / 2 + 16) * kLongestNumber);
  for (const infer::AttentionMap& map : result_.attention) {
    text += str(text.size() > 1 ? "," : "", "{\"layer\":", map.layer, ",\"head\":", map.head, ",\"weights\":[");
    for (int64_t query = 0; query < tokens(); ++query) {
      text += query > 0 ? ",[" : "[";
      for (int64_t key = 0; key <= query; ++key) {
        char number[32];
        const double weight = rounded(map.weights[static_cast<size_t>(query * tokens() + key)], 1e5);
        const auto end = std::to_chars(std::begin(number), std::end(number), weight).ptr;
        if (key > 0) text += ',';
        text.append(number, end);
      }
      text += ']';
    }
    text += "]}";
  }
  return text + "]";
}

Json InspectJob::cache_json() const {
  const infer::CacheShape& shape = model_->backend->shape();
  Json groups = Json::array();
  int64_t bytes = shape.bytes_per_state * (shape.state_slots > 0 ? 1 : 0);
  for (const infer::CacheGroup& group : shape.groups) {
    const int64_t kept = group.window > 0 ? std::min(group.window, tokens()) : tokens();
    const int64_t pages = (kept + shape.page_size - 1) / shape.page_size;
    bytes += pages * group.bytes_per_page;
    groups.push_back({{"window", group.window}, {"pages", pages}, {"pages_total", group.pages}});
  }
  return {{"page_size", shape.page_size}, {"groups", std::move(groups)}, {"bytes", bytes}};
}

Json InspectJob::body() const {
  Json json{{"object", "inspect"}, {"model", model_->id}, {"fingerprint", model_->fingerprint}};
  json["tokens"] = Json::array();
  for (size_t i = 0; i < ids_.size(); ++i) json["tokens"].push_back(token_json(i));
  const infer::Prediction& last = result_.predictions.back();
  json["next"] = {{"entropy", six_decimals(last.entropy)}, {"top", top_json(ids_.size() - 1)}};
  if (options_.hidden_norms) {
    json["hidden_norms"] = Json::array();
    for (const auto& layer : result_.hidden_norms) {
      Json row = Json::array();
      for (const double norm : layer) row.push_back(rounded(norm, 1e4));
      json["hidden_norms"].push_back(std::move(row));
    }
  }
  if (other_ != nullptr) {
    json["compare_with"] = {{"model", other_->id}, {"fingerprint", other_->fingerprint}};
    json["kl"] = Json::array({nullptr});
    for (size_t i = 0; i + 1 < ids_.size(); ++i) json["kl"].push_back(six_decimals(result_.predictions[i].kl));
    json["next"]["kl"] = six_decimals(last.kl);
  }
  json["cache"] = cache_json();
  return json;
}

}  // namespace

void run_inspect(const Json& body, const std::shared_ptr<Exchange>& exchange, const std::shared_ptr<ServedModel>& model,
                 const std::shared_ptr<ServedModel>& other, const PostToWorker& post) {
  const auto job = std::make_shared<InspectJob>(exchange, model, other, post);
  job->read(body);
  job->start();
}

}  // namespace lamina::serve
