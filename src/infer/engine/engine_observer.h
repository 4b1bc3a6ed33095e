#pragma once

#include <cstdint>
#include <optional>

#include "lamina/infer/engine/request.h"

namespace lamina::infer {

/// A finished step. Times are those of EngineOptions::now.
struct StepRecord {
  double started = 0;      ///< when the step was planned
  double seconds = 0;      ///< duration, from the end of the previous step if that was after `started` (steps overlap)
  int64_t rows = 0;        ///< rows in the step
  int64_t tokens = 0;      ///< tokens computed
  int64_t running = 0;     ///< answers that hold cache memory after the step
  int64_t waiting = 0;     ///< answers in the queue after the step
  int64_t pages_used = 0;  ///< cache pages held by running answers after the step
};

/// A finished answer. Times are those of EngineOptions::now.
struct AnswerRecord {
  RequestId request = 0;               ///< the request it belongs to
  int64_t answer = 0;                  ///< index among the request's answers
  int32_t row = -1;                    ///< its last row; −1: it never ran
  double submitted = 0;                ///< when the request was submitted
  std::optional<double> admitted;      ///< when it first got a row
  std::optional<double> first_token;   ///< when its first token arrived
  double ended = 0;                    ///< when it ended
  int64_t prompt_tokens = 0;           ///< length of the prompt
  int64_t generated = 0;               ///< answer tokens
  Finish finish = Finish::max_tokens;  ///< why it ended
};

/// Receives what an engine did, on the engine's thread. The functions must be quick and must not throw.
class EngineObserver {
 public:
  EngineObserver() = default;
  virtual ~EngineObserver() = default;
  EngineObserver(const EngineObserver&) = delete;
  EngineObserver& operator=(const EngineObserver&) = delete;
  virtual void on_step(const StepRecord& step) = 0;        ///< after every step
  virtual void on_answer(const AnswerRecord& answer) = 0;  ///< after every answer
};

}  // namespace lamina::infer
