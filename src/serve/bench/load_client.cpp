#include "lamina/serve/bench/load_client.h"

#include <algorithm>
#include <array>
#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "lamina/base/error.h"
#include "lamina/base/json.h"

namespace lamina::serve {
namespace {

namespace net = boost::asio;
namespace beast_http = boost::beast::http;
using LoadJson = nlohmann::ordered_json;
using ErrorCode = boost::system::error_code;

double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Target {
  std::string host, port;
  net::ip::tcp::resolver::results_type endpoints;
};

Target parse_target(net::io_context& io, std::string url) {
  LAMINA_CHECK(url.starts_with("http://"), "bench serve: '", url, "'; expected http://HOST:PORT");
  url = url.substr(7, url.find('/', 7) - 7);
  const size_t colon = url.find(':', url.starts_with("[") ? url.find(']') : 0);
  Target target{url.substr(0, colon), colon == std::string::npos ? "80" : url.substr(colon + 1), {}};
  ErrorCode error;
  net::ip::tcp::resolver resolver(io);
  const bool bracketed = target.host.starts_with("[") && target.host.ends_with("]");  // an IPv6 address
  const std::string name = bracketed ? target.host.substr(1, target.host.size() - 2) : target.host;
  target.endpoints = resolver.resolve(name, target.port, error);
  LAMINA_CHECK(!error, "bench serve: ", target.host, ":", target.port, ": ", error.message());
  return target;
}

/// The text after `"name":`, without leading spaces; empty if there is no such field. Quotes inside JSON strings are
/// escaped, so generated text cannot be mistaken for a field.
std::string_view value_of(std::string_view json, std::string_view name) {
  const std::string quoted = "\"" + std::string(name) + "\"";
  const size_t at = json.find(quoted);
  if (at == std::string_view::npos) return {};
  const size_t begin = json.find_first_not_of(" :", at + quoted.size());
  return begin == std::string_view::npos ? std::string_view() : json.substr(begin);
}

bool holds_value(std::string_view json, std::string_view name) {
  const std::string_view value = value_of(json, name);
  return !value.empty() && !value.starts_with("null");
}

/// Whether the field is a non-empty list.
bool holds_list(std::string_view json, std::string_view name) {
  const std::string_view value = value_of(json, name);
  const size_t item = value.find_first_not_of(" ", 1);
  return value.starts_with("[") && item != std::string_view::npos && value[item] != ']';
}

/// One request and its response, which may be an event stream.
class ClientCall : public std::enable_shared_from_this<ClientCall> {
 public:
  using Done = std::function<void(ClientCall&)>;
  ClientCall(net::io_context& io, const Target& target, double timeout)
      : socket_(io), timer_(io), target_(target), timeout_(timeout) {
    parser_.body_limit(uint64_t{1} << 30);
  }

  void start(const std::string& path, const LoadJson& body, const std::string& api_key, Done done) {
    done_ = std::move(done);
    request_.method(body.is_null() ? beast_http::verb::get : beast_http::verb::post);
    request_.target(path);
    request_.set(beast_http::field::host, target_.host + ":" + target_.port);
    request_.set(beast_http::field::content_type, "application/json");
    if (!api_key.empty()) request_.set(beast_http::field::authorization, "Bearer " + api_key);
    if (!body.is_null()) request_.body() = body.dump();
    request_.keep_alive(false);
    request_.prepare_payload();
    sent = last = clock_seconds();
    timer_.expires_after(std::chrono::milliseconds(static_cast<int64_t>(timeout_ * 1000)));
    timer_.async_wait([self = shared_from_this()](const ErrorCode& failed) {
      if (!failed) self->end("no answer within the time limit");
    });
    net::async_connect(socket_, target_.endpoints, [self = shared_from_this()](const ErrorCode& failed, const auto&) {
      if (failed) return self->end("connect: " + failed.message());
      ErrorCode ignored;
      self->socket_.set_option(net::ip::tcp::no_delay(true), ignored);
      beast_http::async_write(self->socket_, self->request_, [self](const ErrorCode& unsent, size_t) {
        if (unsent) return self->end("write: " + unsent.message());
        self->read();
      });
    });
  }

  double sent = 0, first = 0, last = 0, ended = 0;
  std::vector<double> gaps;  ///< seconds between events with text
  std::string error;
  LoadJson usage;
  const std::string& body() const { return parser_.get().body(); }

 private:
  void read() {
    beast_http::async_read_some(
        socket_, buffer_, parser_, [self = shared_from_this()](const ErrorCode& failed, size_t) {
          if (failed && failed != beast_http::error::end_of_stream) return self->end("read: " + failed.message());
          self->read_events();
          if (!self->parser_.is_done() && !failed) return self->read();
          const int status = static_cast<int>(self->parser_.get().result_int());
          self->end(status == 200 ? "" : str("status ", status, ": ", self->body().substr(0, 200)));
        });
  }

  /// Processes the complete events that have arrived.
  void read_events() {
    const double now = clock_seconds();
    const std::string& text = body();
    for (size_t end = 0; (end = text.find("\n\n", seen_)) != std::string::npos; seen_ = end + 2) {
      const std::string_view event = std::string_view(text).substr(seen_, end - seen_);
      if (!event.starts_with("data: {")) continue;
      // Only the last events are fully parsed. Parsing all would cost more time than a small model's server needs to
      // generate.
      if (holds_value(event, "error") || holds_value(event, "usage")) read_whole(event);
      if (!holds_list(event, "choices")) continue;
      if (first == 0) {
        first = now;
      } else {
        gaps.push_back(now - last);
      }
      last = now;
    }
  }

  void read_whole(std::string_view event) {
    const auto json = try_parse_json<LoadJson>(event.substr(6));
    if (!json || !json->is_object()) return;
    if (json->contains("error")) error = event.substr(0, 200);
    if (json->contains("usage") && (*json)["usage"].is_object()) usage = (*json)["usage"];
  }

  void end(const std::string& message) {
    if (!done_) return;
    if (error.empty()) error = message;
    ended = clock_seconds();
    ErrorCode ignored;
    socket_.close(ignored);
    timer_.cancel();
    const Done done = std::exchange(done_, {});
    done(*this);
  }

  net::ip::tcp::socket socket_;
  net::steady_timer timer_;
  const Target& target_;
  double timeout_;
  beast_http::request<beast_http::string_body> request_;
  beast_http::response_parser<beast_http::string_body> parser_;
  boost::beast::flat_buffer buffer_;
  size_t seen_ = 0;
  Done done_;
};

class LoadClient {
 public:
  explicit LoadClient(const LoadClientOptions& options)
      : options_(options), target_(parse_target(io_, options.url)), random_(options.seed) {}

  LoadClientReport run() {
    report_.model = options_.model.empty() ? first_model() : options_.model;
    io_.restart();
    const double started = clock_seconds();
    if (options_.rate > 0) {
      arrive();
    } else {
      for (int64_t i = 0; i < std::min(options_.clients, options_.requests); ++i) send_next();
    }
    io_.run();
    report_.seconds = clock_seconds() - started;
    for (infer::Latencies* list : {&report_.first_token, &report_.next_token, &report_.per_token, &report_.request}) {
      std::sort(list->values.begin(), list->values.end());
    }
    return std::move(report_);
  }

 private:
  std::string first_model() {
    std::string name, problem;
    auto call = std::make_shared<ClientCall>(io_, target_, 30);
    call->start("/v1/models", nullptr, options_.api_key, [&](ClientCall& done) {
      problem = done.error;
      const auto json = try_parse_json<LoadJson>(done.body());
      if (!json || !json->contains("data") || !(*json)["data"].is_array() || (*json)["data"].empty()) return;
      const LoadJson& model = (*json)["data"][0];
      if (model.is_object() && model.contains("id") && model["id"].is_string()) name = model["id"];
    });
    io_.run();
    LAMINA_CHECK(problem.empty() && !name.empty(), "bench serve: ", options_.url,
                 "/v1/models: ", problem.empty() ? "names no model; give one with --model" : problem);
    return name;
  }

  LoadJson make_prompt() {
    static constexpr std::array kWords{"time", "river", "house", "seven", "light", "under", "green", "story",
                                       "king", "water", "night", "small", "world", "early", "voice", "stone"};
    std::mt19937_64 common(options_.seed);
    LoadJson ids = LoadJson::array();
    std::string text;
    for (int64_t i = 0; i < options_.prompt; ++i) {
      const uint64_t draw = i < options_.shared ? common() : random_();
      if (options_.vocab > 0) {
        ids.push_back(draw % static_cast<uint64_t>(options_.vocab));
      } else {
        text += str(i > 0 ? " " : "", kWords[draw % kWords.size()]);
      }
    }
    return options_.vocab > 0 ? ids : LoadJson(text);
  }

  void send_next() {
    if (sent_ >= options_.requests) return;
    ++sent_;
    const LoadJson body{{"model", report_.model},
                        {"prompt", make_prompt()},
                        {"max_tokens", options_.answer},
                        {"ignore_eos", true},
                        {"temperature", options_.temperature},
                        {"seed", options_.seed + static_cast<uint64_t>(sent_)},
                        {"stream", true},
                        {"stream_options", {{"include_usage", true}}}};
    auto call = std::make_shared<ClientCall>(io_, target_, options_.timeout);
    call->start("/v1/completions", body, options_.api_key, [this](ClientCall& done) {
      record(done);
      if (options_.rate <= 0) send_next();
    });
  }

  /// Sends a request and schedules the next one after an exponentially distributed delay.
  void arrive() {
    send_next();
    if (sent_ >= options_.requests) return;
    const double wait = std::exponential_distribution<double>(options_.rate)(random_);
    arrival_.expires_after(std::chrono::microseconds(static_cast<int64_t>(wait * 1e6)));
    arrival_.async_wait([this](const ErrorCode& error) {
      if (!error) arrive();
    });
  }

  void record(const ClientCall& call) {
    if (!call.error.empty() || call.first == 0) {
      ++report_.failed;
      if (report_.first_error.empty()) report_.first_error = call.error.empty() ? "the answer is empty" : call.error;
      return;
    }
    ++report_.completed;
    const auto count = [](const LoadJson& object, const char* name) {
      const auto found = object.is_object() ? object.find(name) : object.end();
      return object.is_object() && found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
    };
    int64_t tokens = count(call.usage, "completion_tokens");
    if (tokens == 0) tokens = static_cast<int64_t>(call.gaps.size()) + 1;  // no usage reported: one per event
    report_.answer_tokens += tokens;
    report_.prompt_tokens += count(call.usage, "prompt_tokens");
    if (call.usage.is_object() && call.usage.contains("prompt_tokens_details")) {
      report_.cached_tokens += count(call.usage["prompt_tokens_details"], "cached_tokens");
    }
    report_.first_token.values.push_back(call.first - call.sent);
    for (const double gap : call.gaps) report_.next_token.values.push_back(gap);
    if (tokens > 1) report_.per_token.values.push_back((call.last - call.first) / static_cast<double>(tokens - 1));
    report_.request.values.push_back(call.ended - call.sent);
  }

  LoadClientOptions options_;
  net::io_context io_;
  Target target_;
  net::steady_timer arrival_{io_};
  std::mt19937_64 random_;
  int64_t sent_ = 0;
  LoadClientReport report_;
};

}  // namespace

LoadClientReport run_load_client(const LoadClientOptions& options) { return LoadClient(options).run(); }

}  // namespace lamina::serve
