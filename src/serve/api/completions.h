#pragma once

#include "lamina/serve/api/answer_job.h"

namespace lamina::serve {

/// POST /v1/completions: reads the body and submits the prompts. Throws ApiError and QueueFull.
void run_completion(const Json& body, const std::shared_ptr<Exchange>& exchange,
                    const std::shared_ptr<ServedModel>& model, Metrics& metrics);

}  // namespace lamina::serve
