// Sends any bytes as the body of an API request to the service with a fake engine: every answer is JSON or an event
// stream, with status 200, 400 or 404. Also reads them as the query of a URL, and as a required tool call.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "lamina/arch/edit.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/serve/api/required_call.h"
#include "lamina/serve/api/response_input.h"
#include "lamina/serve/api/service.h"
#include "lamina/text/simple.h"

namespace {

using namespace lamina;

/// Answers at once, with up to three tokens per answer.
class FakeBackend final : public serve::Backend {
 public:
  explicit FakeBackend(int64_t vocab) {
    shape_.vocab_size = vocab;
    shape_.context = 256;
  }
  infer::RequestId submit(infer::Request request, infer::Listener listener) override {
    for (int64_t i = 0; i < request.n; ++i) {
      infer::Update update;
      update.answer = i;
      if (i == 0 && request.prompt_logprobs >= 0) {
        for (size_t p = 1; p < request.prompt.size(); ++p) update.prompt.push_back({request.prompt[p], -1.0F, {}});
      }
      for (int64_t t = 0; t < std::min<int64_t>(3, request.max_tokens); ++t) {
        update.tokens.push_back({static_cast<text::TokenId>(97 + t), -0.5F, {{98, -0.5F}}});
        update.text += static_cast<char>(97 + t);
      }
      update.finish = infer::Finish::stop_token;
      update.request_done = i + 1 == request.n;
      if (!listener(update)) break;
    }
    return ++last_;
  }
  void cancel(infer::RequestId) override {}
  void post(std::function<void()> task) override { task(); }
  infer::EngineStats stats() const override { return {}; }
  std::vector<infer::RunningAnswer> running() const override { return {}; }
  const infer::CacheShape& shape() const override { return shape_; }

 private:
  infer::CacheShape shape_;
  infer::RequestId last_ = 0;
};

class FakeExchange final : public serve::Exchange {
 public:
  FakeExchange(std::string path, std::string body) {
    request_.method = "POST";
    request_.path = std::move(path);
    request_.body = std::move(body);
  }
  const serve::HttpRequest& request() const override { return request_; }
  void send(serve::HttpResponse response) override {
    const bool known = response.status == 200 || response.status == 400 || response.status == 404;
    if (!known || nlohmann::json::parse(response.body, nullptr, false).is_discarded() || ended_) std::abort();
    ended_ = true;
  }
  void start(serve::HttpResponse head) override {
    if (head.status != 200 || ended_ || started_) std::abort();
    started_ = true;
  }
  void write(std::string_view chunk) override {
    if (!started_ || ended_ || !chunk.ends_with("\n\n")) std::abort();
    const size_t data = chunk.starts_with("event: ") ? chunk.find('\n') + 1 : 0;
    if (chunk.compare(data, 6, "data: ") != 0) std::abort();
    if (chunk == "data: [DONE]\n\n") return;
    if (nlohmann::json::parse(chunk.substr(data + 6), nullptr, false).is_discarded()) std::abort();
  }
  void finish() override {
    if (!started_ || ended_) std::abort();
    ended_ = true;
  }
  void post(std::function<void()> task) override { task(); }
  void on_close(std::function<void()>) override {}
  bool ended() const { return ended_; }

 private:
  serve::HttpRequest request_;
  bool started_ = false, ended_ = false;
};

/// A real model, for the endpoints that use more than the engine.
nn::Model* tiny_model(int64_t vocab) {
  const std::vector<std::string> sets{str("vocab_size=", vocab)};
  static nn::Model model(arch::resolve(arch::with_overrides(arch::load_arch("llama-tiny"), sets), "llama-tiny"),
                         Device::cpu(1));
  return &model;
}

serve::Service& service() {
  static const auto tokenizer = text::byte_tokenizer({"<|endoftext|>"});
  static serve::Service instance(
      [] {
        auto model = std::make_shared<serve::ServedModel>();
        model->id = "fake";
        model->tokenizer = tokenizer.get();
        model->stop_tokens = {*tokenizer->eos()};
        model->chat_template = text::ChatTemplate::chatml();
        model->backend = std::make_shared<FakeBackend>(tokenizer->vocab_size());
        model->model = tiny_model(tokenizer->vocab_size());
        return std::vector{model};
      }(),
      /*workers=*/0);
  return instance;
}

/// A URL's query selects a page of items, or is an ApiError.
int check_query(const std::string& query) {
  const serve::Json items = serve::Json::array({{{"id", "a"}}, {{"id", "b"}}, {{"id", "c"}}});
  try {
    if (serve::list_input_items(items, query)["data"].size() > items.size()) std::abort();
  } catch (const serve::ApiError& error) {
    if (error.status() != 400) std::abort();
  }
  return 0;
}

/// A call is read to the same arguments in one piece and byte by byte.
int check_required_call(const std::string& answer) {
  serve::RequiredCall whole, pieces;
  const std::string arguments = whole.push(answer);
  std::string joined;
  for (const char c : answer) joined += pieces.push({&c, 1});
  if (joined != arguments || whole.name() != pieces.name() || whole.known() != pieces.known()) std::abort();
  return 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static constexpr const char* kPaths[] = {"/v1/completions", "/v1/chat/completions", "/tokenize",
                                           "/detokenize",     "/apply-template",      "/v1/messages",
                                           "/v1/responses",   "/v1/embeddings",       "/v1/inspect"};
  if (size == 0) return 0;
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 255) return check_query(body);
  if (data[0] == 254) return check_required_call(body);
  const auto exchange = std::make_shared<FakeExchange>(kPaths[data[0] % std::size(kPaths)], body);
  service().handle(exchange);
  if (!exchange->ended()) std::abort();
  return 0;
}
