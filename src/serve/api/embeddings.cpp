#include "lamina/serve/api/embeddings.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lamina/infer/embed.h"
#include "lamina/serve/api/answer_job.h"
#include "lamina/serve/api/model_task.h"
#include "lamina/serve/api/request_fields.h"

namespace lamina::serve {
namespace {

constexpr size_t kMaxInputs = 2048;
constexpr int64_t kMaxEmbeddedTokens = int64_t{1} << 18;  ///< per request
constexpr int64_t kTokensAtOnce = 1024;                   ///< per call between two engine steps

std::string base64_of(const std::vector<float>& numbers) {
  const size_t size = numbers.size() * sizeof(float);
  std::string text(4 * ((size + 2) / 3) + 1, '\0');  // EVP_EncodeBlock writes a terminating zero
  const int length = ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                       reinterpret_cast<const unsigned char*>(numbers.data()), static_cast<int>(size));
  text.resize(static_cast<size_t>(length));
  return text;
}

class EmbeddingJob final : public ModelTask {
 public:
  EmbeddingJob(std::shared_ptr<Exchange> client, std::shared_ptr<ServedModel> served)
      : ModelTask(std::move(client)), model_(std::move(served)) {}

  void read(const Json& json);
  void start() {
    watch_client();
    next_batch();
  }

 private:
  void read_input(Fields& fields);
  /// The prompt that the request names, or the model's default.
  std::string read_prompt(Fields& fields) const;
  void next_batch();
  void compute(nn::Model& model);
  Json body() const;

  std::shared_ptr<ServedModel> model_;
  std::vector<std::vector<text::TokenId>> inputs_;
  bool base64_ = false;
  size_t dimensions_ = 0;
  int64_t tokens_ = 0;
  std::vector<std::vector<float>> results_;
};

std::string EmbeddingJob::read_prompt(Fields& fields) const {
  const std::string name = fields.text("prompt_name");
  if (name.empty()) return infer::prompt_for(model_->vectors, infer::TextRole::any);
  try {
    return infer::prompt_named(model_->vectors, name);
  } catch (const Error& error) {
    fields.fail("prompt_name", error.what());
  }
}

void EmbeddingJob::read_input(Fields& fields) {
  const std::string prompt = read_prompt(fields);
  // Too long a text is refused below, not cut.
  io::VectorRecipe uncut = model_->vectors;
  uncut.max_tokens.reset();
  std::optional<infer::TextReader> reader;
  const auto encoded = [&](const std::string& text) {
    try {
      if (!reader) reader.emplace(tokenizer_of(*model_), uncut, std::numeric_limits<int64_t>::max(), prompt);
      return reader->ids(text);
    } catch (const ApiError&) {
      throw;
    } catch (const Error& error) {
      throw ApiError(400, str("input: ", error.what()), "input");
    }
  };
  const Json* input = fields.find("input");
  if (!input) fields.fail("input", "is missing; expected a string, strings, token ids or lists of token ids");
  const auto is_number = [](const Json& item) { return item.is_number(); };
  if (input->is_string()) {
    inputs_.push_back(encoded(input->get<std::string>()));
  } else if (input->is_array() && !input->empty() && std::all_of(input->begin(), input->end(), is_number)) {
    inputs_.push_back(checked_ids(*input, *model_, "input"));
  } else if (input->is_array() && !input->empty() && input->size() <= kMaxInputs) {
    for (const Json& item : *input) {
      if (item.is_string()) {
        inputs_.push_back(encoded(item.get<std::string>()));
      } else if (item.is_array()) {
        inputs_.push_back(checked_ids(item, *model_, "input"));
      } else {
        fields.fail("input", str("holds ", brief(item), "; expected strings or lists of token ids"));
      }
    }
  } else {
    fields.fail("input", str(brief(*input), "; expected a string, or a list of 1 to ", kMaxInputs,
                             " strings, token ids or lists of token ids"));
  }
  const int64_t context =
      std::min(model_->backend->shape().context, model_->vectors.max_tokens.value_or(kMaxEmbeddedTokens));
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const auto length = static_cast<int64_t>(inputs_[i].size());
    tokens_ += length;
    if (length == 0 || length > context) {
      fields.fail("input", str("input ", i, " has ", length, " tokens; expected 1 to ", context));
    }
  }
  if (tokens_ > kMaxEmbeddedTokens) {
    fields.fail("input", str(tokens_, " tokens; expected at most ", kMaxEmbeddedTokens, " in one request"));
  }
}

void EmbeddingJob::read(const Json& json) {
  Fields fields(json);
  fields.find("model");
  if (!model_->runs_tasks()) {
    fields.fail("model", str(model_->id, " cannot compute embeddings", model_->why_no_tasks()));
  }
  read_input(fields);
  const std::string format = fields.text("encoding_format", "float");
  if (format != "float" && format != "base64") {
    fields.fail("encoding_format", str("'", format.substr(0, 40), "'; expected float or base64"));
  }
  base64_ = format == "base64";
  const int64_t width = infer::vector_width(model_->vectors, model_->model->spec().d_model);
  dimensions_ = static_cast<size_t>(fields.integer("dimensions", width, 1, width));
  fields.text("user");
  fields.finish();
}

void EmbeddingJob::next_batch() {
  const auto self = std::static_pointer_cast<EmbeddingJob>(shared_from_this());
  between_steps(model_, [self](nn::Model& model) { self->compute(model); });
}

void EmbeddingJob::compute(nn::Model& model) {
  // With length-dependent RoPE scaling, a text's frequencies would depend on the other texts in its batch. Such models
  // compute one text at a time.
  const int64_t limit = model.depends_on_length() ? 1 : kTokensAtOnce;
  const size_t first = results_.size();
  size_t end = first;
  int64_t tokens = 0;
  while (end < inputs_.size() && (end == first || tokens + static_cast<int64_t>(inputs_[end].size()) <= limit)) {
    tokens += static_cast<int64_t>(inputs_[end++].size());
  }
  const auto inputs = std::span(inputs_).subspan(first, end - first);
  for (auto& vector : infer::embed_together(model, inputs, model_->vectors)) {
    results_.push_back(std::move(vector));
  }
  if (end < inputs_.size()) return next_batch();
  exchange->send(json_response(body()));
}

Json EmbeddingJob::body() const {
  Json data = Json::array();
  for (size_t i = 0; i < results_.size(); ++i) {
    std::vector<float> vector(results_[i].begin(), results_[i].begin() + static_cast<std::ptrdiff_t>(dimensions_));
    if (dimensions_ < results_[i].size()) {
      double square = 0;
      for (const float value : vector) square += double{value} * value;
      const double norm = std::sqrt(square);
      for (float& value : vector) value = norm > 0 ? static_cast<float>(value / norm) : 0.0F;
    }
    data.push_back({{"object", "embedding"}, {"index", i}});
    data.back()["embedding"] = base64_ ? Json(base64_of(vector)) : Json(vector);
  }
  return {{"object", "list"},
          {"data", std::move(data)},
          {"model", model_->id},
          {"usage", {{"prompt_tokens", tokens_}, {"total_tokens", tokens_}}}};
}

}  // namespace

void run_embeddings(const Json& body, const std::shared_ptr<Exchange>& exchange,
                    const std::shared_ptr<ServedModel>& model) {
  const auto job = std::make_shared<EmbeddingJob>(exchange, model);
  job->read(body);
  job->start();
}

}  // namespace lamina::serve
