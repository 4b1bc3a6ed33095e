#include "lamina/serve/api/engine_events.h"

namespace lamina::serve {

void EngineEvents::on_step(const infer::StepRecord& step) {
  if (trace_) trace_->add(process_, step);
}

void EngineEvents::on_answer(const infer::AnswerRecord& answer) {
  if (trace_) trace_->add(process_, answer);
  const std::lock_guard lock(mutex_);
  if (answer.admitted) queue_.add(*answer.admitted - answer.submitted);
  if (answer.admitted && answer.first_token) prompt_.add(*answer.first_token - *answer.admitted);
}

Histogram EngineEvents::queue_seconds() const {
  const std::lock_guard lock(mutex_);
  return queue_;
}

Histogram EngineEvents::prompt_seconds() const {
  const std::lock_guard lock(mutex_);
  return prompt_;
}

}  // namespace lamina::serve
