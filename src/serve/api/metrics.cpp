#include "lamina/serve/api/metrics.h"

#include <algorithm>
#include <functional>

#include "lamina/base/error.h"

namespace lamina::serve {
namespace {

using EngineList = std::vector<EngineReport>;

struct EngineMetric {
  const char* name;
  const char* type;
  const char* help;
  double (*value)(const infer::EngineStats&);
};

constexpr EngineMetric kEngineMetrics[] = {
    {"lamina_requests_running", "gauge", "Answers being computed.",
     [](const infer::EngineStats& s) { return static_cast<double>(s.running); }},
    {"lamina_requests_waiting", "gauge", "Answers in the queue.",
     [](const infer::EngineStats& s) { return static_cast<double>(s.waiting); }},
    {"lamina_cache_pages", "gauge", "Pages of the KV cache.",
     [](const infer::EngineStats& s) { return static_cast<double>(s.pages); }},
    {"lamina_cache_pages_used", "gauge", "Pages held by running answers.",
     [](const infer::EngineStats& s) { return static_cast<double>(s.pages_used); }},
    {"lamina_cache_pages_reusable", "gauge", "Pages with cached prefixes that no running answer holds.",
     [](const infer::EngineStats& s) { return static_cast<double>(s.pages_cached); }},
    {"lamina_cache_bytes", "gauge", "Memory of all caches.",
     [](const infer::EngineStats& s) { return static_cast<double>(s.cache_bytes); }},
    {"lamina_prompt_tokens_total", "counter", "Prompt tokens computed.",
     [](const infer::EngineStats& s) { return static_cast<double>(s.prompt_tokens); }},
    {"lamina_cached_tokens_total", "counter", "Prompt tokens found in the prefix cache.",
     [](const infer::EngineStats& s) { return static_cast<double>(s.cached_tokens); }},
    {"lamina_generated_tokens_total", "counter", "Answer tokens.",
     [](const infer::EngineStats& s) { return static_cast<double>(s.answer_tokens); }},
    {"lamina_answers_total", "counter", "Answers that ended.",
     [](const infer::EngineStats& s) { return static_cast<double>(s.answers_done); }},
    {"lamina_answers_cancelled_total", "counter", "Answers that were cancelled.",
     [](const infer::EngineStats& s) { return static_cast<double>(s.cancelled); }},
    {"lamina_answers_failed_total", "counter", "Answers that failed.",
     [](const infer::EngineStats& s) { return static_cast<double>(s.failed); }},
    {"lamina_requests_rejected_total", "counter", "Requests refused because the queue was full.",
     [](const infer::EngineStats& s) { return static_cast<double>(s.rejected); }},
    {"lamina_preemptions_total", "counter", "Answers put back into the queue for lack of pages.",
     [](const infer::EngineStats& s) { return static_cast<double>(s.preemptions); }},
    {"lamina_steps_total", "counter", "Steps of the model.",
     [](const infer::EngineStats& s) { return static_cast<double>(s.steps); }},
    {"lamina_step_seconds_total", "counter", "Time spent in steps.",
     [](const infer::EngineStats& s) { return s.step_seconds; }},
    {"lamina_draft_tokens_total", "counter", "Tokens drafted by speculative decoding.",
     [](const infer::EngineStats& s) { return static_cast<double>(s.drafted); }},
    {"lamina_draft_tokens_accepted_total", "counter", "Drafted tokens that were accepted.",
     [](const infer::EngineStats& s) { return static_cast<double>(s.accepted); }},
    {"lamina_draft_acceptance_ratio", "gauge", "Share of drafted tokens that were accepted.",
     [](const infer::EngineStats& s) { return s.acceptance(); }},
    {"lamina_draft_steps_total", "counter", "Steps of the draft model.",
     [](const infer::EngineStats& s) { return static_cast<double>(s.draft_steps); }},
};

/// A model's name as a Prometheus label value, with quotes, backslashes and line breaks escaped.
std::string model_label(const std::string& model) {
  std::string value;
  for (const char c : model) {
    if (c == '"' || c == '\\') value += '\\';
    value += c == '\n' ? ' ' : c;
  }
  return "model=\"" + value + "\"";
}

std::string heading(const std::string& name, const char* type, const char* help) {
  return str("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
}

}  // namespace

void Histogram::add(double seconds, int64_t times) {
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  counts_[static_cast<size_t>(bound - kBounds.begin())] += times;
  sum_ += seconds * static_cast<double>(times);
}

std::string Histogram::text(const std::string& name, const std::string& labels) const {
  std::string out;
  int64_t sum = 0;
  for (size_t i = 0; i < kBounds.size(); ++i) {
    sum += counts_[i];
    out += str(name, "_bucket{", labels, ",le=\"", kBounds[i], "\"} ", sum, "\n");
  }
  sum += counts_.back();
  out += str(name, "_bucket{", labels, ",le=\"+Inf\"} ", sum, "\n");
  return out + str(name, "_sum{", labels, "} ", sum_, "\n", name, "_count{", labels, "} ", sum, "\n");
}

void Metrics::count_response(int status) {
  const std::lock_guard lock(mutex_);
  ++responses_[status];
}

void Metrics::add_first_token(const std::string& model, double seconds) {
  const std::lock_guard lock(mutex_);
  latencies_[model].first_token.add(seconds);
}

void Metrics::add_next_tokens(const std::string& model, double seconds, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  latencies_[model].next_token.add(seconds / static_cast<double>(tokens), tokens);
}

void Metrics::add_request(const std::string& model, double seconds) {
  const std::lock_guard lock(mutex_);
  latencies_[model].request.add(seconds);
}

std::string Metrics::text(const EngineList& engines) const {
  std::string out;
  for (const EngineMetric& metric : kEngineMetrics) {
    out += heading(metric.name, metric.type, metric.help);
    for (const EngineReport& engine : engines) {
      char value[40];
      std::snprintf(value, sizeof value, "%.15g", metric.value(engine.stats));
      out += str(metric.name, "{", model_label(engine.model), "} ", value, "\n");
    }
  }
  const std::lock_guard lock(mutex_);
  out += heading("lamina_http_responses_total", "counter", "Responses by status; 0: the client disconnected.");
  for (const auto& [status, count] : responses_) {
    out += str("lamina_http_responses_total{status=\"", status, "\"} ", count, "\n");
  }
  const auto add = [&](const char* name, const char* help, Histogram Latency::*member) {
    out += heading(name, "histogram", help);
    for (const auto& [model, latency] : latencies_) out += (latency.*member).text(name, model_label(model));
  };
  add("lamina_time_to_first_token_seconds", "From the request's arrival to its first token.", &Latency::first_token);
  add("lamina_inter_token_seconds", "Between the tokens of an answer.", &Latency::next_token);
  const auto add_engine = [&](const char* name, const char* help, Histogram EngineReport::*member) {
    out += heading(name, "histogram", help);
    for (const EngineReport& engine : engines) out += (engine.*member).text(name, model_label(engine.model));
  };
  add_engine("lamina_queue_seconds", "From an answer's submission to its row.", &EngineReport::queue);
  add_engine("lamina_prefill_seconds", "From an answer's row to its first token.", &EngineReport::prompt);
  add("lamina_request_seconds", "From the request's arrival to the end of its last answer.", &Latency::request);
  return out;
}

}  // namespace lamina::serve
