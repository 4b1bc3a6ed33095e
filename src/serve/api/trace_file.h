#pragma once

#include <cstdio>
#include <mutex>
#include <string>

#include "lamina/infer/engine/engine_observer.h"

namespace lamina::serve {

/// Writes steps, answers and the queue in Chrome's trace format, for chrome://tracing or Perfetto. Each model is a
/// process, its steps and each of its rows are threads; the time that answers wait is on tracks of its own. Texts are
/// not written. Thread-safe. The file is valid at any time for these viewers, which do not need its last bracket.
class TraceFile {
 public:
  /// Throws Error if the file cannot be written.
  explicit TraceFile(const std::string& path);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  void name_model(int process, const std::string& model);
  void add(int process, const infer::StepRecord& step);
  void add(int process, const infer::AnswerRecord& answer);

 private:
  void write(const std::string& event);

  std::mutex mutex_;
  std::FILE* file_;
  bool first_ = true;
  double flushed_ = 0;  ///< time of the last flush
};

}  // namespace lamina::serve
