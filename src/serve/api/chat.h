#pragma once

#include "lamina/serve/api/answer_job.h"

namespace lamina::serve {

/// POST /v1/chat/completions: renders the conversation and submits it. Throws ApiError and QueueFull.
void run_chat(const Json& body, const std::shared_ptr<Exchange>& exchange, const std::shared_ptr<ServedModel>& model,
              Metrics& metrics);

/// The text of a conversation: fields messages, tools, chat_template_kwargs, add_generation_prompt and documents.
std::string render_chat(const ServedModel& model, const Json& messages, const Json& tools, const Json& kwargs,
                        bool add_generation_prompt);

}  // namespace lamina::serve
