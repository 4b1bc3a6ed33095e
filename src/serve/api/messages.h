#pragma once

#include "lamina/serve/api/answer_job.h"

namespace lamina::serve {

/// POST /v1/messages, in Anthropic's form. Throws ApiError and QueueFull.
void run_messages(const Json& body, const std::shared_ptr<Exchange>& exchange,
                  const std::shared_ptr<ServedModel>& model, Metrics& metrics);
/// The number of prompt tokens of a /v1/messages request, for POST /v1/messages/count_tokens.
int64_t count_message_tokens(const Json& body, const ServedModel& model);

}  // namespace lamina::serve
