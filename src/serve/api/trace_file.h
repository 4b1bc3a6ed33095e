#pragma once

#include <cstdio>
#include <mutex>
#include <string>

#include "lamina/infer/engine/engine_observer.h"

namespace lamina::serve {

/// Writes engine steps, answers and queue times in Chrome's trace format, for chrome://tracing or Perfetto. Each model
/// is a process. Its steps are one thread, each batch row is one thread, and queue times have tracks of their own.
/// Texts are not written. The file is readable at any time, because these viewers do not need the closing bracket.
/// Thread-safe.
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
