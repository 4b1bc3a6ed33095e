#pragma once

#include <memory>
#include <mutex>

#include "lamina/infer/engine/engine_observer.h"
#include "lamina/serve/api/metrics.h"
#include "lamina/serve/api/trace_file.h"

namespace lamina::serve {

/// Observes a model's engine: collects histograms of queue time and prompt time, and writes the trace.
class EngineEvents final : public infer::EngineObserver {
 public:
  /// `trace` may be null. `process` is the model's process id in the trace.
  EngineEvents(std::shared_ptr<TraceFile> trace, int process) : trace_(std::move(trace)), process_(process) {}

  void on_step(const infer::StepRecord& step) override;
  void on_answer(const infer::AnswerRecord& answer) override;
  Histogram queue_seconds() const;
  Histogram prompt_seconds() const;

 private:
  std::shared_ptr<TraceFile> trace_;
  int process_;
  mutable std::mutex mutex_;
  Histogram queue_, prompt_;
};

}  // namespace lamina::serve
