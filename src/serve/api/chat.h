#pragma once

#include "lamina/serve/api/answer_job.h"

namespace lamina::serve {

/// POST /v1/chat/completions: renders the conversation and submits it. Throws ApiError and QueueFull.
void run_chat(const Json& body, const std::shared_ptr<Exchange>& exchange, const std::shared_ptr<ServedModel>& model,
              Metrics& metrics);

/// Renders a conversation with the model's chat template. The arguments are request fields: messages, tools,
/// chat_template_kwargs, add_generation_prompt.
std::string render_chat(const ServedModel& model, const Json& messages, const Json& tools, const Json& kwargs,
                        bool add_generation_prompt);

}  // namespace lamina::serve
