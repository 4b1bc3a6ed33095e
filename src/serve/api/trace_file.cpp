#include "lamina/serve/api/trace_file.h"

#include <chrono>

#include "lamina/serve/api/fields.h"

namespace lamina::serve {
namespace {

constexpr double kFlushSeconds = 1;
constexpr int kStepThread = 0;  ///< the engine's rows are threads 1, 2, …

double microseconds(double seconds) { return seconds * 1e6; }

/// A Chrome trace event: a span of time on one thread of one process.
Json span(int process, int64_t thread, const std::string& name, double from, double to) {
  return {{"name", name},   {"ph", "X"},    {"ts", microseconds(from)}, {"dur", microseconds(std::max(0.0, to - from))},
          {"pid", process}, {"tid", thread}};
}

Json named(int process, int64_t thread, const char* kind, const std::string& name) {
  return {{"name", kind}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

}  // namespace

TraceFile::TraceFile(const std::string& path) : file_(std::fopen(path.c_str(), "we")) {
  LAMINA_CHECK(file_ != nullptr, "--trace ", path, ": cannot be written; check the folder and the permissions");
}

TraceFile::~TraceFile() {
  std::fputs(first_ ? "[]\n" : "\n]\n", file_);
  std::fclose(file_);
}

void TraceFile::write(const std::string& event) {
  const double now = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  const std::lock_guard lock(mutex_);
  std::fputs(first_ ? "[\n" : ",\n", file_);
  std::fputs(event.c_str(), file_);
  first_ = false;
  if (now - flushed_ < kFlushSeconds) return;
  std::fflush(file_);
  flushed_ = now;
}

void TraceFile::name_model(int process, const std::string& model) {
  write(dump(named(process, kStepThread, "process_name", model)));
  write(dump(named(process, kStepThread, "thread_name", "steps")));
}

void TraceFile::add(int process, const infer::StepRecord& step) {
  Json event = span(process, kStepThread, "step", step.started, step.started + step.seconds);
  event["args"] = {{"rows", step.rows}, {"tokens", step.tokens}};
  write(dump(event));
  const Json counter{{"name", "answers"},
                     {"ph", "C"},
                     {"ts", microseconds(step.started + step.seconds)},
                     {"pid", process},
                     {"args", {{"running", step.running}, {"waiting", step.waiting}}}};
  write(dump(counter));
  const Json pages{{"name", "cache pages"},
                   {"ph", "C"},
                   {"ts", microseconds(step.started + step.seconds)},
                   {"pid", process},
                   {"args", {{"used", step.pages_used}}}};
  write(dump(pages));
}

void TraceFile::add(int process, const infer::AnswerRecord& answer) {
  const std::string name = str("request ", answer.request, answer.answer > 0 ? str(".", answer.answer) : "");
  const double admitted = answer.admitted.value_or(answer.ended);
  for (const auto& [phase, time] : {std::pair("b", answer.submitted), std::pair("e", admitted)}) {
    const Json event{{"name", "queue"},          {"cat", "queue"}, {"ph", phase},        {"id", name},
                     {"ts", microseconds(time)}, {"pid", process}, {"tid", kStepThread}, {"args", {{"request", name}}}};
    write(dump(event));
  }
  if (answer.row < 0) return;
  const int64_t thread = answer.row + 1;
  const double first = answer.first_token.value_or(answer.ended);
  Json prompt = span(process, thread, name + ": prompt", admitted, first);
  prompt["args"] = {{"prompt_tokens", answer.prompt_tokens}};
  write(dump(prompt));
  if (!answer.first_token) return;
  Json decode = span(process, thread, name + ": answer", first, answer.ended);
  decode["args"] = {{"generated", answer.generated}, {"finish", std::string(infer::name_of(answer.finish))}};
  write(dump(decode));
}

}  // namespace lamina::serve
